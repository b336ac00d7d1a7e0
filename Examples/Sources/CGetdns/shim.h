// First on Linux, as in CLibevent's shim: event-config.h defines _GNU_SOURCE.
#if defined(__linux__)
#include <features.h>
#include <sys/select.h>
#endif

#include <getdns/getdns.h>
#include <getdns/getdns_extra.h>
#include <getdns/getdns_ext_libevent.h>
