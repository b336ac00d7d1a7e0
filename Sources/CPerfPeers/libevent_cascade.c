// W1 on raw libevent.

#define _GNU_SOURCE
#include "CPerfPeers.h"

#include <stdbool.h>
#include <stdlib.h>

#include "libevent_base.h"

struct cascade {
    struct event_base *base;
    struct perf_ring *ring;
    // The events of the last wait, if handlers are called after it.
    struct station *first, **end;
};

struct station {
    struct cascade *cascade;
    int index;
    struct event *event;
    struct station *next;
};

static void arrived(evutil_socket_t descriptor, short what, void *argument) {
    (void)descriptor, (void)what;
    struct station *station = argument;
    if (perf_ring_step(station->cascade->ring, station->index)) event_base_loopbreak(station->cascade->base);
}

static void collected(evutil_socket_t descriptor, short what, void *argument) {
    (void)descriptor, (void)what;
    struct station *station = argument;
    station->next = NULL;
    *station->cascade->end = station;
    station->cascade->end = &station->next;
}

static void run_at_once(struct cascade *cascade) { event_base_loop(cascade->base, 0); }

// The least work of a loop with steps between its waits: one wait at a time, and handlers that are called after it, where they may run the
// loop again.
static void run_in_passes(struct cascade *cascade) {
    for (bool is_over = false; !is_over;) {
        cascade->first = NULL;
        cascade->end = &cascade->first;
        event_base_loop(cascade->base, EVLOOP_ONCE);
        for (struct station *station = cascade->first; station; station = station->next) {
            if (perf_ring_step(cascade->ring, station->index)) is_over = true;
        }
    }
}

static void go_round(
    int pipes, int active, long warmup, long ops, event_callback_fn callback, void (*run)(struct cascade *), struct perf_sample *sample
) {
    struct cascade cascade = {.base = unlocked_base(), .ring = perf_ring_make(pipes, active)};
    struct station *stations = calloc((size_t)pipes, sizeof *stations);
    for (int index = 0; index < pipes; index++) {
        stations[index] = (struct station){.cascade = &cascade, .index = index};
        stations[index].event =
            event_new(cascade.base, cascade.ring->reads[index], EV_READ | EV_PERSIST, callback, &stations[index]);
        event_add(stations[index].event, NULL);
    }
    perf_ring_kick(cascade.ring);
    cascade.ring->remaining = warmup;
    run(&cascade);
    cascade.ring->remaining = ops;
    perf_begin(sample);
    run(&cascade);
    perf_end(sample);
    for (int index = 0; index < pipes; index++) event_free(stations[index].event);
    free(stations);
    event_base_free(cascade.base);
    perf_ring_free(cascade.ring);
}

void peer_libevent_cascade(int pipes, int active, long warmup, long ops, struct perf_sample *sample) {
    go_round(pipes, active, warmup, ops, arrived, run_at_once, sample);
}

void peer_libevent_cascade_in_passes(int pipes, int active, long warmup, long ops, struct perf_sample *sample) {
    go_round(pipes, active, warmup, ops, collected, run_in_passes, sample);
}
