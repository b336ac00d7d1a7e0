#ifndef EVENTLOOP_PERF_TRACING_H
#define EVENTLOOP_PERF_TRACING_H

// Numbers that no kernel has: the call fails with ENOSYS, and a tracer sees it.
enum { MARK_BEGIN = 0x7E570001, MARK_END = 0x7E570002 };

#endif
