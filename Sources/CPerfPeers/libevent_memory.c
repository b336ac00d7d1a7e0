// W8 on raw libevent: the heap memory of a descriptor event and of a timer.

#define _GNU_SOURCE
#include "CPerfPeers.h"

#include <stdlib.h>

#include "libevent_base.h"

static void never(evutil_socket_t descriptor, short what, void *argument) { (void)descriptor, (void)what, (void)argument; }

void peer_libevent_hold_descriptors(long count, struct perf_sample *sample) {
    struct event_base *base = unlocked_base();
    struct event **events = calloc((size_t)count, sizeof *events);
    int *descriptors = calloc((size_t)count, sizeof *descriptors);
    for (long index = 0; index < count; index++) descriptors[index] = perf_idle_descriptor();
    perf_begin(sample);
    for (long index = 0; index < count; index++) {
        events[index] = event_new(base, descriptors[index], EV_READ | EV_PERSIST, never, NULL);
        event_add(events[index], NULL);
    }
    event_base_loop(base, ONE_PASS);
    perf_end(sample);
    for (long index = 0; index < count; index++) {
        event_free(events[index]);
        close(descriptors[index]);
    }
    free(events);
    free(descriptors);
    event_base_free(base);
}

void peer_libevent_hold_timers(long count, struct perf_sample *sample) {
    struct event_base *base = unlocked_base();
    struct event **events = calloc((size_t)count, sizeof *events);
    uint64_t random = 1;
    perf_begin(sample);
    for (long index = 0; index < count; index++) {
        events[index] = evtimer_new(base, never, NULL);
        struct timeval delay = timeval_of(perf_random_delay(&random));
        event_add(events[index], &delay);
    }
    event_base_loop(base, ONE_PASS);
    perf_end(sample);
    for (long index = 0; index < count; index++) event_free(events[index]);
    free(events);
    event_base_free(base);
}
