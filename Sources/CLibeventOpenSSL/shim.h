#ifndef EVENTLOOP_CLIBEVENTOPENSSL_SHIM_H
#define EVENTLOOP_CLIBEVENTOPENSSL_SHIM_H

// As in the shim of CLibevent, which has the reason.
#if defined(__linux__)
#include <features.h>
#include <sys/select.h>
#endif

#include <event2/bufferevent_ssl.h>
#include <openssl/err.h>
#include <openssl/ssl.h>

#endif
