#ifndef EVENTLOOP_CPLATFORM_PORTS_H
#define EVENTLOOP_CPLATFORM_PORTS_H

#include <stdbool.h>
#include <stdint.h>
#include <stddef.h>

// The parts of Unix-domain sockets that named message ports need and that Swift cannot call: macros, variadic functions and control
// messages. Every descriptor created or received here is close-on-exec. Failures return -1 with errno, and no function blocks, unless its
// comment says otherwise. No write raises SIGPIPE.

// The longest path of a socket's address, in bytes, without the NUL.
int cplatform_socket_path_limit(void);
// Binds and listens; only the owner has rights on the file. `path` is the path of `file` in `directory`: ESTALE if it led elsewhere.
// EADDRINUSE if there is a file of that name.
int cplatform_listen_in(int directory, const char *file, const char *path, int backlog);
// Blocks up to `milliseconds` for room in the listener's queue: EAGAIN if there is none. Negative blocks forever, 0 tries once.
// The connection is in blocking mode; all calls here except `cplatform_receive` with CPLATFORM_BLOCKING ask for a nonblocking operation.
int cplatform_connect_to(const char *path, int64_t milliseconds);
// Accepts the next connection, in nonblocking mode. EAGAIN if there is none.
int cplatform_accept_client(int listener);
// The user and process at the other end. The process id is 0 if the platform does not report it.
int cplatform_peer(int descriptor, uint32_t *user, int32_t *process);

// Sends the rest, from `offset` on, of a header, a body and a trailer. Descriptors are sent with the first byte, so only with offset 0.
// Returns the number of bytes sent, or -1: EAGAIN if there is no room. No cancellation point: the caller may hold a lock.
int64_t cplatform_send(
    int descriptor, const void *header, size_t header_size, const void *body, size_t body_size, const void *trailer,
    size_t trailer_size, size_t offset, const int *passed, int passed_count);

enum { CPLATFORM_PASSED_LIMIT = 253 };  // Linux's limit for one message (SCM_MAX_FD)

// How to receive. If the process has no free number for a descriptor, the kernel closes it on the receiving thread, which may block.
// Peeking avoids that, at the price of a second system call.
enum {
    CPLATFORM_NONBLOCKING,
    CPLATFORM_BLOCKING,  // until the first byte, up to the limit set by `cplatform_limit_waiting`, or until a signal
    CPLATFORM_PEEKING,   // if `truncated`, bytes and descriptors stay in the kernel, and the descriptors returned are copies
    CPLATFORM_REFUSING,  // takes no descriptors: if some come with the bytes, all stay in the kernel and `truncated` is set
};
// Receives bytes and the descriptors that come with them, at most CPLATFORM_PASSED_LIMIT. `truncated`: some descriptors were lost, because
// the process has no free number for them. `early`: a peek found descriptors of later bytes. They stay in the kernel, and those returned are
// copies, which the caller closes. Returns the number of bytes; 0 at the end. EAGAIN if nothing has arrived.
int64_t cplatform_receive(
    int descriptor, int mode, void *buffer, size_t size, int *passed, int *passed_count, bool *truncated, bool *early);
// Sets how long a blocking receive waits; 0 for no limit. The kernel rounds up to its ticks, some milliseconds.
void cplatform_limit_waiting(int descriptor, int64_t milliseconds);

// Blocks until the descriptor is readable or broken, `nanoseconds` pass, or a signal comes. Negative blocks forever.
void cplatform_await_readable(int descriptor, int64_t nanoseconds);
// Whether a connection holds unread bytes, and maybe descriptors with them; true if that is unknown.
bool cplatform_has_unread(int descriptor);
// Shuts down both directions, for all descriptors of the socket.
void cplatform_shutdown(int descriptor);

// MARK: Files

// In the next two, `path` is relative to `parent`, or to the working directory if `parent` is negative.
// Creates a directory with mode 0700.
int cplatform_make_directory(int parent, const char *path);
// Opens a directory that must not be a symbolic link. `path` must not end in a slash or a dot, with which the kernel would follow one.
int cplatform_open_directory(int parent, const char *path);
// Locks an open file: EWOULDBLOCK if another process has the lock.
int cplatform_try_lock_file(int descriptor);
// Releases the lock, also for copies of the descriptor.
void cplatform_unlock_file(int descriptor);
// Opens a file for locking, and creates it with mode 0600 if it is missing. Does not follow a symbolic link. EWOULDBLOCK if another process
// has a lease on it, EINVAL if it is no regular file.
int cplatform_open_lock_file(int directory, const char *file);

// Creates a descriptor that becomes readable when `file` is removed, moved or changed in another way, or its directory is moved.
// -1 with ENOSYS if the platform has none.
int cplatform_watch_file(const char *directory, const char *file);
// Reads and discards its events. No-op if it is negative.
void cplatform_drain_file_watch(int watch);

// MARK: A set of descriptors that a loop watches as one

// An epoll set with a timer, or a kqueue. `set` is readable while a descriptor in it is ready. Thread-safe.
struct cplatform_port_set {
    int set;
    int alarm;  // -1 if the set has timers of its own
};
enum { CPLATFORM_ALARM_TOKEN = 0 };
// Whether an alarm stays ready until it is set again: an unread timerfd does, a one-shot timer of a kqueue does not.
bool cplatform_alarm_stays(void);

int cplatform_make_port_set(struct cplatform_port_set *set);
void cplatform_close_port_set(struct cplatform_port_set *set);
// Watches for CPLATFORM_READ, CPLATFORM_WRITE, CPLATFORM_CLOSED. `is_new`: the descriptor is not in the set yet.
int cplatform_port_set_watch(const struct cplatform_port_set *set, int descriptor, uint64_t token, int wanted, bool is_new);
void cplatform_port_set_forget(const struct cplatform_port_set *set, int descriptor);
// Makes the set readable at an instant of the monotonic clock, with CPLATFORM_ALARM_TOKEN; 0 cancels the alarm.
void cplatform_port_set_alarm(const struct cplatform_port_set *set, int64_t nanoseconds);

struct cplatform_port_event {
    uint64_t token;
    int ready;
};
// Returns what is ready now, at most `limit` events. Does not wait.
int cplatform_port_set_take(const struct cplatform_port_set *set, struct cplatform_port_event *events, int limit);

#endif
