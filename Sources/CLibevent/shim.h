#ifndef EVENTLOOP_CLIBEVENT_SHIM_H
#define EVENTLOOP_CLIBEVENT_SHIM_H

// Must be first on Linux: libevent's event-config.h defines _GNU_SOURCE. If it is read before glibc has fixed its feature set, fd_set has
// other members in this module than in Glibc, and the build fails in unrelated places. features.h fixes the set. Remove this when
// event-config.h no longer defines feature-test macros.
#if defined(__linux__)
#include <features.h>
#include <sys/select.h>
#endif

// All of libevent 2, so that no program needs a second module map for it.
#include <event2/buffer.h>
#include <event2/bufferevent.h>
#include <event2/dns.h>
#include <event2/event.h>
#include <event2/http.h>
#include <event2/listener.h>
#include <event2/rpc.h>
#include <event2/tag.h>
#include <event2/util.h>

// The structures that callers allocate or read themselves: `evhttp_parse_query_str` fills an `evkeyvalq`, and a DNS server reads an
// `evdns_server_request`. Left out are those behind which libevent has functions, because a published structure changes the type of every
// pointer to it in Swift, from `OpaquePointer` to `UnsafeMutablePointer`: event_struct.h, bufferevent_struct.h, http_struct.h and rpc_struct.h. Also left
// out are the *_compat.h headers, which use one base for the whole process.
#include <event2/dns_struct.h>
#include <event2/keyvalq_struct.h>

// WebSockets came with libevent 2.2.
#if __has_include(<event2/ws.h>)
#include <event2/ws.h>
#endif

// Makes an event internal, like libevent's own. libevent calls its callback at its level but does not count it, and so continues with the
// less urgent levels in the same round ("all of the events we processed were internal. Continue."). The event is also left out of the
// number of added events. libevent has no function for this. The flag (EVLIST_INTERNAL) is in the first member of `struct event`, which
// event2/event_struct.h publishes. That header is not included here, because it would change the type of every pointer to an event in
// Swift. `Poller.hostForeignEvents` checks that it worked.
struct clibevent_callback_head {
    void *next, **previous;
    short flags;
};
static inline void clibevent_make_internal(struct event *event) {
    enum { is_internal = 0x10 };
    ((struct clibevent_callback_head *)(void *)event)->flags |= is_internal;
}

#endif
