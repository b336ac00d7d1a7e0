#include "CPlatform.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void refuse_parents(void) {
    static const char sentence[] =
        "Fatal error: this object is the parent process's, and one of its threads was changing it when it forked; in a child of fork, "
        "invalidate or release what was made before, and make what the child needs again\n";
    // A failed write cannot be reported anywhere.
    if (write(STDERR_FILENO, sentence, sizeof(sentence) - 1) < 0) abort();
    __builtin_trap();
}

void cplatform_lock(struct cplatform_lock *lock) {
    if (!cplatform_lock_if_own(lock)) refuse_parents();
}

#if defined(__linux__)

#include <linux/futex.h>
#include <stdatomic.h>
#include <sys/syscall.h>

// Ulrich Drepper, "Futexes Are Tricky", the second mutex: 0 is free, 1 locked, 2 locked with possible sleepers. A locked word also contains
// the number of forks at which it was locked. A process with another number has inherited the lock: its own threads lock with their own
// number.
enum { FREE, LOCKED, CONTENDED, STATE = 3 };
enum { SPINS = 64 };

static _Atomic uint32_t *word_of(struct cplatform_lock *lock) { return (_Atomic uint32_t *)&lock->word; }
static uint32_t here(uint32_t state) { return (uint32_t)cplatform_forks << 2 | state; }

__attribute__((noinline)) static bool lock_slowly(struct cplatform_lock *lock) {
    uint32_t seen = atomic_load_explicit(word_of(lock), memory_order_relaxed);
    // One check is enough: from here on only threads of this process lock it.
    if (seen != FREE && seen >> 2 != here(0) >> 2) return false;
    // The lock is held for less time than a thread needs to fall asleep.
    for (int i = 0; i < SPINS; i++) {
        uint32_t expected = FREE;
        if (atomic_load_explicit(word_of(lock), memory_order_relaxed) == FREE
            && atomic_compare_exchange_strong_explicit(
                word_of(lock), &expected, here(LOCKED), memory_order_acquire, memory_order_relaxed)) {
            return true;
        }
    }
    int saved = errno;
    while (atomic_exchange_explicit(word_of(lock), here(CONTENDED), memory_order_acquire) != FREE) {
        // Returns at once if the word has changed, and sometimes spuriously: the loop checks again.
        syscall(SYS_futex, &lock->word, FUTEX_WAIT_PRIVATE, here(CONTENDED), 0, 0, 0);
    }
    errno = saved;
    return true;
}

bool cplatform_lock_if_own(struct cplatform_lock *lock) {
    uint32_t expected = FREE;
    return atomic_compare_exchange_strong_explicit(
               word_of(lock), &expected, here(LOCKED), memory_order_acquire, memory_order_relaxed)
        || lock_slowly(lock);
}

void cplatform_unlock(struct cplatform_lock *lock) {
    if ((atomic_exchange_explicit(word_of(lock), FREE, memory_order_release) & STATE) == CONTENDED) {
        int saved = errno;
        syscall(SYS_futex, &lock->word, FUTEX_WAKE_PRIVATE, 1, 0, 0, 0);
        errno = saved;
    }
}

bool cplatform_lock_is_held(struct cplatform_lock *lock) {
    return atomic_load_explicit(word_of(lock), memory_order_relaxed) != FREE;
}

#else

#include <os/lock.h>

// An unfair lock has no room for the number of forks. No lock is held for longer than a few instructions, so a child that finds a lock
// taken for a second has inherited it.
bool cplatform_lock_if_own(struct cplatform_lock *lock) {
    os_unfair_lock_t native = (os_unfair_lock_t)lock;
    if (cplatform_forks == 0) {
        os_unfair_lock_lock(native);
        return true;
    }
    for (int tries = 0; tries < 1000; tries++) {
        if (os_unfair_lock_trylock(native)) return true;
        usleep(1000);
    }
    return false;
}

void cplatform_unlock(struct cplatform_lock *lock) { os_unfair_lock_unlock((os_unfair_lock_t)lock); }

bool cplatform_lock_is_held(struct cplatform_lock *lock) {
    if (!os_unfair_lock_trylock((os_unfair_lock_t)lock)) return true;
    os_unfair_lock_unlock((os_unfair_lock_t)lock);
    return false;
}

#endif
