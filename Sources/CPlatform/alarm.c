// The bell on which the watchdog's thread waits.

#if defined(__linux__)
#define _GNU_SOURCE
#endif
#include "CPlatform.h"

#include <errno.h>
#include <stdatomic.h>
#include <time.h>
#include <unistd.h>

#if defined(__linux__)
#include <linux/futex.h>
#include <sys/syscall.h>

// 1 after a ring that the waiting thread has not seen.
static _Atomic uint32_t rung;

void cplatform_ring_alarm(void) {
    if (atomic_exchange(&rung, 1) == 1) return;
    int saved = errno;
    syscall(SYS_futex, &rung, FUTEX_WAKE_PRIVATE, 1, 0, 0, 0);
    errno = saved;
}

void cplatform_wait_for_alarm(int64_t nanoseconds) {
    struct timespec time = {.tv_sec = nanoseconds / 1000000000, .tv_nsec = nanoseconds % 1000000000};
    // Returns at once if the bell has rung since the last wait.
    if (atomic_load(&rung) == 0) syscall(SYS_futex, &rung, FUTEX_WAIT_PRIVATE, 0, nanoseconds < 0 ? 0 : &time, 0, 0);
    // An exchange, so that the thread sees what the ringing threads have done before.
    atomic_exchange(&rung, 0);
}

#else
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>

static int ends[2] = {-1, -1};
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void make_bell(void) { cplatform_make_wake_channel(ends); }

void cplatform_ring_alarm(void) {
    // The waiting thread makes the bell before anybody is asked to ring it.
    pthread_once(&once, make_bell);
    if (ends[1] >= 0) cplatform_wake(ends);
}

void cplatform_wait_for_alarm(int64_t nanoseconds) {
    pthread_once(&once, make_bell);
    struct pollfd entry = {.fd = ends[0], .events = POLLIN};
    int64_t milliseconds = nanoseconds / 1000000 + 1;
    poll(&entry, 1, nanoseconds < 0 ? -1 : milliseconds > 1000000 ? 1000000 : (int)milliseconds);
    char bytes[64];
    while (read(ends[0], bytes, sizeof(bytes)) > 0) {}
}

#endif
