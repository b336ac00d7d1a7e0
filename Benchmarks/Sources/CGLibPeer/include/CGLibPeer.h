// Workloads on GLib's main loop. ../../eventloop-peers/Workloads describes them.

#ifndef EVENTLOOP_BENCHMARKS_GLIB_H
#define EVENTLOOP_BENCHMARKS_GLIB_H

#include "CPerfPeers.h"

void peer_glib_cascade(int pipes, int active, long warmup, long ops, struct perf_sample *sample);
void peer_glib_pass(long warmup, long ops, struct perf_sample *sample);

// A loop to which other threads post. The measuring thread calls `run`; PostingLoop describes `post` and `hold`.
struct glib_loop;
struct glib_loop *peer_glib_loop_make(void);
void peer_glib_loop_run(struct glib_loop *loop);  // until the countdown is over
void peer_glib_loop_free(struct glib_loop *loop);  // after the last post
void peer_glib_loop_post(struct glib_loop *loop, long posts, struct perf_countdown *countdown);
void peer_glib_loop_hold(struct glib_loop *loop, void (*body)(void *), void *context);

#endif
