// W4 and W6 on raw libevent, and the function pointers of W5.

#define _GNU_SOURCE
#include "CPerfPeers.h"

#include <stdlib.h>

#include "libevent_base.h"

static void hit(evutil_socket_t descriptor, short what, void *argument) {
    (void)descriptor, (void)what;
    perf_countdown_hit(argument);
}

// `waits_only`: nothing is active, so a pass is an empty wait.
void peer_libevent_pass(bool waits_only, long warmup, long ops, struct perf_sample *sample) {
    struct event_base *base = unlocked_base();
    struct perf_countdown countdown = {0};
    // Every real loop has something registered; otherwise libevent would not even poll.
    int descriptor = perf_idle_descriptor();
    struct event *idle = event_new(base, descriptor, EV_READ | EV_PERSIST, hit, &countdown);
    event_add(idle, NULL);
    struct event *custom = event_new(base, -1, 0, hit, &countdown);
    for (long index = 0; index < warmup; index++) event_base_loop(base, ONE_PASS);
    perf_begin(sample);
    if (waits_only) {
        for (long index = 0; index < ops; index++) event_base_loop(base, ONE_PASS);
    } else {
        for (long index = 0; index < ops; index++) {
            event_active(custom, EV_READ, 1);
            event_base_loop(base, ONE_PASS);
        }
    }
    perf_end(sample);
    event_free(custom);
    event_free(idle);
    event_base_free(base);
    close(descriptor);
}

struct nesting {
    struct event_base *inner;
    long warmup, ops;
    struct perf_sample *sample;
};

static void nest(evutil_socket_t descriptor, short what, void *argument) {
    (void)descriptor, (void)what;
    struct nesting *nesting = argument;
    for (long index = 0; index < nesting->warmup; index++) event_base_loop(nesting->inner, ONE_PASS);
    perf_begin(nesting->sample);
    for (long index = 0; index < nesting->ops; index++) event_base_loop(nesting->inner, ONE_PASS);
    perf_end(nesting->sample);
}

// A base cannot be entered again, so a mode is a second base with the same descriptors.
void peer_libevent_nested(long idle, long warmup, long ops, struct perf_sample *sample) {
    struct event_base *outer = unlocked_base(), *inner = unlocked_base();
    struct perf_countdown countdown = {0};
    struct event **events = calloc((size_t)idle * 2, sizeof *events);
    int *descriptors = calloc((size_t)idle, sizeof *descriptors);
    for (long index = 0; index < idle; index++) {
        descriptors[index] = perf_idle_descriptor();
        events[2 * index] = event_new(outer, descriptors[index], EV_READ | EV_PERSIST, hit, &countdown);
        events[2 * index + 1] = event_new(inner, descriptors[index], EV_READ | EV_PERSIST, hit, &countdown);
        event_add(events[2 * index], NULL);
        event_add(events[2 * index + 1], NULL);
    }
    struct nesting nesting = {.inner = inner, .warmup = warmup, .ops = ops, .sample = sample};
    struct event *custom = event_new(outer, -1, 0, nest, &nesting);
    event_active(custom, EV_READ, 1);
    event_base_loop(outer, ONE_PASS);
    event_free(custom);
    for (long index = 0; index < 2 * idle; index++) event_free(events[index]);
    for (long index = 0; index < idle; index++) close(descriptors[index]);
    free(events);
    free(descriptors);
    event_base_free(inner);
    event_base_free(outer);
}

typedef void (*hook)(void *);
static void hooked(void *argument) { ((struct perf_countdown *)argument)->remaining--; }

void peer_function_pointers(int hooks, long ops, struct perf_sample *sample) {
    struct perf_countdown countdown = {0};
    // Volatile, because otherwise the compiler would optimise the table away.
    volatile hook *table = calloc((size_t)hooks, sizeof *table);
    for (int index = 0; index < hooks; index++) table[index] = hooked;
    perf_begin(sample);
    for (long op = 0; op < ops; op++)
        for (int index = 0; index < hooks; index++) table[index](&countdown);
    perf_end(sample);
    free((void *)table);
}
