// First on Linux, as in CLibevent's shim: event-config.h defines _GNU_SOURCE.
#if defined(__linux__)
#include <features.h>
#include <sys/select.h>
#endif

#include <stdlib.h>
#include <hiredis/async.h>
#include <hiredis/hiredis.h>
// Functions that connect an asynchronous context with an event base. They are static, so the header belongs in one module only.
#include <hiredis/adapters/libevent.h>
