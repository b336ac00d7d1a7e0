#ifndef EVENTLOOP_CLIBEVENT_THREADS_H
#define EVENTLOOP_CLIBEVENT_THREADS_H

// As in shim.h, which has the reason.
#if defined(__linux__)
#include <features.h>
#include <sys/select.h>
#endif

#include <event2/thread.h>

#endif
