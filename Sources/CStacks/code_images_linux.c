// The loaded files and checked reads: see code_images.h. Runs on the thread that looks at another one, never in a signal handler.

#if defined(__linux__)
#define _GNU_SOURCE
#include "code_images.h"

#include <link.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

enum { PAGE = 4096, MOST_PAGES = 64 };

size_t cstacks_copy(void *to, uint64_t from, size_t size) {
    struct iovec remote[MOST_PAGES + 1];
    size_t done = 0;
    while (done < size) {  // ends: each turn copies everything that it asks for, or is the last
        uint64_t begin = from + done, at = begin;
        size_t rest = size - done;
        uint64_t end = begin + (rest < MOST_PAGES * PAGE ? rest : MOST_PAGES * PAGE);
        if (end < begin) break;
        struct iovec local = {(char *)to + done, end - begin};
        unsigned long count = 0;
        // "partial transfers apply at the granularity of iovec elements" (process_vm_readv(2)).
        for (; at < end; count++) {
            uint64_t page_end = (at / PAGE + 1) * PAGE;
            if (page_end > end) page_end = end;
            remote[count] = (struct iovec){(void *)at, page_end - at};
            at = page_end;
        }
        ssize_t copied = process_vm_readv(getpid(), &local, 1, remote, count, 0);
        if (copied > 0) done += (size_t)copied;
        if (copied < (ssize_t)(end - begin)) break;
    }
    return done;
}

void *cstacks_copied(uint64_t from, size_t size) {
    void *copy = malloc(size);
    if (copy && cstacks_copy(copy, from, size) == size) return copy;
    free(copy);
    return 0;
}

#if defined(__x86_64__) || defined(__aarch64__)

static bool is_code(const ElfW(Phdr) *header) {
    return header->p_type == PT_LOAD && (header->p_flags & (PF_X | PF_R)) == (PF_X | PF_R);
}

static int add_code_of(struct dl_phdr_info *info, size_t size, void *context) {
    (void)size;
    struct code_ranges *ranges = context;
    struct code_range image = {.image_begin = UINT64_MAX};
    // The loader's are in the file, and reading them raises SIGBUS if somebody has truncated it.
    ElfW(Phdr) *headers = cstacks_copied((uint64_t)(uintptr_t)info->dlpi_phdr, info->dlpi_phnum * sizeof(*headers));
    if (headers == 0) return 0;
    for (int index = 0; index < info->dlpi_phnum; index++) {
        const ElfW(Phdr) *header = &headers[index];
        uint64_t begin = info->dlpi_addr + header->p_vaddr, end = begin + header->p_memsz;
        if (header->p_type == PT_GNU_EH_FRAME) {
            image.tables = begin;
            image.tables_size = header->p_memsz;
        } else if (header->p_type == PT_LOAD) {
            if (begin < image.image_begin) image.image_begin = begin;
            if (end > image.image_end) image.image_end = end;
        }
    }
    for (int index = 0; index < info->dlpi_phnum && ranges->count < CSTACKS_MOST_RANGES; index++) {
        const ElfW(Phdr) *header = &headers[index];
        if (!is_code(header)) continue;
        image.begin = info->dlpi_addr + header->p_vaddr;
        image.end = image.begin + header->p_memsz;
        ranges->all[ranges->count++] = image;
    }
    free(headers);
    return 0;
}

void cstacks_find_code(struct code_ranges *ranges) {
    ranges->count = 0;
    dl_iterate_phdr(add_code_of, ranges);
}

const struct code_range *cstacks_range_of(const struct code_ranges *ranges, uint64_t address) {
    for (int index = 0; index < ranges->count; index++) {
        if (address >= ranges->all[index].begin && address < ranges->all[index].end) return &ranges->all[index];
    }
    return 0;
}

bool cstacks_is_behind_call(const struct code_ranges *ranges, uint64_t address) {
    if (address < 8) return false;
    const struct code_range *range = cstacks_range_of(ranges, address - 1);
    if (range == 0 || address - 8 < range->begin) return false;
    unsigned char code[8];
    if (cstacks_copy(code, address - 8, 8) < 8) return false;
#if defined(__x86_64__)
    // CALL rel32, or CALL through a register or memory (FF /2) in its lengths.
    if (code[3] == 0xE8) return true;
    for (int length = 2; length <= 7; length++) {
        if (code[8 - length] == 0xFF && (code[9 - length] & 0x38) == 0x10) return true;
    }
    return false;
#else
    uint32_t instruction;
    memcpy(&instruction, code + 4, 4);
    return (instruction & 0xFC000000) == 0x94000000 || (instruction & 0xFFFFF000) == 0xD63F0000;
#endif
}

#endif
#endif
