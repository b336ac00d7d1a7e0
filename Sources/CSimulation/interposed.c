// Functions of libc that are the seed's inside a simulation: time, and chance. They are the executable's own definitions, so that the libraries of
// the process call them, too. On threads of no simulation they do what the originals do.

#define _GNU_SOURCE
#include "scheduler.h"

#ifdef CSIM_SUPPORTED
#include <dlfcn.h>
#include <stdarg.h>
#include <string.h>
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
