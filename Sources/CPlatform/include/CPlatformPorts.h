#ifndef EVENTLOOP_CPLATFORM_PORTS_H
#define EVENTLOOP_CPLATFORM_PORTS_H

#include <stdbool.h>
#include <stdint.h>
#include <stddef.h>

// What named message ports need of Unix-domain sockets, where macros, variadics and control messages keep Swift from saying it.
// Every descriptor that is made or received here is close-on-exec. A failure is -1 with errno unless it says otherwise. None of these
// waits, unless it says so, and no write raises SIGPIPE.

// How many bytes of a path a socket's address holds, without the NUL.
int cplatform_socket_path_limit(void);
// Binds and listens; the file is the owner's only. `path` is a path of `file` in `directory`: ESTALE when it led elsewhere. EADDRINUSE when
// there is a file of that name.
int cplatform_listen_in(int directory, const char *file, const char *path, int backlog);
// Waits up to `milliseconds` for room in the listener's queue: EAGAIN when there was none. Negative waits for ever, 0 tries once.
// The connection is a blocking one; all calls here but `cplatform_receive` with `waiting` ask not to wait.
int cplatform_connect_to(const char *path, int64_t milliseconds);
// The next connection, non-blocking. EAGAIN when nobody waits.
int cplatform_accept_client(int listener);
// Whose process is at the other end. The process id is 0 where the platform does not say.
int cplatform_peer(int descriptor, uint32_t *user, int32_t *process);

// Sends the rest, from `offset` on, of a header, a body and a trailer. The descriptors go with the first byte, so with offset 0 only.
// The number of bytes that went, or -1: EAGAIN when none found room.
int64_t cplatform_send(
    int descriptor, const void *header, size_t header_size, const void *body, size_t body_size, const void *trailer,
    size_t trailer_size, size_t offset, const int *passed, int passed_count);

enum { CPLATFORM_PASSED_LIMIT = 253 };  // what Linux takes in one message (SCM_MAX_FD)

// How to receive. If the process has no free number for a descriptor, the kernel closes it on the receiving thread, which may block. Peeking avoids
// that, at the price of a second system call.
enum {
    CPLATFORM_NONBLOCKING,
    CPLATFORM_BLOCKING,  // until the first byte, up to the limit set by `cplatform_limit_waiting`, or until a signal
    CPLATFORM_PEEKING,   // if `truncated`, bytes and descriptors stay in the kernel, and the descriptors returned are copies
    CPLATFORM_REFUSING,  // takes no descriptors: if some come with the bytes, all stay in the kernel and `truncated` is set
};
// Receives bytes and the descriptors that come with them, at most CPLATFORM_PASSED_LIMIT. `truncated`: some descriptors were lost, because the process
// has no free number for them. Returns the number of bytes; 0 at the end. EAGAIN if nothing has arrived.
int64_t cplatform_receive(
    int descriptor, int mode, void *buffer, size_t size, int *passed, int *passed_count, bool *truncated);
// How long a receiver waits; 0 for ever. The kernel rounds up to its ticks, some milliseconds.
void cplatform_limit_waiting(int descriptor, int64_t milliseconds);

// Waits until the descriptor is readable or broken; false when `nanoseconds` passed first. Negative waits for ever.
bool cplatform_await_readable(int descriptor, int64_t nanoseconds);
// Whether closing the descriptor is known not to block, without asking anything that may block.
bool cplatform_closes_at_once(int descriptor);
// Whether a connection holds bytes that were not read, and maybe descriptors with them; true when that is not known.
bool cplatform_has_unread(int descriptor);
// Ends both directions, for all who hold the socket.
void cplatform_shutdown(int descriptor);

// MARK: Files

// Both: `path` begins at `parent`, or at the root or the working directory when that is negative.
// Makes a directory for the owner only.
int cplatform_make_directory(int parent, const char *path);
// Opens a directory that must not be a symbolic link. A slash or a dot at the end would have the kernel follow one.
int cplatform_open_directory(int parent, const char *path);
// Takes the lock of an open file, if nobody else has it: EWOULDBLOCK.
int cplatform_try_lock_file(int descriptor);
// Lets go of the lock, also for those who have copies of the descriptor.
void cplatform_unlock_file(int descriptor);
// Opens a file for its lock, making it for the owner only; not through a symbolic link.
int cplatform_open_lock_file(int directory, const char *file);

// A descriptor that becomes readable when `file` is removed or moved, or its directory is moved, or it is touched in another way.
// -1 with ENOSYS where there is none.
int cplatform_watch_file(const char *directory, const char *file);
// Takes what it has said; nothing for a negative one.
void cplatform_drain_file_watch(int watch);

// MARK: A set of descriptors that is watched as one

// An epoll set with a timer, or a kqueue. `set` is readable while something in it is ready. Any thread may change it.
struct cplatform_port_set {
    int set;
    int alarm;  // -1 where the set has timers of its own
};
enum { CPLATFORM_ALARM_TOKEN = 0 };
// Whether an alarm that was taken rings again until it is set anew: a timerfd that nobody reads does, a one-shot timer of a kqueue is gone.
bool cplatform_alarm_stays(void);

int cplatform_make_port_set(struct cplatform_port_set *set);
void cplatform_close_port_set(struct cplatform_port_set *set);
// Watches for CPLATFORM_READ, CPLATFORM_WRITE, CPLATFORM_CLOSED. `is_new`: it is not in the set yet.
int cplatform_port_set_watch(const struct cplatform_port_set *set, int descriptor, uint64_t token, int wanted, bool is_new);
void cplatform_port_set_forget(const struct cplatform_port_set *set, int descriptor);
// Makes the set readable at an instant of the monotonic clock, by CPLATFORM_ALARM_TOKEN; 0 takes that back.
void cplatform_port_set_alarm(const struct cplatform_port_set *set, int64_t nanoseconds);

struct cplatform_port_event {
    uint64_t token;
    int ready;
};
// What is ready now, at most `limit`.
int cplatform_port_set_take(const struct cplatform_port_set *set, struct cplatform_port_event *events, int limit);

#endif
