// First on Linux, as in CLibevent's shim: event-config.h defines _GNU_SOURCE.
#if defined(__linux__)
#include <features.h>
#include <sys/select.h>
#endif

#include <unbound.h>
#include <unbound-event.h>
