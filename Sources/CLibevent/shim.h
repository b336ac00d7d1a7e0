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

#endif
