// What Swift cannot say about datagram sockets: overlaid structures of C, arrays of them for one system call, and the differences between
// systems.

#ifndef CDATAGRAMS_H
#define CDATAGRAMS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "CPlatform.h"

// MARK: Addresses

/// Whether both are the same bytes.
bool cdatagrams_equal(const struct cplatform_address *first, const struct cplatform_address *second);

// MARK: Sockets

struct cdatagrams_options {
    /// Negative: the system's.
    int64_t receive_buffer, send_buffer;
    bool shares_port, allows_broadcast, ipv6_only, multicast_loops;
    /// Null: the system's choice.
    const char *multicast_interface;
    int64_t multicast_hops;
};

/// A non-blocking datagram socket of this kind of address (CPLATFORM_IPV4 and so on), with its options. Negative: a negated errno, and `operation` says of what.
int cdatagrams_open(int kind, const struct cdatagrams_options *options, const char **operation);
/// 0, or an errno.
int cdatagrams_bind(int descriptor, const struct cplatform_address *address);
int cdatagrams_connect(int descriptor, const struct cplatform_address *peer);
/// Joins a multicast group, or leaves it. `interface` may be null. 0, or an errno.
int cdatagrams_member(int descriptor, const struct cplatform_address *group, const char *interface, bool joins);
/// How many datagrams the kernel has dropped because the socket had no room: 32 bits, which wrap around. Negative if that is unknown.
int64_t cdatagrams_drops(int descriptor);

// MARK: Batches

/// At most so many datagrams in one system call.
enum { CDATAGRAMS_BATCH = 64 };

typedef void cdatagrams_each(
    void *context, const void *bytes, size_t count, bool is_truncated, const struct cplatform_address *peer);

/// Receives what waits, up to a batch, and calls `each` for every datagram in the order of arrival. `maximum_size`: of each. `each` must not
/// receive or send. The number of datagrams, or a negated errno. Uses memory of the calling thread.
int cdatagrams_receive(int descriptor, size_t maximum_size, void *context, cdatagrams_each *each);

/// Sends one datagram; to the connected peer if `peer` is null. 0, or an errno.
int cdatagrams_send(int descriptor, const void *bytes, size_t count, const struct cplatform_address *peer);

/// Whether the system cuts a message into datagrams for this socket.
bool cdatagrams_has_segments(int descriptor);
/// Copies a datagram to the calling thread's batch. False if there is no room. An empty batch has room for any datagram, unless there is no
/// memory. `segments`: datagrams for one peer become one message, as far as their sizes allow it, which the system cuts again.
bool cdatagrams_stage(const void *bytes, size_t count, const struct cplatform_address *peer, bool segments);
/// Sends the batch in one system call, and empties it. The number of datagrams that the kernel took, from the beginning, or a negated errno
/// if it did not take the first. Why it did not take a later one is not known; it may take that one in the next call. `refuses`: it may take the
/// same datagrams without `segments`.
int cdatagrams_send_staged(int descriptor, bool *refuses);

#endif
