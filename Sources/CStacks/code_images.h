// The loaded files, as far as walking a stack needs them, and memory of this process that is read with the kernel's check.

#ifndef EVENTLOOP_CODE_IMAGES_H
#define EVENTLOOP_CODE_IMAGES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

// An executable segment, and of the file that it belongs to the limits and the header of the unwind tables (0: it has none).
struct code_range {
    uint64_t begin, end;
    uint64_t image_begin, image_end;
    uint64_t tables, tables_size;
};

enum { CSTACKS_MOST_RANGES = 512 };
struct code_ranges {
    int count;
    struct code_range all[CSTACKS_MOST_RANGES];
};

// Takes the loader's lock for a moment. Nothing that it finds is read later without the kernel's check, so files may be unloaded.
void cstacks_find_code(struct code_ranges *ranges);
// Null if the address is in none of them.
const struct code_range *cstacks_range_of(const struct code_ranges *ranges, uint64_t address);

// Copies memory that another thread may be changing or unmapping. Returns the number of bytes up to the first that cannot be read.
size_t cstacks_copy(void *to, uint64_t from, size_t size);
// The same into memory that the caller frees; null if not all of it can be read.
void *cstacks_copied(uint64_t from, size_t size);

// Whether the address is behind a call instruction of a loaded file, as every return address is.
bool cstacks_is_behind_call(const struct code_ranges *ranges, uint64_t address);

#endif
