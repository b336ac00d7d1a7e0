// Growth on libuv: what an operation costs beside N other items. See ../../../Sources/eventloop-perf/Workloads/Growth.

#include "CLibuvPeer.h"

#include <limits.h>
#include <stdlib.h>
#include <uv.h>

static void close_handle(uv_handle_t *handle, void *unused) {
    (void)unused;
    if (!uv_is_closing(handle)) uv_close(handle, NULL);
}

static void close_loop(uv_loop_t *loop) {
    uv_walk(loop, close_handle, NULL);
    uv_run(loop, UV_RUN_DEFAULT);
    uv_loop_close(loop);
}

// MARK: Sources

struct station {
    uv_poll_t poll;
    struct perf_ring *ring;
    int index;
};

struct sources {
    uv_loop_t loop;
    struct perf_ring *ring;
    struct station *stations;
};

static void arrived(uv_poll_t *poll, int status, int events) {
    (void)status, (void)events;
    struct station *station = poll->data;
    if (perf_ring_step(station->ring, station->index)) uv_stop(poll->loop);
}

static void *make_sources(long size) {
    struct sources *sources = calloc(1, sizeof *sources);
    uv_loop_init(&sources->loop);
    sources->ring = perf_ring_make_of_events((int)size);
    sources->stations = calloc((size_t)size, sizeof *sources->stations);
    for (int index = 0; index < size; index++) {
        struct station *station = &sources->stations[index];
        station->ring = sources->ring;
        station->index = index;
        uv_poll_init(&sources->loop, &station->poll, sources->ring->reads[index]);
        station->poll.data = station;
        uv_poll_start(&station->poll, UV_READABLE, arrived);
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
            for (long index = 0; index < batch; index++) uv_poll_stop(&sources->stations[index].poll);
            uv_run(&sources->loop, UV_RUN_NOWAIT);
            for (long index = 0; index < batch; index++) uv_poll_start(&sources->stations[index].poll, UV_READABLE, arrived);
            uv_run(&sources->loop, UV_RUN_NOWAIT);
        }
    } else {
        perf_ring_activate(sources->ring, cost == PERF_GROWTH_IDLE ? 1 : sources->ring->size);
        sources->ring->remaining = ops;
        uv_run(&sources->loop, UV_RUN_DEFAULT);
    }
    return perf_wall_ns() - start;
}

static void end_sources(void *rig) {
    struct sources *sources = rig;
    close_loop(&sources->loop);
    perf_ring_free(sources->ring);
    free(sources->stations);
    free(sources);
}

// MARK: Timers

struct timers {
    uv_loop_t loop;
    uv_timer_t *all;
    long count;
    uint64_t random;
};

// libuv counts in milliseconds.
static uint64_t far(uint64_t *random) { return (uint64_t)perf_random_delay(random) / 1000000; }

static void fired(uv_timer_t *timer) {
    struct timers *timers = timer->data;
    uv_timer_start(timer, fired, far(&timers->random), 0);
}

static void *make_timers(long size) {
    struct timers *timers = calloc(1, sizeof *timers);
    timers->count = size;
    timers->random = 1;
    uv_loop_init(&timers->loop);
    timers->all = calloc((size_t)size, sizeof *timers->all);
    for (long index = 0; index < size; index++) {
        uv_timer_init(&timers->loop, &timers->all[index]);
        timers->all[index].data = timers;
        uv_timer_start(&timers->all[index], fired, far(&timers->random), 0);
    }
    uv_run(&timers->loop, UV_RUN_NOWAIT);
    return timers;
}

static void free_timer(uv_handle_t *handle) { free(handle); }

static int64_t come_and_go(struct timers *timers, long ops, bool counts_adding) {
    uv_timer_t *some[PERF_GROWTH_BATCH];
    long batch = perf_growth_batch(timers->count);
    int64_t adding = 0, cancelling = 0;
    for (long done = 0; done < ops; done += batch) {
        int64_t start = perf_wall_ns();
        for (long index = 0; index < batch; index++) {
            some[index] = malloc(sizeof *some[index]);
            uv_timer_init(&timers->loop, some[index]);
            uv_timer_start(some[index], fired, far(&timers->random), 0);
        }
        int64_t middle = perf_wall_ns();
        for (long index = 0; index < batch; index++) uv_close((uv_handle_t *)some[index], free_timer);
        uv_run(&timers->loop, UV_RUN_NOWAIT);
        adding += middle - start;
        cancelling += perf_wall_ns() - middle;
    }
    return counts_adding ? adding : cancelling;
}

static int64_t run_timers(void *rig, int cost, long ops) {
    struct timers *timers = rig;
    long batch = perf_growth_batch(timers->count);
    int64_t firing = 0, start = perf_wall_ns();
    switch (cost) {
    case PERF_GROWTH_ADD: return come_and_go(timers, ops, true);
    case PERF_GROWTH_CANCEL: return come_and_go(timers, ops, false);
    case PERF_GROWTH_REARM:
        for (long op = 0; op < ops; op++) {
            uv_timer_start(&timers->all[perf_random(&timers->random) % (uint64_t)timers->count], fired, far(&timers->random), 0);
        }
        uv_run(&timers->loop, UV_RUN_NOWAIT);
        return perf_wall_ns() - start;
    case PERF_GROWTH_FIRE:
        for (long done = 0; done < ops; done += batch) {
            long from = (long)(perf_random(&timers->random) % (uint64_t)(timers->count - batch + 1));
            for (long index = 0; index < batch; index++) uv_timer_start(&timers->all[from + index], fired, 0, 0);
            start = perf_wall_ns();
            uv_run(&timers->loop, UV_RUN_NOWAIT);
            firing += perf_wall_ns() - start;
        }
        return firing;
    default: return -1;
    }
}

static void end_timers(void *rig) {
    struct timers *timers = rig;
    close_loop(&timers->loop);
    free(timers->all);
    free(timers);
}

// MARK: Hooks

struct hooks {
    uv_loop_t loop;
    uv_poll_t poll;
    uv_idle_t idle;
    uv_prepare_t *all;
    struct perf_countdown countdown;
    long count;
    int descriptor;
};

static void never(uv_poll_t *poll, int status, int events) { (void)poll, (void)status, (void)events; }
static void idled(uv_idle_t *idle) { perf_countdown_hit(idle->data); }
static void prepared(uv_prepare_t *prepare) { perf_countdown_hit(prepare->data); }

// An idle handle makes a pass that does not wait.
static void *make_hooks(long size) {
    struct hooks *hooks = calloc(1, sizeof *hooks);
    hooks->count = size;
    hooks->countdown.remaining = LONG_MAX;
    hooks->descriptor = perf_idle_descriptor();
    uv_loop_init(&hooks->loop);
    uv_poll_init(&hooks->loop, &hooks->poll, hooks->descriptor);
    uv_poll_start(&hooks->poll, UV_READABLE, never);
    uv_idle_init(&hooks->loop, &hooks->idle);
    hooks->idle.data = &hooks->countdown;
    uv_idle_start(&hooks->idle, idled);
    hooks->all = calloc((size_t)size, sizeof *hooks->all);
    for (long index = 0; index < size; index++) {
        uv_prepare_init(&hooks->loop, &hooks->all[index]);
        hooks->all[index].data = &hooks->countdown;
        uv_prepare_start(&hooks->all[index], prepared);
    }
    return hooks;
}

static int64_t run_hooks(void *rig, int cost, long ops) {
    (void)cost;
    struct hooks *hooks = rig;
    int64_t start = perf_wall_ns();
    for (long done = 0; done < ops; done += hooks->count) uv_run(&hooks->loop, UV_RUN_NOWAIT);
    return perf_wall_ns() - start;
}

static void end_hooks(void *rig) {
    struct hooks *hooks = rig;
    close_loop(&hooks->loop);
    close(hooks->descriptor);
    free(hooks->all);
    free(hooks);
}

// MARK: Loops

struct loop {
    uv_loop_t loop;
    uv_async_t wake;
    uv_sem_t *answered;
    void *thread;
    bool ends;
};

struct loops {
    struct loop **all;
    long count;
    uint64_t random;
    uv_sem_t answered;
};

static void woken(uv_async_t *wake) {
    struct loop *loop = wake->data;
    if (loop->ends) uv_stop(&loop->loop);
    uv_sem_post(loop->answered);
}

static void live(void *argument) {
    struct loop *loop = argument;
    uv_loop_init(&loop->loop);
    uv_async_init(&loop->loop, &loop->wake, woken);
    loop->wake.data = loop;
    uv_sem_post(loop->answered);
    uv_run(&loop->loop, UV_RUN_DEFAULT);
    close_loop(&loop->loop);
}

static struct loop *start_loop(uv_sem_t *answered) {
    struct loop *loop = calloc(1, sizeof *loop);
    loop->answered = answered;
    loop->thread = perf_thread_start(live, loop);
    uv_sem_wait(answered);
    return loop;
}

static void wake(struct loop *loop) {
    uv_async_send(&loop->wake);
    uv_sem_wait(loop->answered);
}

static void end_loop(struct loop *loop) {
    loop->ends = true;
    wake(loop);
    perf_thread_join(loop->thread);
    free(loop);
}

static void *make_loops(long size) {
    struct loops *loops = calloc(1, sizeof *loops);
    loops->all = calloc((size_t)size, sizeof *loops->all);
    loops->count = size;
    loops->random = 1;
    uv_sem_init(&loops->answered, 0);
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
    uv_sem_destroy(&loops->answered);
    free(loops->all);
    free(loops);
}

struct perf_growth peer_libuv_growth(enum perf_growing what) {
    switch (what) {
    case PERF_GROWING_SOURCES: return (struct perf_growth){make_sources, run_sources, end_sources};
    case PERF_GROWING_TIMERS: return (struct perf_growth){make_timers, run_timers, end_timers};
    case PERF_GROWING_LOOPS: return (struct perf_growth){make_loops, run_loops, end_loops};
    case PERF_GROWING_HOOKS: return (struct perf_growth){make_hooks, run_hooks, end_hooks};
    }
    return (struct perf_growth){0};
}
