// W2 on raw libevent: closures by event_base_once, and the ping-pong by eventfd.

#define _GNU_SOURCE
#include "CPerfPeers.h"

#include <event2/thread.h>
#include <sched.h>
#include <stdlib.h>
#include <sys/eventfd.h>

#include "libevent_base.h"

// MARK: W2a

struct posting {
    struct event_base *base;
    struct perf_countdown countdown;
};

static void performed(evutil_socket_t descriptor, short what, void *argument) {
    (void)descriptor, (void)what;
    struct posting *posting = argument;
    if (perf_countdown_hit(&posting->countdown)) event_base_loopbreak(posting->base);
}

static void post(void *context, long posts) {
    struct posting *posting = context;
    for (long index = 0; index < posts; index++) event_base_once(posting->base, -1, EV_TIMEOUT, performed, posting, NULL);
}

static void never(evutil_socket_t descriptor, short what, void *argument) { (void)descriptor, (void)what, (void)argument; }

struct holding {
    struct perf_gang *gang;
    bool measures_posts;
    struct perf_sample *sample;
};

static void hold(evutil_socket_t descriptor, short what, void *argument) {
    (void)descriptor, (void)what;
    struct holding *holding = argument;
    struct perf_sample unused = {.is_ignored = true};
    struct perf_sample *sample = holding->measures_posts ? holding->sample : &unused;
    perf_begin(sample);
    perf_gang_open(holding->gang);
    perf_gang_join(holding->gang);
    perf_end(sample);
    if (!holding->measures_posts) perf_begin(holding->sample);
}

static void run_base(void *argument) { event_base_loop(((struct posting *)argument)->base, EVLOOP_NO_EXIT_ON_EMPTY); }

static void post_to_sleeper(struct posting *posting, long ops, struct perf_sample *sample) {
    void *thread = perf_thread_start(run_base, posting);
    for (long index = 0; index < ops; index++) {
        perf_let_it_sleep();
        perf_begin(sample);
        post(posting, 1);
        perf_end(sample);
        while (perf_countdown_left(&posting->countdown) >= ops - index) sched_yield();
    }
    perf_thread_join(thread);
}

void peer_libevent_post(int producers, enum perf_posting how, long ops, struct perf_sample *sample) {
    evthread_use_pthreads();
    struct posting posting = {.base = event_base_new(), .countdown.remaining = ops};
    evthread_make_base_notifiable(posting.base);
    int descriptor = perf_idle_descriptor();
    struct event *idle = event_new(posting.base, descriptor, EV_READ | EV_PERSIST, never, NULL);
    event_add(idle, NULL);
    if (how == PERF_POST_SLEEPING) {
        post_to_sleeper(&posting, ops, sample);
    } else {
        struct perf_gang *gang = perf_gang_start(producers, ops / producers, post, &posting);
        if (how == PERF_POST_FREE) {
            perf_begin(sample);
            perf_gang_open(gang);
            event_base_loop(posting.base, 0);
            perf_end(sample);
            perf_gang_join(gang);
        } else {
            struct holding holding = {.gang = gang, .measures_posts = how == PERF_POST_HELD, .sample = sample};
            event_base_once(posting.base, -1, EV_TIMEOUT, hold, &holding, NULL);
            event_base_loop(posting.base, 0);
            if (how == PERF_DRAIN_HELD) perf_end(sample);
        }
    }
    event_free(idle);
    event_base_free(posting.base);
    close(descriptor);
}

// MARK: W2b

struct player {
    struct event_base *base;
    struct event *event;
    int own, other;
    int processor;
    long remaining;  // of the player who counts; the other plays until it is stopped
    bool counts;
};

static void hit_back(evutil_socket_t descriptor, short what, void *argument) {
    (void)what;
    struct player *player = argument;
    uint64_t value;
    (void)!read(descriptor, &value, sizeof value);
    bool ends = player->counts ? --player->remaining <= 0 : value > 1;
    if (ends) {
        event_base_loopbreak(player->base);
        return;
    }
    value = 1;
    (void)!write(player->other, &value, sizeof value);
}

static void prepare(struct player *player) {
    player->base = unlocked_base();
    player->event = event_new(player->base, player->own, EV_READ | EV_PERSIST, hit_back, player);
    event_add(player->event, NULL);
}

static void release(struct player *player) {
    event_free(player->event);
    event_base_free(player->base);
}

static void play(void *argument) {
    struct player *player = argument;
    if (player->processor >= 0) perf_pin_this_thread(player->processor);
    prepare(player);
    event_base_loop(player->base, 0);
    release(player);
}

// Both threads on `processor`, or anywhere if that is negative. One operation is a round trip.
void peer_libevent_ping_pong(int processor, long warmup, long ops, struct perf_sample *sample) {
    int first = perf_idle_descriptor(), second = perf_idle_descriptor();
    struct player here = {.own = first, .other = second, .processor = processor, .counts = true};
    struct player there = {.own = second, .other = first, .processor = processor};
    if (processor >= 0) perf_pin_this_thread(processor);
    prepare(&here);
    void *thread = perf_thread_start(play, &there);
    uint64_t one = 1, end = 2;
    here.remaining = warmup;
    (void)!write(second, &one, sizeof one);
    event_base_loop(here.base, 0);
    here.remaining = ops;
    perf_begin(sample);
    (void)!write(second, &one, sizeof one);
    event_base_loop(here.base, 0);
    perf_end(sample);
    (void)!write(second, &end, sizeof end);
    perf_thread_join(thread);
    release(&here);
    close(first);
    close(second);
}
