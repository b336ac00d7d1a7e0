// The clocks and counters of a measurement.

#define _GNU_SOURCE
#include "CPerfPeers.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/syscall.h>

#include "tracing.h"

static bool marks;

void perf_mark_for_tracer(bool on) { marks = on; }

void perf_let_it_sleep(void) { usleep(marks ? 2000 : 100); }

static int64_t clock_ns(clockid_t clock) {
    struct timespec now;
    clock_gettime(clock, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

int64_t perf_process_cpu_ns(void) { return clock_ns(CLOCK_PROCESS_CPUTIME_ID); }
int64_t perf_thread_cpu_ns(void) { return clock_ns(CLOCK_THREAD_CPUTIME_ID); }

static int64_t voluntary_switches(void) {
    struct rusage usage;
    getrusage(RUSAGE_THREAD, &usage);
    return usage.ru_nvcsw;
}

void perf_begin(struct perf_sample *sample) {
    sample->switches -= voluntary_switches();
    sample->cpu_ns -= perf_process_cpu_ns();
    sample->thread_cpu_ns -= perf_thread_cpu_ns();
    sample->allocations -= perf_allocations();
    sample->allocated_bytes -= perf_allocated_bytes();
    sample->live_bytes -= perf_live_bytes();
    if (marks && !sample->is_ignored) syscall(MARK_BEGIN);
    sample->wall_ns -= perf_wall_ns();
}

void perf_end(struct perf_sample *sample) {
    sample->wall_ns += perf_wall_ns();
    if (marks && !sample->is_ignored) syscall(MARK_END);
    sample->live_bytes += perf_live_bytes();
    sample->allocated_bytes += perf_allocated_bytes();
    sample->allocations += perf_allocations();
    sample->thread_cpu_ns += perf_thread_cpu_ns();
    sample->cpu_ns += perf_process_cpu_ns();
    sample->switches += voluntary_switches();
}
