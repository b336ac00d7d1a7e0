// Memory that begins a cache line. The C library's own takes over 800 instructions to allocate and free, ten times as many as plain memory, and
// splits a larger piece for it, which later allocations pay for. So blocks that are freed are kept for the next.

#include "CPlatform.h"

#include <stdatomic.h>
#include <stdlib.h>

enum { LINE = 64, MOST_KEPT = 128 };

#ifndef __has_feature
#define __has_feature(feature) 0
#endif

// Nobody waits for the turn, so a child of fork does not either, which may inherit it taken: it then keeps no blocks.
static atomic_flag is_taken = ATOMIC_FLAG_INIT;

static bool take_turn(void) {
    // AddressSanitizer finds accesses to freed memory only if it is freed. ThreadSanitizer does not see Swift's counts of references, which order the
    // last use of a block before its end: it would report that use as a race with the next owner of the block.
    if (__has_feature(address_sanitizer) || __has_feature(thread_sanitizer)) return false;
    return !atomic_flag_test_and_set_explicit(&is_taken, memory_order_acquire);
}

static void end_turn(void) { atomic_flag_clear_explicit(&is_taken, memory_order_release); }

// All of one size, that of the first that was kept.
static struct {
    size_t size;
    int count;
    void *blocks[MOST_KEPT];
} kept;

void *cplatform_allocate_lines(size_t size) {
    void *block = NULL;
    if (take_turn()) {
        if (kept.size == size && kept.count > 0) block = kept.blocks[--kept.count];
        end_turn();
    }
    // Like Swift, which ends a program that has no memory left.
    if (!block && posix_memalign(&block, LINE, size) != 0) abort();
    return block;
}

void cplatform_free_lines(void *block, size_t size) {
    bool is_kept = false;
    if (take_turn()) {
        if (kept.size == 0) kept.size = size;
        is_kept = kept.size == size && kept.count < MOST_KEPT;
        if (is_kept) kept.blocks[kept.count++] = block;
        end_turn();
    }
    if (!is_kept) free(block);
}
