// Workloads on libuv, as tight as a C programmer would write them. ../../eventloop-peers/Workloads describes them.

#ifndef EVENTLOOP_BENCHMARKS_LIBUV_H
#define EVENTLOOP_BENCHMARKS_LIBUV_H

#include "CPerfPeers.h"

void peer_libuv_cascade(int pipes, int active, long warmup, long ops, struct perf_sample *sample);
void peer_libuv_timers(enum perf_timing what, long timers, long ops, struct perf_sample *sample);
void peer_libuv_pass(long warmup, long ops, struct perf_sample *sample);
// The wall time is the difference with and without `hooks` prepare handles.
void peer_libuv_hooks(int hooks, long ops, struct perf_sample *sample);
void peer_libuv_echo(int connections, long warmup, long ops, struct perf_sample *sample);
struct perf_growth peer_libuv_growth(enum perf_growing what);

#endif
