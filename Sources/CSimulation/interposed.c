// Functions of libc that are the seed's inside a simulation: time, and chance. They are the executable's own definitions, so that the libraries of
// the process call them, too. On threads of no simulation they do what the originals do.

#define _GNU_SOURCE
#include "scheduler.h"

#ifdef CSIM_SUPPORTED
#include <dlfcn.h>
#include <errno.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#define EXPORT __attribute__((visibility("default")))
#define NEXT(name, type) ({ static __typeof__(type) found; if (!found) found = (__typeof__(type))dlsym(RTLD_NEXT, name); found; })

// MARK: Time and chance

// 2026-01-01 00:00 UTC, less the beginning of monotonic time.
static const time_t wall_clock_offset = 1767225600 - 1000;

EXPORT int clock_gettime(clockid_t id, struct timespec *time) {
    csim_run *run = csim_of_thread;
    bool is_wall = id == CLOCK_REALTIME || id == CLOCK_REALTIME_COARSE;
    if (run && (is_wall || id == CLOCK_MONOTONIC || id == CLOCK_BOOTTIME || id == CLOCK_MONOTONIC_RAW || id == CLOCK_MONOTONIC_COARSE)) {
        uint64_t now = csim_now(run);
        time->tv_sec = (time_t)(now / 1000000000u) + (is_wall ? wall_clock_offset : 0);
        time->tv_nsec = (long)(now % 1000000000u);
        return 0;
    }
    return NEXT("clock_gettime", int (*)(clockid_t, struct timespec *))(id, time);
}

EXPORT int gettimeofday(struct timeval *restrict time, void *restrict zone) {
    if (!csim_of_thread) return NEXT("gettimeofday", int (*)(struct timeval *, void *))(time, zone);
    struct timespec precise;
    clock_gettime(CLOCK_REALTIME, &precise);
    time->tv_sec = precise.tv_sec;
    time->tv_usec = precise.tv_nsec / 1000;
    return 0;
}

EXPORT time_t time(time_t *result) {
    if (!csim_of_thread) return NEXT("time", time_t (*)(time_t *))(result);
    struct timespec precise;
    clock_gettime(CLOCK_REALTIME, &precise);
    if (result) *result = precise.tv_sec;
    return precise.tv_sec;
}

EXPORT int timespec_get(struct timespec *time, int base) {
    // Of C23. Older headers lack it, and older libraries refuse it: the original returns zero then.
    enum { monotonic_base = 2 };
    int known = NEXT("timespec_get", int (*)(struct timespec *, int))(time, base);
    if (csim_of_thread && known == TIME_UTC) clock_gettime(CLOCK_REALTIME, time);
    if (csim_of_thread && known == monotonic_base) clock_gettime(CLOCK_MONOTONIC, time);
    return known;
}

void csim_fill(csim_run *run, void *buffer, size_t count) {
    for (uint8_t *at = buffer; count;) {
        uint64_t drawn = csim_draw_program(run);
        size_t part = count < 8 ? count : 8;
        memcpy(at, &drawn, part);
        at += part;
        count -= part;
    }
}

// The standard library makes the system call getrandom through this function.
EXPORT long syscall(long number, ...) {
    long arguments[6];
    va_list list;
    va_start(list, number);
    for (int i = 0; i < 6; i++) arguments[i] = va_arg(list, long);
    va_end(list);
    if (number == SYS_getrandom && csim_of_thread) {
        csim_fill(csim_of_thread, (void *)arguments[0], (size_t)arguments[1]);
        return arguments[1];
    }
    // Byte streams make these two calls without the functions that escapes.c has.
    if (number == SYS_recvfrom && csim_of_thread)
        return recvfrom((int)arguments[0], (void *)arguments[1], (size_t)arguments[2], (int)arguments[3], (void *)arguments[4], (void *)arguments[5]);
    if (number == SYS_sendto && csim_of_thread)
        return sendto(
            (int)arguments[0], (void *)arguments[1], (size_t)arguments[2], (int)arguments[3], (void *)arguments[4], (socklen_t)arguments[5]);
    return NEXT("syscall", long (*)(long, ...))(
        number, arguments[0], arguments[1], arguments[2], arguments[3], arguments[4], arguments[5]);
}

EXPORT ssize_t getrandom(void *buffer, size_t count, unsigned flags) {
    if (!csim_of_thread) return NEXT("getrandom", ssize_t (*)(void *, size_t, unsigned))(buffer, count, flags);
    csim_fill(csim_of_thread, buffer, count);
    return (ssize_t)count;
}

EXPORT int getentropy(void *buffer, size_t count) {
    if (!csim_of_thread) return NEXT("getentropy", int (*)(void *, size_t))(buffer, count);
    csim_fill(csim_of_thread, buffer, count);
    return 0;
}

// glibc has the next three since 2.36. There, too, they only ask the kernel, so no original is called that may be missing.
EXPORT void arc4random_buf(void *buffer, size_t count) {
    for (uint8_t *at = buffer; count;) {
        ssize_t part = getrandom(at, count, 0);
        if (part < 0 && errno != EINTR) abort();
        if (part < 0) continue;
        at += part;
        count -= (size_t)part;
    }
}

EXPORT uint32_t arc4random(void) {
    uint32_t drawn;
    arc4random_buf(&drawn, sizeof drawn);
    return drawn;
}

EXPORT uint32_t arc4random_uniform(uint32_t bound) {
    if (bound < 2) return 0;
    // Below this, 2^32 values are not a multiple of the bound.
    uint32_t least = -bound % bound, drawn;
    do drawn = arc4random(); while (drawn < least);
    return drawn % bound;
}

// The numbers of `random` follow from a state of the process. A run has its own, which begins with a number of the seed. `rand_r` needs none: its
// state is the caller's.
static struct random_data *random_of(csim_run *run) {
    if (!run->random.state)
        initstate_r((unsigned)csim_draw_program(run), (char *)run->random_memory, sizeof run->random_memory, &run->random);
    return &run->random;
}

EXPORT long random(void) {
    if (!csim_of_thread) return NEXT("random", long (*)(void))();
    int32_t drawn;
    random_r(random_of(csim_of_thread), &drawn);
    return drawn;
}

EXPORT void srandom(unsigned seed) {
    if (csim_of_thread) srandom_r(seed, random_of(csim_of_thread)); else NEXT("srandom", void (*)(unsigned))(seed);
}

// In glibc, these are the same two.
EXPORT int rand(void) { return (int)random(); }
EXPORT void srand(unsigned seed) { srandom(seed); }

// Sets and dictionaries have the same order in each process.
extern struct {
    uint64_t seed0, seed1;
    bool is_deterministic;
} _swift_stdlib_Hashing_parameters __attribute__((weak));
__attribute__((constructor)) static void fix_hashing(void) {
    if (!&_swift_stdlib_Hashing_parameters) return;
    _swift_stdlib_Hashing_parameters.seed0 = 0;
    _swift_stdlib_Hashing_parameters.seed1 = 0;
    _swift_stdlib_Hashing_parameters.is_deterministic = true;
}
#endif
