#ifndef EVENTLOOP_CPLATFORM_SUPERVISOR_H
#define EVENTLOOP_CPLATFORM_SUPERVISOR_H

#include <stdbool.h>
#include <stddef.h>

// What the protocols of a service manager need and Swift cannot call: flags and macros of sockets. A failure is an errno, unless its
// comment says otherwise.

struct cplatform_address;

// A datagram socket for sending to Unix addresses, close-on-exec. -1 with errno.
int cplatform_make_notifier(void);
// Sends one datagram. If the receiver's queue is full, waits for room for `milliseconds` in all, however many signals arrive; then EAGAIN.
// Raises no SIGPIPE.
int cplatform_send_datagram(int descriptor, const struct cplatform_address *to, const void *bytes, size_t count, int milliseconds);

// What an open descriptor is.
enum {
    CPLATFORM_LISTENER = 1,  // a stream socket that listens
    CPLATFORM_STREAM,
    CPLATFORM_DATAGRAM,
    CPLATFORM_SEQUENCED,     // of packets, listening or not
    CPLATFORM_OTHER_FILE,    // a socket of another type, or no socket
};
// Returns one of them, or -1 with errno.
int cplatform_descriptor_kind(int descriptor);
int cplatform_set_close_on_exec(int descriptor);
int cplatform_set_nonblocking(int descriptor);

#endif
