// Reads when a thread sleeps, by one word in the table of functions that an object imports (the psABI's global offset table).
//
// An event loop that drives a run loop has no way to say when it wakes up and when it sleeps. While somebody observes the run loop, these are the
// beginning and the end of a span. No table is touched before that (decision 46).

#define _GNU_SOURCE
#include "CHostPasses.h"

// Says whether the C library is glibc.
#include <limits.h>

#if defined(__linux__) && defined(__GLIBC__)

#include <elf.h>
#include <errno.h>
#include <link.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <unistd.h>

static _Thread_local const CHostPassesReader *reader;

void chost_passes_set_reader(const CHostPassesReader *new_reader) { reader = new_reader; }

// In place of epoll_wait. Does not call that function: this module may be in the same object.
static int wait_with_reader(int set, struct epoll_event *events, int capacity, int timeout) {
    const CHostPassesReader *mine = reader;
    if (!mine || mine->set != set) return epoll_pwait(set, events, capacity, timeout, NULL);
    mine->will_wait(mine->context);
    int count = epoll_pwait(set, events, capacity, timeout, NULL);
    int saved = errno;
    // The first callback may have removed the reader.
    if (reader == mine) mine->did_wait(mine->context);
    errno = saved;
    return count;
}

typedef struct {
    uintptr_t address;
    // Of the object that contains it.
    uintptr_t base;
    const ElfW(Dyn) *dynamic;
    uintptr_t read_only, read_only_end;
} Object;

static int find_object(struct dl_phdr_info *info, size_t size, void *context) {
    (void)size;
    Object *object = context;
    bool contains = false;
    for (int i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *header = &info->dlpi_phdr[i];
        uintptr_t start = info->dlpi_addr + header->p_vaddr;
        if (header->p_type == PT_LOAD && object->address >= start && object->address - start < header->p_memsz) contains = true;
    }
    if (!contains) return 0;
    object->base = info->dlpi_addr;
    for (int i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *header = &info->dlpi_phdr[i];
        uintptr_t start = info->dlpi_addr + header->p_vaddr;
        if (header->p_type == PT_DYNAMIC) object->dynamic = (const ElfW(Dyn) *)start;
        if (header->p_type == PT_GNU_RELRO) {
            object->read_only = start;
            object->read_only_end = start + header->p_memsz;
        }
    }
    return 1;
}

#if defined(__x86_64__)
static bool is_import(ElfW(Xword) type) { return type == R_X86_64_JUMP_SLOT || type == R_X86_64_GLOB_DAT; }
#elif defined(__aarch64__)
static bool is_import(ElfW(Xword) type) { return type == R_AARCH64_JUMP_SLOT || type == R_AARCH64_GLOB_DAT; }
#else
static bool is_import(ElfW(Xword) type) { (void)type; return false; }
#endif

static bool redirect(const Object *object, _Atomic(uintptr_t) *slot) {
    if (atomic_load(slot) == (uintptr_t)wait_with_reader) return true;
    uintptr_t page = (uintptr_t)getpagesize(), start = (uintptr_t)slot & ~(page - 1);
    // The loader has made whole pages of this range read-only.
    bool is_read_only = start >= (object->read_only & ~(page - 1)) && start + page <= (object->read_only_end & ~(page - 1));
    if (is_read_only && mprotect((void *)start, page, PROT_READ | PROT_WRITE) != 0) return false;
    atomic_store(slot, (uintptr_t)wait_with_reader);
    if (is_read_only) (void)mprotect((void *)start, page, PROT_READ);
    return true;
}

static bool redirect_all(const Object *object) {
    const ElfW(Sym) *symbols = NULL;
    const char *names = NULL;
    struct { uintptr_t start; size_t size; } tables[2] = {{0, 0}, {0, 0}};
    for (const ElfW(Dyn) *entry = object->dynamic; entry->d_tag != DT_NULL; entry++) {
        // glibc has replaced offsets by addresses, where the section can be written.
        uintptr_t address = entry->d_un.d_ptr < object->base ? object->base + entry->d_un.d_ptr : entry->d_un.d_ptr;
        switch (entry->d_tag) {
        case DT_SYMTAB: symbols = (const ElfW(Sym) *)address; break;
        case DT_STRTAB: names = (const char *)address; break;
        case DT_JMPREL: tables[0].start = address; break;
        case DT_PLTRELSZ: tables[0].size = entry->d_un.d_val; break;
        case DT_RELA: tables[1].start = address; break;
        case DT_RELASZ: tables[1].size = entry->d_un.d_val; break;
        default: break;
        }
    }
    if (!symbols || !names) return false;
    bool found = false;
    for (int t = 0; t < 2; t++) {
        const ElfW(Rela) *relocations = (const ElfW(Rela) *)tables[t].start;
        for (size_t i = 0; relocations && i < tables[t].size / sizeof(ElfW(Rela)); i++) {
            const ElfW(Rela) *relocation = &relocations[i];
            if (!is_import(ELF64_R_TYPE(relocation->r_info))) continue;
            if (strcmp(names + symbols[ELF64_R_SYM(relocation->r_info)].st_name, "epoll_wait") != 0) continue;
            if (redirect(object, (_Atomic(uintptr_t) *)(object->base + relocation->r_offset))) found = true;
        }
    }
    return found;
}

// One change at a time: another one would make the page read-only too early.
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

// Held over every fork, so that no child inherits it locked, or a table half changed. From when the program is loaded, because a fork may come in
// the middle of the first use: it would call no handler that is registered after it has begun, and a child that registered them again would lock
// twice.
static void before_fork(void) { pthread_mutex_lock(&lock); }
static void after_fork(void) { pthread_mutex_unlock(&lock); }
__attribute__((constructor)) static void hold_over_forks(void) { pthread_atfork(before_fork, after_fork, after_fork); }

bool chost_passes_prepare(const void *address) {
    Object object = {.address = (uintptr_t)address};
    if (dl_iterate_phdr(find_object, &object) == 0 || !object.dynamic) return false;
    pthread_mutex_lock(&lock);
    // Each time: if the loader was binding another thread's first call meanwhile, it has written its own word over an earlier change.
    bool is_prepared = redirect_all(&object);
    pthread_mutex_unlock(&lock);
    return is_prepared;
}

#else

bool chost_passes_prepare(const void *address) { (void)address; return false; }
void chost_passes_set_reader(const CHostPassesReader *reader) { (void)reader; }

#endif
