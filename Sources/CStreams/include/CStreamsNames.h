// What Swift cannot say about the lookup of names: overlaid structures of C, a thread without signals, and the pool of threads.

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

/// Whether the code means that there is no such host, and not that nobody could say so.
bool cstreams_says_no_such_host(int code);

/// Whether the code means that `host` is not numeric, so that it must be looked up.
bool cstreams_is_no_numeric_host(int code);

/// The sentence for an errno, in `text` of `size` bytes.
void cstreams_error_text(int code, char *text, int size);

/// Starts a detached thread that blocks all signals, so that the program's signals go to its other threads. 0, or an errno.
int cstreams_start_thread(const char *name, void (*body)(void *context), void *context);

/// The pool of threads that look up names; null before the first `cstreams_replace_lookup_pool`. A C variable, because Swift would make one
/// at its first use.
void *cstreams_lookup_pool(void);

/// Stores `pool` if the stored one is `old`.
bool cstreams_replace_lookup_pool(void *old, void *pool);

/// Lets other sockets share the port of a socket that listens (SO_REUSEPORT). 0, or an errno.
int cstreams_share_port(int descriptor);

/// Refuses descriptors that clients of a Unix socket that listens send over their connections, where the kernel can (Linux 6.16). The call that reads would
/// close them, and a close may block as long as the client likes (SO_LINGER).
void cstreams_refuse_descriptors(int listener);

#endif
