// Lifecycle of a loop here: the measuring function makes, runs and closes it, on its thread. A handle's memory is freed after the loop has
// called its close callback, for which `close_loop` waits.

#include "CLibuvPeer.h"

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

// MARK: W1

struct station {
    uv_poll_t poll;
    struct perf_ring *ring;
    int index;
};

static void arrived(uv_poll_t *poll, int status, int events) {
    (void)status, (void)events;
    struct station *station = poll->data;
    if (perf_ring_step(station->ring, station->index)) uv_stop(poll->loop);
}

void peer_libuv_cascade(int pipes, int active, long warmup, long ops, struct perf_sample *sample) {
    uv_loop_t loop;
    uv_loop_init(&loop);
    struct perf_ring *ring = perf_ring_make(pipes, active);
    struct station *stations = calloc((size_t)pipes, sizeof *stations);
    for (int index = 0; index < pipes; index++) {
        struct station *station = &stations[index];
        station->ring = ring;
        station->index = index;
        uv_poll_init(&loop, &station->poll, ring->reads[index]);
        station->poll.data = station;
        uv_poll_start(&station->poll, UV_READABLE, arrived);
    }
    perf_ring_kick(ring);
    ring->remaining = warmup;
    uv_run(&loop, UV_RUN_DEFAULT);
    ring->remaining = ops;
    perf_begin(sample);
    uv_run(&loop, UV_RUN_DEFAULT);
    perf_end(sample);
    close_loop(&loop);
    free(stations);
    perf_ring_free(ring);
}

// MARK: W3

static void fired(uv_timer_t *timer) { (void)timer; }

// libuv counts in milliseconds.
static uint64_t far(uint64_t *random) { return (uint64_t)perf_random_delay(random) / 1000000; }

struct bench {
    uv_loop_t loop;
    uv_timer_t *timers;
    long count, ops;
    uint64_t random;
    struct perf_sample *sample;
};

static void rearm(struct bench *bench) {
    perf_begin(bench->sample);
    for (long op = 0; op < bench->ops; op++) {
        uv_timer_t *timer = &bench->timers[perf_random(&bench->random) % (uint64_t)bench->count];
        uv_timer_start(timer, fired, far(&bench->random), 0);
    }
    uv_run(&bench->loop, UV_RUN_NOWAIT);
    perf_end(bench->sample);
}

static void cancel(struct bench *bench) {
    long batch = bench->count / 2 < 5000 ? bench->count / 2 : 5000;
    for (long done = 0; done < bench->ops; done += batch) {
        long from = (long)(perf_random(&bench->random) % (uint64_t)(bench->count - batch));
        perf_begin(bench->sample);
        for (long index = 0; index < batch; index++) uv_timer_stop(&bench->timers[from + index]);
        uv_run(&bench->loop, UV_RUN_NOWAIT);
        perf_end(bench->sample);
        for (long index = 0; index < batch; index++) uv_timer_start(&bench->timers[from + index], fired, far(&bench->random), 0);
        uv_run(&bench->loop, UV_RUN_NOWAIT);
    }
}

static void free_timer(uv_handle_t *handle) { free(handle); }

static void make(struct bench *bench) {
    enum { BATCH = 500 };
    uv_timer_t *batch[BATCH];
    for (long done = 0; done < bench->ops; done += BATCH) {
        perf_begin(bench->sample);
        for (int index = 0; index < BATCH; index++) {
            batch[index] = malloc(sizeof *batch[index]);
            uv_timer_init(&bench->loop, batch[index]);
            uv_timer_start(batch[index], fired, far(&bench->random), 0);
        }
        for (int index = 0; index < BATCH; index++) uv_close((uv_handle_t *)batch[index], free_timer);
        uv_run(&bench->loop, UV_RUN_NOWAIT);
        perf_end(bench->sample);
    }
}

static void push(struct bench *bench) {
    uint64_t delay = 1000000;
    perf_begin(bench->sample);
    for (long op = 0; op < bench->ops; op++) uv_timer_start(&bench->timers[0], fired, ++delay, 0);
    uv_run(&bench->loop, UV_RUN_NOWAIT);
    perf_end(bench->sample);
}

void peer_libuv_timers(enum perf_timing what, long timers, long ops, struct perf_sample *sample) {
    struct bench bench = {.count = timers, .ops = ops, .random = 1, .sample = sample};
    uv_loop_init(&bench.loop);
    bench.timers = calloc((size_t)timers, sizeof *bench.timers);
    for (long index = 0; index < timers; index++) {
        uv_timer_init(&bench.loop, &bench.timers[index]);
        uv_timer_start(&bench.timers[index], fired, far(&bench.random), 0);
    }
    uv_run(&bench.loop, UV_RUN_NOWAIT);
    if (what == PERF_REARM) rearm(&bench);
    if (what == PERF_CANCEL) cancel(&bench);
    if (what == PERF_MAKE) make(&bench);
    if (what == PERF_PUSH) push(&bench);
    close_loop(&bench.loop);
    free(bench.timers);
}

// MARK: W4, W5

static void idled(uv_idle_t *idle) { perf_countdown_hit(idle->data); }
static void prepared(uv_prepare_t *prepare) { perf_countdown_hit(prepare->data); }
static void never(uv_poll_t *poll, int status, int events) { (void)poll, (void)status, (void)events; }

struct passes {
    uv_loop_t loop;
    uv_poll_t poll;
    uv_idle_t idle;
    struct perf_countdown countdown;
    int descriptor;
};

// An idle handle makes a pass that does not wait. Its callback does the work of the custom source elsewhere.
static void passes_init(struct passes *passes) {
    uv_loop_init(&passes->loop);
    passes->descriptor = perf_idle_descriptor();
    uv_poll_init(&passes->loop, &passes->poll, passes->descriptor);
    uv_poll_start(&passes->poll, UV_READABLE, never);
    uv_idle_init(&passes->loop, &passes->idle);
    passes->idle.data = &passes->countdown;
    uv_idle_start(&passes->idle, idled);
}

static void passes_end(struct passes *passes) {
    close_loop(&passes->loop);
    close(passes->descriptor);
}

static void run_passes(struct passes *passes, long ops, struct perf_sample *sample) {
    perf_begin(sample);
    for (long op = 0; op < ops; op++) uv_run(&passes->loop, UV_RUN_NOWAIT);
    perf_end(sample);
}

void peer_libuv_pass(long warmup, long ops, struct perf_sample *sample) {
    struct perf_sample unused = {.is_ignored = true};
    struct passes passes = {0};
    passes_init(&passes);
    run_passes(&passes, warmup, &unused);
    run_passes(&passes, ops, sample);
    passes_end(&passes);
}

void peer_libuv_hooks(int hooks, long ops, struct perf_sample *sample) {
    enum { CHUNKS = 10 };
    struct perf_sample plain = {.is_ignored = true};
    struct passes without = {0}, with = {0};
    passes_init(&without);
    passes_init(&with);
    uv_prepare_t *prepares = calloc((size_t)hooks, sizeof *prepares);
    for (int index = 0; index < hooks; index++) {
        uv_prepare_init(&with.loop, &prepares[index]);
        prepares[index].data = &with.countdown;
        uv_prepare_start(&prepares[index], prepared);
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
    uv_poll_t listening;
    int listener, open;
};

struct connection {
    uv_poll_t poll;
    struct server *server;
    int descriptor;
};

static void closed(uv_handle_t *handle) {
    struct connection *connection = handle->data;
    close(connection->descriptor);
    if (--connection->server->open == 0) uv_stop(handle->loop);
    free(connection);
}

static void readable(uv_poll_t *poll, int status, int events) {
    (void)status, (void)events;
    struct connection *connection = poll->data;
    if (!perf_echo(connection->descriptor)) uv_close((uv_handle_t *)poll, closed);
}

static void acceptable(uv_poll_t *poll, int status, int events) {
    (void)status, (void)events;
    struct server *server = poll->data;
    for (int descriptor; (descriptor = perf_accept(server->listener)) >= 0;) {
        struct connection *connection = calloc(1, sizeof *connection);
        connection->server = server;
        connection->descriptor = descriptor;
        uv_poll_init(poll->loop, &connection->poll, descriptor);
        connection->poll.data = connection;
        uv_poll_start(&connection->poll, UV_READABLE, readable);
    }
}

void peer_libuv_echo(int connections, long warmup, long ops, struct perf_sample *sample) {
    perf_pin_this_thread(0);
    uv_loop_t loop;
    uv_loop_init(&loop);
    uint16_t port;
    struct server server = {.open = connections, .listener = perf_listen(connections, &port)};
    uv_poll_init(&loop, &server.listening, server.listener);
    server.listening.data = &server;
    uv_poll_start(&server.listening, UV_READABLE, acceptable);
    struct perf_client *client = perf_client_start(port, connections, warmup, ops);
    uv_run(&loop, UV_RUN_DEFAULT);
    perf_client_join(client, sample);
    close_loop(&loop);
    close(server.listener);
}
