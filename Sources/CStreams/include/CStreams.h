// What Swift cannot say about descriptors of streams: macros, and the differences between systems.

#ifndef CSTREAMS_H
#define CSTREAMS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/uio.h>

/// What a descriptor is, as far as reading and writing it differ.
enum cstreams_kind {
    CSTREAMS_SOCKET = 1, CSTREAMS_PIPE = 2, CSTREAMS_TERMINAL = 3, CSTREAMS_OTHER = 4,
    /// With the kind of a pipe or a terminal: calls may wait, so each one asks `poll` first and moves little.
    CSTREAMS_ASKS_FIRST = 16,
};

/// The kind of an open descriptor; -1 with errno if it is not open.
int cstreams_kind(int descriptor);

/// Whether the kernel cannot watch the file, because it is always ready: a regular file, a directory, a device like /dev/null.
int cstreams_is_file(int descriptor);

/// Prepares a descriptor for calls that do not wait, and makes it close-on-exec. The flag O_NONBLOCK belongs to the open file, which other
/// processes may have. So sockets keep it as it is (calls on them pass MSG_DONTWAIT), and the number of a pipe or a terminal gets an open file of
/// its own; if the system refuses that, `kind` gets CSTREAMS_ASKS_FIRST. Other files, and a pty's controlling side, become non-blocking, and
/// `restores` says whether they were blocking. On systems that need it, makes a socket raise no SIGPIPE. 0, or an errno.
int cstreams_prepare(int descriptor, int *kind, bool *restores);

/// 0, or an errno.
int cstreams_close_on_exec(int descriptor);

/// `close`, which is no cancellation point here: what follows it says that the stream has ended, or ends other connections.
void cstreams_close(int descriptor);

/// TCP_NODELAY, SO_SNDBUF, SO_RCVBUF, SO_KEEPALIVE with TCP_KEEPIDLE, TCP_KEEPINTVL, TCP_KEEPCNT, and TCP_USER_TIMEOUT.
enum cstreams_option {
    CSTREAMS_NO_DELAY, CSTREAMS_SEND_BUFFER, CSTREAMS_RECEIVE_BUFFER, CSTREAMS_KEEP_ALIVE, CSTREAMS_KEEP_IDLE, CSTREAMS_KEEP_INTERVAL,
    CSTREAMS_KEEP_COUNT, CSTREAMS_UNACKNOWLEDGED,
};

/// 0, or an errno: ENOPROTOOPT where the system does not have the option.
int cstreams_set_option(int descriptor, enum cstreams_option option, int value);

/// The process at the other end of a Unix socket: 0, or an errno; ENOTSUP for other sockets.
int cstreams_peer_credentials(int descriptor, int32_t *process, uint32_t *user, uint32_t *group);

/// Whether the peer has shut down its sending side, closed or reset. False if the descriptor is not open.
bool cstreams_peer_has_finished(int descriptor);

/// Whether a socket is a connected stream socket: 0, or an errno (ENOTCONN, EPROTOTYPE). `has_peer`: the caller knows its peer's address.
int cstreams_check_connected(int descriptor, bool has_peer);

/// `read`. The number of bytes, 0 at the end, or a negated errno. EIO of a terminal is its end. Repeated after EINTR.
ptrdiff_t cstreams_read(int descriptor, int kind, void *bytes, size_t count);

/// Drops what waits in an internet socket's error queue (timestamps, the ends of sends without copies, errors of the network). A message there makes the
/// socket ready as long as it is not taken.
void cstreams_drop_error_messages(int descriptor);

/// `write` that raises no SIGPIPE. The number of bytes, or a negated errno. Repeated after EINTR.
ptrdiff_t cstreams_write(int descriptor, int kind, const void *bytes, size_t count);

/// `writev` that raises no SIGPIPE. As `cstreams_write`.
ptrdiff_t cstreams_write_parts(int descriptor, int kind, const struct iovec *parts, int count);

/// Signals the end of the data to a socket's peer. 0, or an errno.
int cstreams_finish_writing(int descriptor);

/// The first of `count` bytes that is `byte`; null if none is. Inline, so that the fuzzer needs this header only.
static inline const void *cstreams_find(const void *bytes, size_t count, uint8_t byte) { return count ? memchr(bytes, byte, count) : 0; }

/// Whether the descriptor was opened for reading, perhaps among others.
bool cstreams_can_read(int descriptor);

/// Whether nobody has the reading end of a pipe any more, or a terminal was hung up.
bool cstreams_has_lost_reader(int descriptor);

// MARK: Memory to read into

enum { CSTREAMS_SPACE_SIZE = 65536 };

/// A piece of `CSTREAMS_SPACE_SIZE` bytes, for the calling thread until it gives it back. Null if there is no memory.
void *cstreams_take_space(void);
void cstreams_give_back_space(void *space);

// MARK: Files that other processes share

void cstreams_make_blocking(int descriptor);

#endif
