// The work of the handlers, and its data.
//
// Lifecycle of a ring: the measured implementation makes and frees it, on its loop's thread; its pipes live as long.

#define _GNU_SOURCE
#include "CPerfPeers.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/eventfd.h>

static void need(bool condition, const char *what) {
    if (condition) return;
    fprintf(stderr, "eventloop-perf: %s\n", what);
    exit(1);
}

struct perf_ring *perf_ring_make(int pipes, int active) {
    struct perf_ring *ring = calloc(1, sizeof *ring);
    ring->pipes = pipes;
    ring->active = active;
    ring->reads = calloc((size_t)pipes, sizeof(int));
    ring->writes = calloc((size_t)pipes, sizeof(int));
    for (int index = 0; index < pipes; index++) {
        int ends[2];
        need(pipe2(ends, O_NONBLOCK | O_CLOEXEC) == 0, "too few descriptors for the pipes; raise the limit (ulimit -n)");
        ring->reads[index] = ends[0];
        ring->writes[index] = ends[1];
    }
    return ring;
}

void perf_ring_kick(struct perf_ring *ring) {
    int64_t message = 0;
    for (int lane = 0; lane < ring->active; lane++) (void)!write(ring->writes[lane], &message, sizeof message);
}

void perf_ring_free(struct perf_ring *ring) {
    for (int index = 0; index < ring->pipes; index++) {
        close(ring->reads[index]);
        close(ring->writes[index]);
    }
    free(ring->reads);
    free(ring->writes);
    free(ring);
}

struct perf_countdown *perf_countdown_make(long calls) {
    struct perf_countdown *countdown = calloc(1, sizeof *countdown);
    countdown->remaining = calls;
    return countdown;
}

void perf_countdown_free(struct perf_countdown *countdown) { free(countdown); }

int perf_idle_descriptor(void) {
    int descriptor = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    need(descriptor >= 0, "too few descriptors; raise the limit (ulimit -n)");
    return descriptor;
}
