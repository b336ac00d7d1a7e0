// Counts allocations, by replacing glibc's allocator with functions that forward to it.
//
// A definition of malloc in the program is also the one that every shared library uses ("Replacing malloc", glibc manual), and
// the __libc_ names are what glibc exports for forwarding. Every allocation function must be replaced, not some.
// A sanitizer has its own allocator, which must not be replaced: nothing is counted there.

#define _GNU_SOURCE
#include "CPerfPeers.h"

#include <errno.h>
#include <malloc.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdlib.h>

#if defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer) || __has_feature(memory_sanitizer)
#define HAS_SANITIZER 1
#endif
#endif

#if defined(__GLIBC__) && !defined(HAS_SANITIZER)

// Read at every allocation, written before and after a measurement.
static atomic_bool counting;
static _Atomic int64_t allocations, allocated_bytes, live_bytes;

extern void *__libc_malloc(size_t);
extern void *__libc_calloc(size_t, size_t);
extern void *__libc_realloc(void *, size_t);
extern void *__libc_memalign(size_t, size_t);
extern void *__libc_valloc(size_t);
extern void *__libc_pvalloc(size_t);
extern void __libc_free(void *);

// The heap memory of a block: its usable part and the word before it.
static inline int64_t footprint(void *block) { return (int64_t)malloc_usable_size(block) + (int64_t)sizeof(size_t); }

static inline bool is_counting(void) { return atomic_load_explicit(&counting, memory_order_relaxed); }

static inline void add(_Atomic int64_t *counter, int64_t amount) {
    atomic_fetch_add_explicit(counter, amount, memory_order_relaxed);
}

static inline void *took(void *block, size_t size) {
    if (is_counting() && block) {
        add(&allocations, 1);
        add(&allocated_bytes, (int64_t)size);
        add(&live_bytes, footprint(block));
    }
    return block;
}

void *malloc(size_t size) { return took(__libc_malloc(size), size); }
void *calloc(size_t count, size_t size) { return took(__libc_calloc(count, size), count * size); }
void *memalign(size_t alignment, size_t size) { return took(__libc_memalign(alignment, size), size); }
void *aligned_alloc(size_t alignment, size_t size) { return took(__libc_memalign(alignment, size), size); }
void *valloc(size_t size) { return took(__libc_valloc(size), size); }
void *pvalloc(size_t size) { return took(__libc_pvalloc(size), size); }

int posix_memalign(void **result, size_t alignment, size_t size) {
    if (alignment % sizeof(void *) != 0 || (alignment & (alignment - 1)) != 0 || alignment == 0) return EINVAL;
    void *block = took(__libc_memalign(alignment, size), size);
    if (!block) return ENOMEM;
    *result = block;
    return 0;
}

void *realloc(void *old, size_t size) {
    if (!is_counting()) return __libc_realloc(old, size);
    int64_t before = old ? footprint(old) : 0;
    void *block = took(__libc_realloc(old, size), size);
    // The old block is freed if there is a new one, or if the size is 0.
    if (block || size == 0) add(&live_bytes, -before);
    return block;
}

void free(void *block) {
    if (block && is_counting()) add(&live_bytes, -footprint(block));
    __libc_free(block);
}

bool perf_can_count_allocations(void) { return true; }
void perf_count_allocations(bool on) { atomic_store(&counting, on); }
int64_t perf_allocations(void) { return atomic_load_explicit(&allocations, memory_order_relaxed); }
int64_t perf_allocated_bytes(void) { return atomic_load_explicit(&allocated_bytes, memory_order_relaxed); }
int64_t perf_live_bytes(void) { return atomic_load_explicit(&live_bytes, memory_order_relaxed); }

#else

bool perf_can_count_allocations(void) { return false; }
void perf_count_allocations(bool on) { (void)on; }
int64_t perf_allocations(void) { return 0; }
int64_t perf_allocated_bytes(void) { return 0; }
int64_t perf_live_bytes(void) { return 0; }

#endif
