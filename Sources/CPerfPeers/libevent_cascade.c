// W1 on raw libevent.

#define _GNU_SOURCE
#include "CPerfPeers.h"

#include <stdlib.h>

#include "libevent_base.h"

struct cascade {
    struct event_base *base;
    struct perf_ring *ring;
};

struct station {
    struct cascade *cascade;
    int index;
    struct event *event;
};

static void arrived(evutil_socket_t descriptor, short what, void *argument) {
    (void)descriptor, (void)what;
    struct station *station = argument;
    if (perf_ring_step(station->cascade->ring, station->index)) event_base_loopbreak(station->cascade->base);
}

void peer_libevent_cascade(int pipes, int active, long warmup, long ops, struct perf_sample *sample) {
    struct cascade cascade = {.base = unlocked_base(), .ring = perf_ring_make(pipes, active)};
    struct station *stations = calloc((size_t)pipes, sizeof *stations);
    for (int index = 0; index < pipes; index++) {
        stations[index] = (struct station){.cascade = &cascade, .index = index};
        stations[index].event =
            event_new(cascade.base, cascade.ring->reads[index], EV_READ | EV_PERSIST, arrived, &stations[index]);
        event_add(stations[index].event, NULL);
    }
    perf_ring_kick(cascade.ring);
    cascade.ring->remaining = warmup;
    event_base_loop(cascade.base, 0);
    cascade.ring->remaining = ops;
    perf_begin(sample);
    event_base_loop(cascade.base, 0);
    perf_end(sample);
    for (int index = 0; index < pipes; index++) event_free(stations[index].event);
    free(stations);
    event_base_free(cascade.base);
    perf_ring_free(cascade.ring);
}
