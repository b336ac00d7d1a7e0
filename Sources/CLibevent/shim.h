#ifndef EVENTLOOP_CLIBEVENT_SHIM_H
#define EVENTLOOP_CLIBEVENT_SHIM_H

// First of all, on Linux: libevent's event-config.h defines _GNU_SOURCE. Read before glibc has fixed its
// feature set, that gives fd_set other members in this module than in Glibc, and the build fails in odd
// places. features.h fixes the set. Can go when event-config.h stops defining feature-test macros.
#if defined(__linux__)
#include <features.h>
#include <sys/select.h>
#endif

#include <event2/event.h>
#include <event2/http.h>
#include <event2/buffer.h>
#include <event2/bufferevent.h>
#include <event2/listener.h>
#include <event2/util.h>

// Makes an event an internal one, as libevent's own are: its callback is called at its level and is not counted, so that libevent goes on
// to the less urgent levels in the same round (libevent: "all of the events we processed were internal. Continue."), and it is left out of
// the number of added events. libevent has no function for it. The flag (EVLIST_INTERNAL) stands in the first member of `struct event`,
// which event2/event_struct.h publishes; that header is not included here because it would make the type of every pointer to an event
// another one for Swift. `Poller.hostForeignEvents` checks that it worked.
struct clibevent_callback_head {
    void *next, **previous;
    short flags;
};
static inline void clibevent_make_internal(struct event *event) {
    enum { is_internal = 0x10 };
    ((struct clibevent_callback_head *)(void *)event)->flags |= is_internal;
}

#endif
