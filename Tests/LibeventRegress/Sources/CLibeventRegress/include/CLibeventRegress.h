#ifndef EVENTLOOP_LIBEVENT_REGRESS_H
#define EVENTLOOP_LIBEVENT_REGRESS_H

#include <stdbool.h>

struct event_base;

/// `main` of libevent's regression tests.
int eventloop_regress_main(int argc, const char *const *argv);

/// Makes what a run needs while there are descriptors for it; some tests lower the process's limit. Defined in Swift.
void eventloop_prepare(void);

/// Replaces `event_base_loop`. Defined in Swift.
int eventloop_base_loop(struct event_base *base, int flags);

/// Notes that the next, or the present, run on `base` is broken off or not; asks for it. Thread-safe.
void eventloop_set_broken(struct event_base *base, bool is_broken);
int eventloop_base_got_break(struct event_base *base);

#endif
