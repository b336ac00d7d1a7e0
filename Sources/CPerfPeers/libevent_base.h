#ifndef EVENTLOOP_PERF_LIBEVENT_BASE_H
#define EVENTLOOP_PERF_LIBEVENT_BASE_H

#include <event2/event.h>

// A base that only its own thread uses: libevent's fastest, even after `evthread_use_pthreads`.
static inline struct event_base *unlocked_base(void) {
    struct event_config *config = event_config_new();
    event_config_set_flag(config, EVENT_BASE_FLAG_NOLOCK);
    struct event_base *base = event_base_new_with_config(config);
    event_config_free(config);
    return base;
}

static inline struct timeval timeval_of(int64_t nanoseconds) {
    return (struct timeval){.tv_sec = nanoseconds / 1000000000, .tv_usec = nanoseconds % 1000000000 / 1000};
}

// Polls once. With NOBLOCK alone, libevent would poll again after the callbacks.
enum { ONE_PASS = EVLOOP_ONCE | EVLOOP_NONBLOCK };

#endif
