// What Swift cannot say about descriptors of streams: macros, and the differences between systems.

#ifndef CSTREAMS_H
#define CSTREAMS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/uio.h>

/// What a descriptor is, as far as reading and writing it differ.
enum cstreams_kind { CSTREAMS_SOCKET = 1, CSTREAMS_PIPE = 2, CSTREAMS_TERMINAL = 3, CSTREAMS_OTHER = 4 };

/// The kind of an open descriptor; -1 with errno if it is not open.
int cstreams_kind(int descriptor);

/// Whether the kernel cannot watch the file, because it is always ready: a regular file, a directory, a device like /dev/null.
int cstreams_is_file(int descriptor);

/// Makes a descriptor of this kind non-blocking and close-on-exec. A TCP socket sends small messages at once. On systems that need it, makes
/// a socket raise no SIGPIPE. 0, or an errno.
int cstreams_prepare(int descriptor, int kind);

/// Whether a socket is a connected stream socket: 0, or an errno (ENOTCONN, EPROTOTYPE). `has_peer`: the caller knows its peer's address.
int cstreams_check_connected(int descriptor, bool has_peer);

/// `read`. The number of bytes, 0 at the end, or a negated errno. EIO of a terminal is its end. Repeated after EINTR.
ptrdiff_t cstreams_read(int descriptor, int kind, void *bytes, size_t count);

/// `write` that raises no SIGPIPE. The number of bytes, or a negated errno. Repeated after EINTR.
ptrdiff_t cstreams_write(int descriptor, int kind, const void *bytes, size_t count);

/// `writev` that raises no SIGPIPE. As `cstreams_write`.
ptrdiff_t cstreams_write_parts(int descriptor, int kind, const struct iovec *parts, int count);

/// Signals the end of the data to a socket's peer. 0, or an errno.
int cstreams_finish_writing(int descriptor);

/// The first of `count` bytes that is `byte`; null if none is. Inline, so that the fuzzer needs this header only.
static inline const void *cstreams_find(const void *bytes, size_t count, uint8_t byte) { return count ? memchr(bytes, byte, count) : 0; }

/// Whether the descriptor was opened for writing only.
bool cstreams_is_write_only(int descriptor);

// MARK: Memory to read into

enum { CSTREAMS_SPACE_SIZE = 65536 };

/// A piece of `CSTREAMS_SPACE_SIZE` bytes, for the calling thread until it gives it back.
void *cstreams_take_space(void);
void cstreams_give_back_space(void *space);

// MARK: Files that other processes share

/// Whether calls on the file wait. False if the descriptor is not open.
bool cstreams_is_blocking(int descriptor);
void cstreams_make_blocking(int descriptor);

#endif
