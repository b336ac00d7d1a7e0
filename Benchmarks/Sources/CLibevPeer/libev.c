// Lifecycle of a loop here: the measuring function makes, runs and destroys it, on its thread. Watchers are plain memory, freed when they
// are stopped or their loop is destroyed.

#include "CLibevPeer.h"

#include <ev.h>
#include <stdlib.h>

// MARK: W1

struct station {
    ev_io io;  // must be first: libev passes the watcher
    struct perf_ring *ring;
    int index;
};

static void arrived(struct ev_loop *loop, ev_io *io, int events) {
    (void)events;
    struct station *station = (struct station *)io;
    if (perf_ring_step(station->ring, station->index)) ev_break(loop, EVBREAK_ALL);
}

void peer_libev_cascade(int pipes, int active, long warmup, long ops, struct perf_sample *sample) {
    struct ev_loop *loop = ev_loop_new(0);
    struct perf_ring *ring = perf_ring_make(pipes, active);
    struct station *stations = calloc((size_t)pipes, sizeof *stations);
    for (int index = 0; index < pipes; index++) {
        struct station *station = &stations[index];
        station->ring = ring;
        station->index = index;
        ev_io_init(&station->io, arrived, ring->reads[index], EV_READ);
        ev_io_start(loop, &station->io);
    }
    perf_ring_kick(ring);
    ring->remaining = warmup;
    ev_run(loop, 0);
    ring->remaining = ops;
    perf_begin(sample);
    ev_run(loop, 0);
    perf_end(sample);
    ev_loop_destroy(loop);
    free(stations);
    perf_ring_free(ring);
}

// MARK: W3

static void fired(struct ev_loop *loop, ev_timer *timer, int events) { (void)loop, (void)timer, (void)events; }

static double far(uint64_t *random) { return (double)perf_random_delay(random) / 1e9; }

struct bench {
    struct ev_loop *loop;
    ev_timer *timers;
    long count, ops;
    uint64_t random;
    struct perf_sample *sample;
};

// libev's own way to give an active timer another date.
static void again(struct ev_loop *loop, ev_timer *timer, double delay) {
    timer->repeat = delay;
    ev_timer_again(loop, timer);
}

static void rearm(struct bench *bench) {
    perf_begin(bench->sample);
    for (long op = 0; op < bench->ops; op++) {
        ev_timer *timer = &bench->timers[perf_random(&bench->random) % (uint64_t)bench->count];
        again(bench->loop, timer, far(&bench->random));
    }
    ev_run(bench->loop, EVRUN_NOWAIT);
    perf_end(bench->sample);
}

static void cancel(struct bench *bench) {
    long batch = bench->count / 2 < 5000 ? bench->count / 2 : 5000;
    for (long done = 0; done < bench->ops; done += batch) {
        long from = (long)(perf_random(&bench->random) % (uint64_t)(bench->count - batch));
        perf_begin(bench->sample);
        for (long index = 0; index < batch; index++) ev_timer_stop(bench->loop, &bench->timers[from + index]);
        ev_run(bench->loop, EVRUN_NOWAIT);
        perf_end(bench->sample);
        for (long index = 0; index < batch; index++) again(bench->loop, &bench->timers[from + index], far(&bench->random));
        ev_run(bench->loop, EVRUN_NOWAIT);
    }
}

static void make(struct bench *bench) {
    enum { BATCH = 500 };
    ev_timer *batch[BATCH];
    for (long done = 0; done < bench->ops; done += BATCH) {
        perf_begin(bench->sample);
        for (int index = 0; index < BATCH; index++) {
            batch[index] = malloc(sizeof *batch[index]);
            ev_timer_init(batch[index], fired, far(&bench->random), 0.);
            ev_timer_start(bench->loop, batch[index]);
        }
        for (int index = 0; index < BATCH; index++) {
            ev_timer_stop(bench->loop, batch[index]);
            free(batch[index]);
        }
        ev_run(bench->loop, EVRUN_NOWAIT);
        perf_end(bench->sample);
    }
}

static void push(struct bench *bench) {
    double delay = 1000;
    perf_begin(bench->sample);
    for (long op = 0; op < bench->ops; op++) {
        delay += 1e-6;
        again(bench->loop, &bench->timers[0], delay);
    }
    ev_run(bench->loop, EVRUN_NOWAIT);
    perf_end(bench->sample);
}

void peer_libev_timers(enum perf_timing what, long timers, long ops, struct perf_sample *sample) {
    struct bench bench = {.loop = ev_loop_new(0), .count = timers, .ops = ops, .random = 1, .sample = sample};
    bench.timers = calloc((size_t)timers, sizeof *bench.timers);
    for (long index = 0; index < timers; index++) {
        ev_timer_init(&bench.timers[index], fired, 0., far(&bench.random));
        ev_timer_again(bench.loop, &bench.timers[index]);
    }
    ev_run(bench.loop, EVRUN_NOWAIT);
    if (what == PERF_REARM) rearm(&bench);
    if (what == PERF_CANCEL) cancel(&bench);
    if (what == PERF_MAKE) make(&bench);
    if (what == PERF_PUSH) push(&bench);
    ev_loop_destroy(bench.loop);
    free(bench.timers);
}

// MARK: W4, W5

struct passes {
    struct ev_loop *loop;
    ev_io io;
    ev_async custom;  // never started: `ev_feed_event` makes it pending, like event_active
    struct perf_countdown countdown;
    int descriptor;
};

static void never(struct ev_loop *loop, ev_io *io, int events) { (void)loop, (void)io, (void)events; }

static void hit(struct ev_loop *loop, ev_async *custom, int events) {
    (void)loop, (void)events;
    perf_countdown_hit(custom->data);
}

static void prepared(struct ev_loop *loop, ev_prepare *prepare, int events) {
    (void)loop, (void)events;
    perf_countdown_hit(prepare->data);
}

static void passes_init(struct passes *passes) {
    passes->loop = ev_loop_new(0);
    passes->descriptor = perf_idle_descriptor();
    ev_io_init(&passes->io, never, passes->descriptor, EV_READ);
    ev_io_start(passes->loop, &passes->io);
    ev_async_init(&passes->custom, hit);
    passes->custom.data = &passes->countdown;
}

static void passes_end(struct passes *passes) {
    ev_loop_destroy(passes->loop);
    close(passes->descriptor);
}

static void run_passes(struct passes *passes, long ops, struct perf_sample *sample) {
    perf_begin(sample);
    for (long op = 0; op < ops; op++) {
        ev_feed_event(passes->loop, &passes->custom, EV_CUSTOM);
        ev_run(passes->loop, EVRUN_NOWAIT);
    }
    perf_end(sample);
}

void peer_libev_pass(long warmup, long ops, struct perf_sample *sample) {
    struct perf_sample unused = {.is_ignored = true};
    struct passes passes = {0};
    passes_init(&passes);
    run_passes(&passes, warmup, &unused);
    run_passes(&passes, ops, sample);
    passes_end(&passes);
}

void peer_libev_hooks(int hooks, long ops, struct perf_sample *sample) {
    enum { CHUNKS = 10 };
    struct perf_sample plain = {.is_ignored = true};
    struct passes without = {0}, with = {0};
    passes_init(&without);
    passes_init(&with);
    ev_prepare *prepares = calloc((size_t)hooks, sizeof *prepares);
    for (int index = 0; index < hooks; index++) {
        ev_prepare_init(&prepares[index], prepared);
        prepares[index].data = &with.countdown;
        ev_prepare_start(with.loop, &prepares[index]);
    }
    for (int chunk = 0; chunk < CHUNKS; chunk++) {
        run_passes(&without, ops / CHUNKS, &plain);
        run_passes(&with, ops / CHUNKS, sample);
    }
    sample->wall_ns -= plain.wall_ns;
    passes_end(&with);
    passes_end(&without);
    free(prepares);
}

// MARK: W7

struct server {
    ev_io listening;
    int open;
};

struct connection {
    ev_io io;
    struct server *server;
};

static void readable(struct ev_loop *loop, ev_io *io, int events) {
    (void)events;
    struct connection *connection = (struct connection *)io;
    if (perf_echo(io->fd)) return;
    ev_io_stop(loop, io);
    close(io->fd);
    if (--connection->server->open == 0) ev_break(loop, EVBREAK_ALL);
    free(connection);
}

static void acceptable(struct ev_loop *loop, ev_io *io, int events) {
    (void)events;
    struct server *server = (struct server *)io;
    for (int descriptor; (descriptor = perf_accept(io->fd)) >= 0;) {
        struct connection *connection = calloc(1, sizeof *connection);
        connection->server = server;
        ev_io_init(&connection->io, readable, descriptor, EV_READ);
        ev_io_start(loop, &connection->io);
    }
}

void peer_libev_echo(int connections, long warmup, long ops, struct perf_sample *sample) {
    perf_pin_this_thread(0);
    struct ev_loop *loop = ev_loop_new(0);
    uint16_t port;
    int listener = perf_listen(connections, &port);
    struct server server = {.open = connections};
    ev_io_init(&server.listening, acceptable, listener, EV_READ);
    ev_io_start(loop, &server.listening);
    struct perf_client *client = perf_client_start(port, connections, warmup, ops);
    ev_run(loop, 0);
    perf_client_join(client, sample);
    ev_loop_destroy(loop);
    close(listener);
}
