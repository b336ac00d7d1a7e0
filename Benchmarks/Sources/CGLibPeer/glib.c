// Lifecycle of a context here: the measuring function makes, runs and releases it, on its thread. The code that attaches a source releases
// it; it is freed with the context.

#include "CGLibPeer.h"

#include <glib-unix.h>
#include <glib.h>
#include <stdlib.h>

// MARK: W1

struct station {
    GMainLoop *loop;
    struct perf_ring *ring;
    int index;
};

static gboolean arrived(gint descriptor, GIOCondition condition, gpointer argument) {
    (void)descriptor, (void)condition;
    struct station *station = argument;
    if (perf_ring_step(station->ring, station->index)) g_main_loop_quit(station->loop);
    return G_SOURCE_CONTINUE;
}

void peer_glib_cascade(int pipes, int active, long warmup, long ops, struct perf_sample *sample) {
    GMainContext *context = g_main_context_new();
    GMainLoop *loop = g_main_loop_new(context, FALSE);
    struct perf_ring *ring = perf_ring_make(pipes, active);
    struct station *stations = calloc((size_t)pipes, sizeof *stations);
    for (int index = 0; index < pipes; index++) {
        stations[index] = (struct station){.loop = loop, .ring = ring, .index = index};
        GSource *source = g_unix_fd_source_new(ring->reads[index], G_IO_IN);
        // g_unix_fd_source_new's page: the callback is a GUnixFDSourceFunc, cast.
        g_source_set_callback(source, G_SOURCE_FUNC(arrived), &stations[index], NULL);
        g_source_attach(source, context);
        g_source_unref(source);
    }
    perf_ring_kick(ring);
    ring->remaining = warmup;
    g_main_loop_run(loop);
    ring->remaining = ops;
    perf_begin(sample);
    g_main_loop_run(loop);
    perf_end(sample);
    g_main_loop_unref(loop);
    g_main_context_unref(context);
    free(stations);
    perf_ring_free(ring);
}

// MARK: W4

static gboolean idled(gpointer countdown) {
    perf_countdown_hit(countdown);
    return G_SOURCE_CONTINUE;
}

void peer_glib_pass(long warmup, long ops, struct perf_sample *sample) {
    GMainContext *context = g_main_context_new();
    struct perf_countdown countdown = {0};
    GSource *idle = g_idle_source_new();
    g_source_set_callback(idle, idled, &countdown, NULL);
    g_source_attach(idle, context);
    g_source_unref(idle);
    for (long op = 0; op < warmup; op++) g_main_context_iteration(context, FALSE);
    perf_begin(sample);
    for (long op = 0; op < ops; op++) g_main_context_iteration(context, FALSE);
    perf_end(sample);
    g_main_context_unref(context);
}

// MARK: W2a

struct glib_loop {
    GMainContext *context;
    GMainLoop *loop;
};

struct post {
    struct glib_loop *loop;
    struct perf_countdown *countdown;
};

struct glib_loop *peer_glib_loop_make(void) {
    struct glib_loop *loop = calloc(1, sizeof *loop);
    loop->context = g_main_context_new();
    loop->loop = g_main_loop_new(loop->context, FALSE);
    return loop;
}

void peer_glib_loop_run(struct glib_loop *loop) { g_main_loop_run(loop->loop); }

void peer_glib_loop_free(struct glib_loop *loop) {
    g_main_loop_unref(loop->loop);
    g_main_context_unref(loop->context);
    free(loop);
}

static gboolean performed(gpointer argument) {
    struct post *post = argument;
    if (perf_countdown_hit(post->countdown)) g_main_loop_quit(post->loop->loop);
    return G_SOURCE_REMOVE;
}

// An idle source with the default priority, like those that g_main_context_invoke makes on another thread's context.
static void invoke(struct glib_loop *loop, GSourceFunc body, gpointer argument, GDestroyNotify destroy) {
    GSource *source = g_idle_source_new();
    g_source_set_priority(source, G_PRIORITY_DEFAULT);
    g_source_set_callback(source, body, argument, destroy);
    g_source_attach(source, loop->context);
    g_source_unref(source);
}

void peer_glib_loop_post(struct glib_loop *loop, long posts, struct perf_countdown *countdown) {
    for (long index = 0; index < posts; index++) {
        // The context of a closure.
        struct post *post = malloc(sizeof *post);
        *post = (struct post){.loop = loop, .countdown = countdown};
        invoke(loop, performed, post, free);
    }
}

struct hold {
    void (*body)(void *);
    void *context;
};

static gboolean held(gpointer argument) {
    struct hold *hold = argument;
    hold->body(hold->context);
    return G_SOURCE_REMOVE;
}

void peer_glib_loop_hold(struct glib_loop *loop, void (*body)(void *), void *context) {
    struct hold *hold = malloc(sizeof *hold);
    *hold = (struct hold){.body = body, .context = context};
    invoke(loop, held, hold, free);
}
