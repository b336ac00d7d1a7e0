#include "CPlatform.h"

#if defined(__linux__)

#include <errno.h>
#include <linux/futex.h>
#include <stdatomic.h>
#include <sys/syscall.h>
#include <unistd.h>

// Ulrich Drepper, "Futexes Are Tricky", the second mutex: 0 is free, 1 locked, 2 locked and somebody may sleep.
enum { FREE, LOCKED, CONTENDED };
enum { SPINS = 64 };

static _Atomic uint32_t *word_of(struct cplatform_lock *lock) { return (_Atomic uint32_t *)&lock->word; }

static void lock_slowly(struct cplatform_lock *lock) {
    // What is guarded here is held for less time than it takes to fall asleep.
    for (int i = 0; i < SPINS; i++) {
        uint32_t expected = FREE;
        if (atomic_load_explicit(word_of(lock), memory_order_relaxed) == FREE
            && atomic_compare_exchange_strong_explicit(word_of(lock), &expected, LOCKED, memory_order_acquire, memory_order_relaxed)) {
            return;
        }
    }
    int saved = errno;
    while (atomic_exchange_explicit(word_of(lock), CONTENDED, memory_order_acquire) != FREE) {
        // Returns at once when the word has changed, and now and then for no reason: the loop looks again.
        syscall(SYS_futex, &lock->word, FUTEX_WAIT_PRIVATE, CONTENDED, 0, 0, 0);
    }
    errno = saved;
}

void cplatform_lock(struct cplatform_lock *lock) {
    uint32_t expected = FREE;
    if (!atomic_compare_exchange_strong_explicit(word_of(lock), &expected, LOCKED, memory_order_acquire, memory_order_relaxed)) {
        lock_slowly(lock);
    }
}

void cplatform_unlock(struct cplatform_lock *lock) {
    if (atomic_exchange_explicit(word_of(lock), FREE, memory_order_release) == CONTENDED) {
        int saved = errno;
        syscall(SYS_futex, &lock->word, FUTEX_WAKE_PRIVATE, 1, 0, 0, 0);
        errno = saved;
    }
}

#else

#include <os/lock.h>

void cplatform_lock(struct cplatform_lock *lock) { os_unfair_lock_lock((os_unfair_lock_t)lock); }
void cplatform_unlock(struct cplatform_lock *lock) { os_unfair_lock_unlock((os_unfair_lock_t)lock); }

#endif
