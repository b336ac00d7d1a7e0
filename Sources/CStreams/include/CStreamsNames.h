// What Swift cannot say about the lookup of names: overlaid structures of C, a thread without signals, and forks.

#ifndef CSTREAMS_NAMES_H
#define CSTREAMS_NAMES_H

#include <stdbool.h>
#include <stdint.h>

/// Room for a numeric host with its interface, and a zero byte.
enum { CSTREAMS_HOST_SIZE = 128 };

/// Called with each address, in getaddrinfo's order.
typedef void cstreams_each_address(void *context, bool is_ipv6, const char *host);

/// getaddrinfo(3) for stream sockets. With `only_numeric` it neither blocks nor reads a file, and knows only numeric hosts. Returns 0, or a
/// code of `EAI_…`; `system_error` is the errno of EAI_SYSTEM. Addresses of other families are left out.
int cstreams_look_up(const char *host, bool only_numeric, int *system_error, void *context, cstreams_each_address *each);

/// The sentence for a code of `cstreams_look_up`, in `text` of `size` bytes.
void cstreams_lookup_error(int code, int system_error, char *text, int size);

/// Whether the code means that `host` is not numeric, so that it must be looked up.
bool cstreams_is_no_numeric_host(int code);

/// The sentence for an errno, in `text` of `size` bytes.
void cstreams_error_text(int code, char *text, int size);

/// Starts a detached thread that blocks all signals, so that the program's signals go to its other threads. 0, or an errno.
int cstreams_start_thread(const char *name, void (*body)(void *context), void *context);

/// The pool of threads of this process that look up names; null before `cstreams_install_lookup_pool`, and in a child of fork.
void *cstreams_lookup_pool(void);

/// Makes `pool` the process's, unless it has one. Returns the one that it has then.
void *cstreams_install_lookup_pool(void *pool);

/// How many forks lie between the program's start and this process.
int32_t cstreams_forks(void);

/// Lets other sockets share the port of a socket that listens (SO_REUSEPORT). 0, or an errno.
int cstreams_share_port(int descriptor);

#endif
