// W3 on raw libevent, and the timerfd floor of W3d.

#define _GNU_SOURCE
#include "CPerfPeers.h"

#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/timerfd.h>

#include "libevent_base.h"

static void fired(evutil_socket_t descriptor, short what, void *argument) {
    (void)descriptor, (void)what;
    perf_countdown_hit(argument);
}

static void add_far(struct event *timer, uint64_t *random) {
    struct timeval delay = timeval_of(perf_random_delay(random));
    event_add(timer, &delay);
}

struct bench {
    struct event_base *base;
    struct event **timers;
    long count, ops;
    uint64_t random;
    struct perf_sample *sample;
    struct perf_countdown countdown;
};

static struct event *any_timer(struct bench *bench) {
    return bench->timers[perf_random(&bench->random) % (uint64_t)bench->count];
}

static void rearm(struct bench *bench) {
    perf_begin(bench->sample);
    for (long op = 0; op < bench->ops; op++) add_far(any_timer(bench), &bench->random);
    event_base_loop(bench->base, ONE_PASS);
    perf_end(bench->sample);
}

// Cancels half of the timers, one after the other from a random place on; then adds them again, unmeasured.
static void cancel(struct bench *bench) {
    long batch = bench->count / 2 < 5000 ? bench->count / 2 : 5000;
    for (long done = 0; done < bench->ops; done += batch) {
        long from = (long)(perf_random(&bench->random) % (uint64_t)(bench->count - batch));
        perf_begin(bench->sample);
        for (long index = 0; index < batch; index++) event_del(bench->timers[from + index]);
        event_base_loop(bench->base, ONE_PASS);
        perf_end(bench->sample);
        for (long index = 0; index < batch; index++) add_far(bench->timers[from + index], &bench->random);
        event_base_loop(bench->base, ONE_PASS);
    }
}

static void make(struct bench *bench, enum perf_timing what) {
    enum { BATCH = 500 };
    struct event *batch[BATCH];
    struct perf_sample unused = {.is_ignored = true};
    struct perf_sample *adding = what == PERF_RELEASE ? &unused : bench->sample;
    struct perf_sample *releasing = what == PERF_MAKE_ADD ? &unused : bench->sample;
    for (long done = 0; done < bench->ops; done += BATCH) {
        perf_begin(adding);
        for (int index = 0; index < BATCH; index++) {
            batch[index] = evtimer_new(bench->base, fired, &bench->countdown);
            add_far(batch[index], &bench->random);
        }
        perf_end(adding);
        perf_begin(releasing);
        for (int index = 0; index < BATCH; index++) event_free(batch[index]);
        event_base_loop(bench->base, ONE_PASS);
        perf_end(releasing);
    }
}

// 500 timers, each with a delay of its own, are added and removed in turn.
static void add_remove(struct bench *bench) {
    enum { BATCH = 500 };
    struct event *batch[BATCH];
    struct timeval delays[BATCH];
    for (int index = 0; index < BATCH; index++) {
        batch[index] = evtimer_new(bench->base, fired, &bench->countdown);
        delays[index] = timeval_of(perf_random_delay(&bench->random));
    }
    perf_begin(bench->sample);
    for (long op = 0, index = 0; op < bench->ops; op++, index = index + 1 == BATCH ? 0 : index + 1) {
        event_add(batch[index], &delays[index]);
        event_del(batch[index]);
    }
    event_base_loop(bench->base, ONE_PASS);
    perf_end(bench->sample);
    for (int index = 0; index < BATCH; index++) event_free(batch[index]);
}

// One timer moves later by a microsecond at a time, and never fires.
static void push(struct bench *bench) {
    int64_t delay = 1000000000000;
    perf_begin(bench->sample);
    for (long op = 0; op < bench->ops; op++) {
        delay += 1000;
        struct timeval later = timeval_of(delay);
        event_add(bench->timers[0], &later);
    }
    event_base_loop(bench->base, ONE_PASS);
    perf_end(bench->sample);
}

void peer_libevent_timers(enum perf_timing what, long timers, long ops, struct perf_sample *sample) {
    struct bench bench = {.base = unlocked_base(), .count = timers, .ops = ops, .random = 1, .sample = sample};
    int descriptor = perf_idle_descriptor();
    struct event *idle = event_new(bench.base, descriptor, EV_READ | EV_PERSIST, fired, &bench.countdown);
    event_add(idle, NULL);
    bench.timers = calloc((size_t)timers, sizeof *bench.timers);
    for (long index = 0; index < timers; index++) {
        bench.timers[index] = evtimer_new(bench.base, fired, &bench.countdown);
        add_far(bench.timers[index], &bench.random);
    }
    event_base_loop(bench.base, ONE_PASS);
    switch (what) {
    case PERF_REARM: rearm(&bench); break;
    case PERF_CANCEL: cancel(&bench); break;
    case PERF_MAKE: case PERF_MAKE_ADD: case PERF_RELEASE: make(&bench, what); break;
    case PERF_ADD_REMOVE: add_remove(&bench); break;
    case PERF_PUSH: push(&bench); break;
    }
    for (long index = 0; index < timers; index++) event_free(bench.timers[index]);
    free(bench.timers);
    event_free(idle);
    event_base_free(bench.base);
    close(descriptor);
}

// MARK: W3a, in the order of the dates

// Each round adds all timers, gives each a later date, and cancels each, in the order of their dates, ten microseconds apart.
void peer_libevent_ordered_timers(enum perf_ordered what, long timers, long rounds, struct perf_sample *sample) {
    struct event_base *base = unlocked_base();
    struct perf_countdown countdown = {0};
    struct perf_sample unused = {.is_ignored = true};
    int descriptor = perf_idle_descriptor();
    struct event *idle = event_new(base, descriptor, EV_READ | EV_PERSIST, fired, &countdown);
    event_add(idle, NULL);
    struct event **all = calloc((size_t)timers, sizeof *all);
    for (long index = 0; index < timers; index++) all[index] = evtimer_new(base, fired, &countdown);
    for (long round = 0; round < rounds; round++) {
        for (enum perf_ordered change = PERF_ORDERED_ADD; change <= PERF_ORDERED_CANCEL; change++) {
            struct perf_sample *used = change == what ? sample : &unused;
            int64_t delay = (change == PERF_ORDERED_ADD ? 1000 : 2000) * INT64_C(1000000000);
            perf_begin(used);
            for (long index = 0; index < timers; index++, delay += 10000) {
                struct timeval later = timeval_of(delay);
                if (change == PERF_ORDERED_CANCEL) event_del(all[index]); else event_add(all[index], &later);
            }
            event_base_loop(base, ONE_PASS);
            perf_end(used);
        }
    }
    for (long index = 0; index < timers; index++) event_free(all[index]);
    free(all);
    event_free(idle);
    event_base_free(base);
    close(descriptor);
}

// MARK: W3b

struct firing {
    struct event_base *base;
    long remaining;
};

static void fired_once(evutil_socket_t descriptor, short what, void *argument) {
    (void)descriptor, (void)what;
    struct firing *firing = argument;
    if (--firing->remaining == 0) event_base_loopbreak(firing->base);
}

void peer_libevent_fires(long timers, int64_t span_ns, struct perf_sample *sample) {
    struct firing firing = {.base = unlocked_base(), .remaining = timers};
    struct event **events = calloc((size_t)timers, sizeof *events);
    uint64_t random = 1;
    for (long index = 0; index < timers; index++) {
        events[index] = evtimer_new(firing.base, fired_once, &firing);
        struct timeval delay = timeval_of(1000000 + (int64_t)(perf_random(&random) % (uint64_t)span_ns));
        event_add(events[index], &delay);
    }
    perf_begin(sample);
    event_base_loop(firing.base, 0);
    perf_end(sample);
    for (long index = 0; index < timers; index++) event_free(events[index]);
    free(events);
    event_base_free(firing.base);
}

// MARK: W3b, all due

struct due {
    struct firing *firing;
    struct event *event;
};

// Without a delay, so it is due in the next round, after all others.
static void fired_due(evutil_socket_t descriptor, short what, void *argument) {
    (void)descriptor, (void)what;
    struct due *due = argument;
    static const struct timeval none;
    event_add(due->event, &none);
    if (--due->firing->remaining == 0) event_base_loopbreak(due->firing->base);
}

void peer_libevent_due(long timers, long warmup, long ops, struct perf_sample *sample) {
    struct firing firing = {.base = unlocked_base(), .remaining = warmup};
    struct due *all = calloc((size_t)timers, sizeof *all);
    for (long index = 0; index < timers; index++) {
        all[index] = (struct due){.firing = &firing};
        all[index].event = evtimer_new(firing.base, fired_due, &all[index]);
        static const struct timeval none;
        event_add(all[index].event, &none);
    }
    event_base_loop(firing.base, 0);
    firing.remaining = ops;
    perf_begin(sample);
    event_base_loop(firing.base, 0);
    perf_end(sample);
    for (long index = 0; index < timers; index++) event_free(all[index].event);
    free(all);
    event_base_free(firing.base);
}

// MARK: W3d

void peer_timerfd_lateness(long count, int64_t *lateness) {
    int timer = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC), poller = epoll_create1(EPOLL_CLOEXEC);
    struct epoll_event interest = {.events = EPOLLIN};
    epoll_ctl(poller, EPOLL_CTL_ADD, timer, &interest);
    uint64_t random = 1;
    for (long index = 0; index < count; index++) {
        int64_t due = perf_wall_ns() + perf_short_delay(&random);
        struct itimerspec setting = {.it_value = {.tv_sec = due / 1000000000, .tv_nsec = due % 1000000000}};
        timerfd_settime(timer, TFD_TIMER_ABSTIME, &setting, NULL);
        struct epoll_event event;
        while (epoll_wait(poller, &event, 1, -1) != 1) {}
        uint64_t expirations;
        (void)!read(timer, &expirations, sizeof expirations);
        lateness[index] = perf_wall_ns() - due;
    }
    close(poller);
    close(timer);
}
