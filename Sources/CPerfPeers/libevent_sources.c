// W15 on raw libevent: an event that exists leaves its base and joins it again; an event is made, added, deleted and freed.

#define _GNU_SOURCE
#include "CPerfPeers.h"

#include <stdlib.h>
#include <unistd.h>

#include "libevent_base.h"

static void never(evutil_socket_t descriptor, short what, void *argument) { (void)descriptor, (void)what, (void)argument; }

void peer_libevent_add_remove(int others, long ops, struct perf_sample *sample) {
    struct event_base *base = unlocked_base();
    int count = others + 1;
    struct event **events = calloc((size_t)count, sizeof *events);
    int *descriptors = calloc((size_t)count, sizeof *descriptors);
    for (int index = 0; index < count; index++) {
        descriptors[index] = perf_idle_descriptor();
        events[index] = event_new(base, descriptors[index], EV_READ | EV_PERSIST, never, NULL);
        event_add(events[index], NULL);
    }
    event_base_loop(base, ONE_PASS);
    struct event *event = events[others / 2];
    perf_begin(sample);
    for (long op = 0; op < ops; op++) {
        event_del(event);
        event_add(event, NULL);
    }
    event_base_loop(base, ONE_PASS);
    perf_end(sample);
    for (int index = 0; index < count; index++) {
        event_free(events[index]);
        close(descriptors[index]);
    }
    free(events);
    free(descriptors);
    event_base_free(base);
}

void peer_libevent_make_source(int batch, long ops, struct perf_sample *sample) {
    struct event_base *base = unlocked_base();
    struct event **events = calloc((size_t)batch, sizeof *events);
    int *descriptors = calloc((size_t)batch, sizeof *descriptors);
    for (int index = 0; index < batch; index++) descriptors[index] = perf_idle_descriptor();
    perf_begin(sample);
    for (long op = 0; op < ops; op += batch) {
        for (int index = 0; index < batch; index++) {
            events[index] = event_new(base, descriptors[index], EV_READ | EV_PERSIST, never, NULL);
            event_add(events[index], NULL);
        }
        for (int index = 0; index < batch; index++) {
            event_del(events[index]);
            event_free(events[index]);
        }
        event_base_loop(base, ONE_PASS);
    }
    perf_end(sample);
    for (int index = 0; index < batch; index++) close(descriptors[index]);
    free(events);
    free(descriptors);
    event_base_free(base);
}
