// Names of code addresses, from the symbol tables of the loaded files.
//
// dladdr(3) knows exported symbols only, and an executable exports none. Also, it takes the loader's lock, which a thread holds while it
// runs the constructors of a library, for example the thread that is stuck. `dl_iterate_phdr` holds a lock of its own for a moment.
//
// Files are read, not mapped: a mapped file that somebody truncates raises SIGBUS. A file that replaced the loaded one at its path is
// recognized by its program headers and notes, among them the build id, and is not used.
//
// Lifecycle: everything is allocated and freed in one call, except the results, which the caller frees.

#if defined(__linux__)
#define _GNU_SOURCE
#include "CStacks.h"
#include "code_images.h"

#include <fcntl.h>
#include <link.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { MOST_HEADERS = 64, MOST_NOTES = 1024, MOST_NAME = 8192, CHUNK = 1024 };

// A loaded file, with what was copied of it under the loader's lock.
struct image {
    char path[4096];
    uint64_t base;
    ElfW(Phdr) headers[MOST_HEADERS];
    int header_count;
    unsigned char notes[MOST_NOTES];
    uint64_t notes_offset, notes_size;
};

struct image_search {
    uint64_t address;
    struct image *image;
    bool is_first, is_found;
};

static bool contains(uint64_t base, const ElfW(Phdr) *headers, int count, uint64_t address) {
    for (int index = 0; index < count; index++) {
        const ElfW(Phdr) *header = &headers[index];
        uint64_t begin = base + header->p_vaddr;
        if (header->p_type == PT_LOAD && address >= begin && address < begin + header->p_memsz) return true;
    }
    return false;
}

// Whether the loader has mapped all of a part of the file. A file may say anything of its notes.
static bool is_mapped(const ElfW(Phdr) *headers, int count, const ElfW(Phdr) *part) {
    for (int index = 0; index < count; index++) {
        const ElfW(Phdr) *header = &headers[index];
        if (header->p_type != PT_LOAD || !(header->p_flags & PF_R) || part->p_vaddr < header->p_vaddr) continue;
        uint64_t offset = part->p_vaddr - header->p_vaddr;
        if (offset <= header->p_filesz && part->p_filesz <= header->p_filesz - offset) return true;
    }
    return false;
}

static void take_image(const struct dl_phdr_info *info, const ElfW(Phdr) *headers, bool is_program, struct image *image) {
    const char *path = is_program || !info->dlpi_name || !*info->dlpi_name ? "/proc/self/exe" : info->dlpi_name;
    snprintf(image->path, sizeof(image->path), "%s", path);
    image->base = info->dlpi_addr;
    image->header_count = info->dlpi_phnum <= MOST_HEADERS ? info->dlpi_phnum : 0;
    memcpy(image->headers, headers, (size_t)image->header_count * sizeof(ElfW(Phdr)));
    image->notes_size = 0;
    for (int index = 0; index < image->header_count; index++) {
        const ElfW(Phdr) *header = &image->headers[index];
        if (header->p_type != PT_NOTE || header->p_filesz > MOST_NOTES || header->p_filesz <= image->notes_size) continue;
        if (!is_mapped(image->headers, image->header_count, header)) continue;
        image->notes_offset = header->p_offset;
        image->notes_size = header->p_filesz;
        // No file's notes are zeros: if they cannot be read, the file is not recognized.
        memset(image->notes, 0, sizeof(image->notes));
        cstacks_copy(image->notes, info->dlpi_addr + header->p_vaddr, header->p_filesz);
    }
}

static int visit_image(struct dl_phdr_info *info, size_t size, void *context) {
    (void)size;
    struct image_search *search = context;
    bool is_program = search->is_first;
    search->is_first = false;
    // The loader's are in the file, and reading them raises SIGBUS if somebody has truncated it.
    ElfW(Phdr) *headers = cstacks_copied((uint64_t)(uintptr_t)info->dlpi_phdr, info->dlpi_phnum * sizeof(*headers));
    search->is_found = headers && contains(info->dlpi_addr, headers, info->dlpi_phnum, search->address);
    if (search->is_found) take_image(info, headers, is_program, search->image);
    free(headers);
    return search->is_found;
}

// MARK: Reading

static bool read_at(int file, void *to, uint64_t offset, size_t size) {
    return pread(file, to, size, (off_t)offset) == (ssize_t)size;
}

static bool is_the_loaded_file(int file, const ElfW(Ehdr) *header, const struct image *image) {
    ElfW(Phdr) headers[MOST_HEADERS];
    unsigned char notes[MOST_NOTES];
    if (image->header_count == 0 || header->e_phnum != image->header_count || header->e_phentsize != sizeof(ElfW(Phdr))) return false;
    size_t size = (size_t)image->header_count * sizeof(ElfW(Phdr));
    if (!read_at(file, headers, header->e_phoff, size) || memcmp(headers, image->headers, size) != 0) return false;
    if (image->notes_size == 0) return true;
    return read_at(file, notes, image->notes_offset, image->notes_size) && memcmp(notes, image->notes, image->notes_size) == 0;
}

// The symbol table, or else the table of exported symbols, and the section with its names.
static bool find_table(int file, const ElfW(Ehdr) *header, ElfW(Shdr) *table, ElfW(Shdr) *names) {
    bool is_found = false;
    if (header->e_shentsize != sizeof(ElfW(Shdr))) return false;
    for (unsigned index = 0; index < header->e_shnum; index++) {
        ElfW(Shdr) section;
        if (!read_at(file, &section, header->e_shoff + index * sizeof(section), sizeof(section))) return false;
        if (section.sh_type != SHT_SYMTAB && (section.sh_type != SHT_DYNSYM || is_found)) continue;
        if (section.sh_entsize != sizeof(ElfW(Sym)) || section.sh_link >= header->e_shnum) continue;
        *table = section;
        is_found = true;
        if (section.sh_type == SHT_SYMTAB) break;
    }
    return is_found && read_at(file, names, header->e_shoff + table->sh_link * sizeof(*names), sizeof(*names));
}

struct match { bool is_found; ElfW(Sym) symbol; };

static void consider(const ElfW(Sym) *symbol, uint64_t address, struct match *match) {
    int type = symbol->st_info & 0xF;
    if (symbol->st_shndx == SHN_UNDEF || symbol->st_value > address) return;
    if (type != STT_FUNC && type != STT_GNU_IFUNC && !(type == STT_NOTYPE && symbol->st_size > 0)) return;
    // Without a size it reaches to the next symbol, as far as is known.
    if (symbol->st_size > 0 ? address - symbol->st_value >= symbol->st_size : match->is_found) return;
    if (match->is_found && match->symbol.st_size > 0 && symbol->st_value <= match->symbol.st_value) return;
    *match = (struct match){true, *symbol};
}

static char *read_name(int file, const ElfW(Shdr) *names, uint32_t offset) {
    if (offset >= names->sh_size) return 0;
    size_t size = names->sh_size - offset < MOST_NAME ? names->sh_size - offset : MOST_NAME;
    char *name = malloc(size + 1);
    if (name == 0) return 0;
    ssize_t length = pread(file, name, size, (off_t)(names->sh_offset + offset));
    name[length < 0 ? 0 : length] = 0;
    if (*name) return name;
    free(name);
    return 0;
}

// Looks up those of the addresses that are in the image, in one pass over its table.
static void search_file(
    int file, const struct image *image, const int *indices, int count, struct cstacks_symbol *symbols) {
    ElfW(Ehdr) header;
    ElfW(Shdr) table, names;
    if (!read_at(file, &header, 0, sizeof(header)) || memcmp(header.e_ident, ELFMAG, SELFMAG) != 0) return;
    if (!is_the_loaded_file(file, &header, image) || !find_table(file, &header, &table, &names)) return;
    struct match *matches = calloc((size_t)count, sizeof(*matches));
    ElfW(Sym) *chunk = malloc(CHUNK * sizeof(*chunk));
    uint64_t total = table.sh_size / sizeof(*chunk);
    for (uint64_t begin = 0; matches && chunk && begin < total; begin += CHUNK) {
        size_t length = total - begin < CHUNK ? total - begin : CHUNK;
        if (!read_at(file, chunk, table.sh_offset + begin * sizeof(*chunk), length * sizeof(*chunk))) break;
        for (size_t index = 0; index < length; index++) {
            for (int one = 0; one < count; one++) consider(&chunk[index], symbols[indices[one]].address, &matches[one]);
        }
    }
    for (int one = 0; matches && one < count; one++) {
        if (!matches[one].is_found) continue;
        struct cstacks_symbol *symbol = &symbols[indices[one]];
        symbol->name = read_name(file, &names, matches[one].symbol.st_name);
        symbol->offset = symbol->address - matches[one].symbol.st_value;
    }
    free(matches);
    free(chunk);
}

// MARK: Looking up

// Opens the file of an image; -1 if there is none. The name need not be that of the loaded file: another file may be there, and names without a
// directory, as the kernel's own image has, would be looked for in the working directory. Opening a FIFO would block, so this does not wait.
static int open_image(const char *path) {
    struct stat status;
    if (*path != '/') return -1;
    int file = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (file < 0) return -1;
    if (fstat(file, &status) == 0 && S_ISREG(status.st_mode)) return file;
    close(file);
    return -1;
}

static char *last_component(const char *path) {
    char program[4096];
    if (strcmp(path, "/proc/self/exe") == 0) {
        ssize_t length = readlink(path, program, sizeof(program) - 1);
        if (length > 0) {
            program[length] = 0;
            // proc(5): "If the pathname has been unlinked, the symbolic link will contain the string '(deleted)' appended".
            char *deleted = strstr(program, " (deleted)");
            if (deleted) *deleted = 0;
            path = program;
        }
    }
    const char *slash = strrchr(path, '/');
    return strdup(slash ? slash + 1 : path);
}

void cstacks_symbolize(const uint64_t *addresses, int count, struct cstacks_symbol *symbols) {
    struct image *image = malloc(sizeof(*image));
    int *indices = malloc(sizeof(int) * (size_t)(count > 0 ? count : 1));
    for (int index = 0; index < count; index++) symbols[index] = (struct cstacks_symbol){.address = addresses[index]};
    for (int index = 0; image && indices && index < count; index++) {
        if (symbols[index].image) continue;
        struct image_search search = {addresses[index], image, true, false};
        dl_iterate_phdr(visit_image, &search);
        if (!search.is_found) continue;
        int found = 0;
        for (int other = index; other < count; other++) {
            if (symbols[other].image) continue;
            for (int header = 0; header < image->header_count; header++) {
                const ElfW(Phdr) *part = &image->headers[header];
                uint64_t begin = image->base + part->p_vaddr;
                if (part->p_type != PT_LOAD || addresses[other] < begin || addresses[other] >= begin + part->p_memsz) continue;
                symbols[other].image = last_component(image->path);
                symbols[other].address = addresses[other] - image->base;
                indices[found++] = other;
                break;
            }
        }
        int file = open_image(image->path);
        if (file < 0) continue;
        search_file(file, image, indices, found, symbols);
        close(file);
    }
    free(image);
    free(indices);
}
#endif
