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
    ring->pipes = ring->size = pipes;
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

struct perf_ring *perf_ring_make_of_events(int size) {
    struct perf_ring *ring = calloc(1, sizeof *ring);
    ring->size = size;
    ring->reads = calloc((size_t)size, sizeof(int));
    ring->writes = ring->reads;
    for (int index = 0; index < size; index++) ring->reads[index] = perf_idle_descriptor();
    return ring;
}

void perf_ring_activate(struct perf_ring *ring, int active) {
    int64_t message = 1;
    for (int index = ring->active; index < active; index++) (void)!write(ring->writes[index], &message, sizeof message);
    ring->pipes = ring->active = active;
}

void perf_ring_kick(struct perf_ring *ring) {
    int64_t message = 1;
    for (int lane = 0; lane < ring->active; lane++) (void)!write(ring->writes[lane], &message, sizeof message);
}

void perf_ring_free(struct perf_ring *ring) {
    bool is_of_pipes = ring->writes != ring->reads;
    for (int index = 0; index < ring->size; index++) {
        close(ring->reads[index]);
        if (is_of_pipes) close(ring->writes[index]);
    }
    free(ring->reads);
    if (is_of_pipes) free(ring->writes);
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
