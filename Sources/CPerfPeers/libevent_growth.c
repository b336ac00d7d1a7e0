// Growth on raw libevent: what an operation costs beside N other items. See ../eventloop-perf/Workloads/Growth.

#define _GNU_SOURCE
#include "CPerfPeers.h"

#include <limits.h>
#include <semaphore.h>
#include <stdlib.h>
#include <sys/eventfd.h>

#include "libevent_base.h"

// MARK: Sources

struct station {
    struct sources *sources;
    struct event *event;
    int index;
};

struct sources {
    struct event_base *base;
    struct perf_ring *ring;
    struct station *stations;
};

static void arrived(evutil_socket_t descriptor, short what, void *argument) {
    (void)descriptor, (void)what;
    struct station *station = argument;
    if (perf_ring_step(station->sources->ring, station->index)) event_base_loopbreak(station->sources->base);
}

static void *make_sources(long size) {
    struct sources *sources = calloc(1, sizeof *sources);
    sources->base = unlocked_base();
    sources->ring = perf_ring_make_of_events((int)size);
    sources->stations = calloc((size_t)size, sizeof *sources->stations);
    for (int index = 0; index < size; index++) {
        struct station *station = &sources->stations[index];
        *station = (struct station){.sources = sources, .index = index};
        station->event = event_new(sources->base, sources->ring->reads[index], EV_READ | EV_PERSIST, arrived, station);
        event_add(station->event, NULL);
    }
    return sources;
}

static int64_t run_sources(void *rig, int cost, long ops) {
    struct sources *sources = rig;
    int64_t start = perf_wall_ns();
    if (cost == PERF_GROWTH_CHANGE) {
        long batch = perf_growth_batch(sources->ring->size);
        sources->ring->remaining = LONG_MAX;
        for (long done = 0; done < ops; done += batch) {
            for (long index = 0; index < batch; index++) event_del(sources->stations[index].event);
            event_base_loop(sources->base, ONE_PASS);
            for (long index = 0; index < batch; index++) event_add(sources->stations[index].event, NULL);
            event_base_loop(sources->base, ONE_PASS);
        }
    } else {
        perf_ring_activate(sources->ring, cost == PERF_GROWTH_IDLE ? 1 : sources->ring->size);
        sources->ring->remaining = ops;
        event_base_loop(sources->base, 0);
    }
    return perf_wall_ns() - start;
}

static void end_sources(void *rig) {
    struct sources *sources = rig;
    for (int index = 0; index < sources->ring->size; index++) event_free(sources->stations[index].event);
    event_base_free(sources->base);
    perf_ring_free(sources->ring);
    free(sources->stations);
    free(sources);
}

// MARK: Timers

struct timers;

struct timer {
    struct timers *timers;
    struct event *event;
};

struct timers {
    struct event_base *base;
    struct timer *all;
    struct event *idle;
    long count;
    uint64_t random;
    int descriptor;
};

static void never(evutil_socket_t descriptor, short what, void *argument) { (void)descriptor, (void)what, (void)argument; }

static void add_far(struct event *timer, uint64_t *random) {
    struct timeval delay = timeval_of(perf_random_delay(random));
    event_add(timer, &delay);
}

static void fired(evutil_socket_t descriptor, short what, void *argument) {
    (void)descriptor, (void)what;
    struct timer *timer = argument;
    add_far(timer->event, &timer->timers->random);
}

static void *make_timers(long size) {
    struct timers *timers = calloc(1, sizeof *timers);
    *timers = (struct timers){.base = unlocked_base(), .count = size, .random = 1, .descriptor = perf_idle_descriptor()};
    timers->idle = event_new(timers->base, timers->descriptor, EV_READ | EV_PERSIST, never, NULL);
    event_add(timers->idle, NULL);
    timers->all = calloc((size_t)size, sizeof *timers->all);
    for (long index = 0; index < size; index++) {
        timers->all[index] = (struct timer){.timers = timers};
        timers->all[index].event = evtimer_new(timers->base, fired, &timers->all[index]);
        add_far(timers->all[index].event, &timers->random);
    }
    event_base_loop(timers->base, ONE_PASS);
    return timers;
}

static int64_t rearm(struct timers *timers, long ops) {
    int64_t start = perf_wall_ns();
    for (long op = 0; op < ops; op++) {
        add_far(timers->all[perf_random(&timers->random) % (uint64_t)timers->count].event, &timers->random);
    }
    event_base_loop(timers->base, ONE_PASS);
    return perf_wall_ns() - start;
}

// Makes and adds timers, and cancels and releases them. One of the two is measured.
static int64_t come_and_go(struct timers *timers, long ops, bool counts_adding) {
    struct event *some[PERF_GROWTH_BATCH];
    long batch = perf_growth_batch(timers->count);
    int64_t adding = 0, cancelling = 0;
    for (long done = 0; done < ops; done += batch) {
        int64_t start = perf_wall_ns();
        for (long index = 0; index < batch; index++) {
            some[index] = evtimer_new(timers->base, never, NULL);
            add_far(some[index], &timers->random);
        }
        int64_t middle = perf_wall_ns();
        for (long index = 0; index < batch; index++) event_free(some[index]);
        event_base_loop(timers->base, ONE_PASS);
        adding += middle - start;
        cancelling += perf_wall_ns() - middle;
    }
    return counts_adding ? adding : cancelling;
}

// Makes some of the timers due, and measures the pass that fires them. Their callbacks put them off again.
static int64_t fire(struct timers *timers, long ops) {
    static const struct timeval none;
    long batch = perf_growth_batch(timers->count);
    int64_t firing = 0;
    for (long done = 0; done < ops; done += batch) {
        long from = (long)(perf_random(&timers->random) % (uint64_t)(timers->count - batch + 1));
        for (long index = 0; index < batch; index++) event_add(timers->all[from + index].event, &none);
        int64_t start = perf_wall_ns();
        event_base_loop(timers->base, ONE_PASS);
        firing += perf_wall_ns() - start;
    }
    return firing;
}

static int64_t run_timers(void *rig, int cost, long ops) {
    switch (cost) {
    case PERF_GROWTH_ADD: return come_and_go(rig, ops, true);
    case PERF_GROWTH_CANCEL: return come_and_go(rig, ops, false);
    case PERF_GROWTH_REARM: return rearm(rig, ops);
    case PERF_GROWTH_FIRE: return fire(rig, ops);
    default: return -1;
    }
}

static void end_timers(void *rig) {
    struct timers *timers = rig;
    for (long index = 0; index < timers->count; index++) event_free(timers->all[index].event);
    event_free(timers->idle);
    event_base_free(timers->base);
    close(timers->descriptor);
    free(timers->all);
    free(timers);
}

// MARK: Loops

struct loop {
    struct event_base *base;
    struct event *wake;
    void *thread;
    sem_t *answered;
    bool ends;
    int descriptor;
};

struct loops {
    struct loop **all;
    long count;
    uint64_t random;
    sem_t answered;
};

static void woken(evutil_socket_t descriptor, short what, void *argument) {
    (void)what;
    struct loop *loop = argument;
    uint64_t value;
    (void)!read(descriptor, &value, sizeof value);
    if (loop->ends) event_base_loopbreak(loop->base);
    sem_post(loop->answered);
}

static void live(void *argument) {
    struct loop *loop = argument;
    loop->base = unlocked_base();
    loop->wake = event_new(loop->base, loop->descriptor, EV_READ | EV_PERSIST, woken, loop);
    event_add(loop->wake, NULL);
    sem_post(loop->answered);
    event_base_loop(loop->base, 0);
    event_free(loop->wake);
    event_base_free(loop->base);
}

static struct loop *start_loop(sem_t *answered) {
    struct loop *loop = calloc(1, sizeof *loop);
    loop->answered = answered;
    loop->descriptor = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    loop->thread = perf_thread_start(live, loop);
    sem_wait(answered);
    return loop;
}

static void wake(struct loop *loop) {
    uint64_t one = 1;
    (void)!write(loop->descriptor, &one, sizeof one);
    sem_wait(loop->answered);
}

static void end_loop(struct loop *loop) {
    loop->ends = true;
    wake(loop);
    perf_thread_join(loop->thread);
    close(loop->descriptor);
    free(loop);
}

static void *make_loops(long size) {
    struct loops *loops = calloc(1, sizeof *loops);
    *loops = (struct loops){.all = calloc((size_t)size, sizeof *loops->all), .count = size, .random = 1};
    sem_init(&loops->answered, 0, 0);
    for (long index = 0; index < size; index++) loops->all[index] = start_loop(&loops->answered);
    return loops;
}

static int64_t run_loops(void *rig, int cost, long ops) {
    struct loops *loops = rig;
    int64_t start = perf_wall_ns();
    for (long op = 0; op < ops; op++) {
        if (cost == PERF_GROWTH_WAKE) {
            wake(loops->all[perf_random(&loops->random) % (uint64_t)loops->count]);
        } else {
            end_loop(start_loop(&loops->answered));
        }
    }
    return perf_wall_ns() - start;
}

static void end_loops(void *rig) {
    struct loops *loops = rig;
    for (long index = 0; index < loops->count; index++) end_loop(loops->all[index]);
    sem_destroy(&loops->answered);
    free(loops->all);
    free(loops);
}

struct perf_growth peer_libevent_growth(enum perf_growing what) {
    switch (what) {
    case PERF_GROWING_SOURCES: return (struct perf_growth){make_sources, run_sources, end_sources};
    case PERF_GROWING_TIMERS: return (struct perf_growth){make_timers, run_timers, end_timers};
    case PERF_GROWING_LOOPS: return (struct perf_growth){make_loops, run_loops, end_loops};
    default: return (struct perf_growth){0};
    }
}
