#ifndef EVENTLOOP_CPLATFORM_H
#define EVENTLOOP_CPLATFORM_H

#include <stdbool.h>
#include <stdint.h>

#include "CPlatformPorts.h"

// MARK: Threads

// What the calling thread's run loop is. Swift has no thread-local variables; a pthread key costs a library
// call where this is one load, on a path that every wake-up and every timer change takes.
struct cplatform_thread {
    uint64_t loop_id;  // 0: the thread has no loop (yet)
    void *loop;        // unretained; the thread's exit handler holds the reference
    uint64_t adopted_loop_id;  // the loop that has ended and whose jobs this thread runs in its place; else 0
};
extern _Thread_local struct cplatform_thread cplatform_thread_state;

static inline uint64_t cplatform_current_loop_id(void) { return cplatform_thread_state.loop_id; }
static inline void *cplatform_current_loop(void) { return cplatform_thread_state.loop; }
static inline void cplatform_set_current_loop(uint64_t id, void *loop) {
    cplatform_thread_state.loop_id = id;
    cplatform_thread_state.loop = loop;
}

static inline uint64_t cplatform_adopted_loop_id(void) { return cplatform_thread_state.adopted_loop_id; }
static inline void cplatform_set_adopted_loop(uint64_t id) { cplatform_thread_state.adopted_loop_id = id; }

// Whether the caller is the process's first thread. After fork the child's only thread is.
bool cplatform_is_main_thread(void);

// Shows in `top -H` and in debuggers; cut to what the platform takes (15 bytes on Linux).
void cplatform_name_this_thread(const char *name);

// MARK: Forks

// How many forks lie between the start of the program and this process: 0, and one more in every child. Not counted: `_Fork`, `vfork` and
// `clone`, which call no handlers.
extern int cplatform_forks;
static inline int cplatform_fork_count(void) { return cplatform_forks; }

// The parts of the library that have process-wide state, in the order in which they are held.
enum { CPLATFORM_FORK_PORTS, CPLATFORM_FORK_LOOPS, CPLATFORM_FORK_PARTS };

// From now on calls `hold` before every fork, and `release` after it in both processes. Calls both once, before it returns the first time, so
// that what Swift makes lazily is made; `hold` touches all of it. Thread-safe; a second call for a part is one load.
void cplatform_hold_over_forks(int part, void (*hold)(void), void (*release)(bool in_child));

// The main thread's loop, held for ever; null before it is made. A C variable, because a child of fork would wait for ever for a Swift
// one that another thread was about to make.
void *cplatform_main_loop(void);
// Once.
void cplatform_set_main_loop(void *loop);

// MARK: Time

// The processor's own clock, in its own units: for differences only, to be translated by how far the system's clock went meanwhile. It
// runs at one speed on every processor since about 2010. Elsewhere nanoseconds.
uint64_t cplatform_nanoseconds(void);
static inline uint64_t cplatform_ticks(void) {
#if defined(__x86_64__)
    return __builtin_ia32_rdtsc();
#elif defined(__aarch64__)
    uint64_t ticks;
    __asm__ volatile("mrs %0, cntvct_el0" : "=r"(ticks));
    return ticks;
#else
    return cplatform_nanoseconds();
#endif
}

// MARK: Locking

// A lock of one word, all zero when free. Synchronization.Mutex does the same at the same speed, but its slow path lies in a library
// without instrumentation, so that ThreadSanitizer reports races where there are none as soon as two threads meet (Swift 6.3). And this one
// notices forks.
//
// A lock that another thread held at a fork is *inherited* in the child: nobody will unlock it, and what it guards is half changed.
struct cplatform_lock { uint32_t word; };
// Traps with a sentence if the lock is inherited.
void cplatform_lock(struct cplatform_lock *lock);
// False if the lock is inherited.
bool cplatform_lock_unless_inherited(struct cplatform_lock *lock);
void cplatform_unlock(struct cplatform_lock *lock);

// Says to the processor that the caller spins, so that it gives way.
static inline void cplatform_relax(void) {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

// MARK: Descriptors. All made here are non-blocking and close-on-exec; a failure is -1 with errno.

// A descriptor to wake a sleeper with: `ends[0]` is watched, `ends[1]` is written (the same one where there is eventfd).
int cplatform_make_wake_channel(int ends[2]);
// Makes `ends[0]` readable; an eventfd has a new edge also when it already was. Async-signal-safe; keeps errno.
void cplatform_wake(const int ends[2]);

// What one descriptor is polled for, and what it is ready for: bits as below.
struct cplatform_polled {
    int descriptor, wanted, ready;
};
// Waits until one of them is ready, for so long at most. How many are; 0 also when the wait was interrupted, or when there was no memory:
// then the thread has paused.
int cplatform_poll(struct cplatform_polled *entries, int count, int64_t nanoseconds);

// A descriptor that is good for nothing.
int cplatform_make_placeholder(void);
// Whether so many descriptors can be made: 0, or the errno of the one that could not.
int cplatform_check_room(int count);
// A check takes, for a moment, whatever is free. Between these two calls no thread checks. Held over forks.
void cplatform_hold_room_checks(void);
void cplatform_release_room_checks(void);

// A timer that is a descriptor, on the monotonic clock; -1 with ENOSYS where the platform has none.
int cplatform_make_deadline_timer(void);
// Arms it for an absolute time in nanoseconds; 0 disarms. A time in the past makes it readable at once.
int cplatform_arm_deadline_timer(int timer, int64_t nanoseconds);

// What can become ready is found out by asking the kernel: 0, or EBADF, EPERM (not pollable) or another errno.
int cplatform_probe_descriptor(int descriptor);

// Readiness, as bits of our own so that no poller's constants reach Swift.
enum { CPLATFORM_READ = 1, CPLATFORM_WRITE = 2, CPLATFORM_CLOSED = 4, CPLATFORM_BROKEN = 8 };
// What `descriptor` is ready for now, without waiting.
int cplatform_readiness(int descriptor, int wanted);

// A small poller of its own for one descriptor, itself watchable as a plain readable descriptor.
int cplatform_make_gate(int descriptor, int wanted, bool edge, bool one_shot);
// What passed the gate since the last call: readiness bits, 0 for nothing.
int cplatform_take_gate(int gate);

// The epoll set that has `member`, a descriptor which was added to one set only, edge-triggered and for reading; -1 when there is none. The
// member may be reported once more. Tries the open descriptors from the member's number outwards.
int cplatform_find_epoll_set(int member);
// The descriptors that were added to an epoll set, by the kernel's own list (proc(5), fdinfo: `tfd`): how many, up to `capacity` of them in
// `members`; -1 where there is no such list.
int cplatform_epoll_members(int set, int *members, int capacity);
// Waits until a descriptor is readable. False when a signal came instead.
bool cplatform_wait_for_readable(int descriptor);

// MARK: Signals

// False for SIGKILL, SIGSTOP, the signals that report a fault, those that the C library keeps, and for what is no signal.
bool cplatform_is_watchable_signal(int signal);
// Counts a signal, and wakes `ends` when there is one to be taken: the same ends as for `cplatform_wake`, to stay open until the watch is let
// go of. The first watch of a signal installs a handler, which calls the one that was there before it; the last one puts that back, if
// nobody has installed another meanwhile. Null with errno: ENOMEM, EBUSY when others have done so too often.
struct cplatform_signal_watch;
struct cplatform_signal_watch *cplatform_watch_signal(int signal, const int ends[2]);
// How many have come since the last call. Any thread.
uint64_t cplatform_take_signals(struct cplatform_signal_watch *watch);
// Frees the watch; no handler touches it, or its ends, when this returns. Waits for handlers in progress on other threads, as far as they are
// ours. Not in a signal handler.
void cplatform_unwatch_signal(struct cplatform_signal_watch *watch);

// MARK: Child processes

// How a process ended: `status` is its exit code, or the signal that killed it.
struct cplatform_exit {
    bool was_killed, dumped_core;
    int32_t status;
};
// How this child of ours ended, without waiting: 1, or 0 when it has not; -1 with ECHILD when it is no child of ours, or its status has been
// taken by somebody. `takes`: it is buried then, and can be asked no more. No other child is touched. With the descriptor of
// `cplatform_child_descriptor` (else -1) also none that has got the number of a child which somebody else has buried, where the kernel knows how.
int cplatform_child_status(int32_t child, int descriptor, bool takes, struct cplatform_exit *exit);
// A close-on-exec descriptor that becomes readable when the process ends; it may have ended already. -1 with ENOSYS where there is none.
int cplatform_child_descriptor(int32_t child);
// For tests: as on a kernel without such descriptors, from now on.
void cplatform_tests_refuse_child_descriptors(bool refuses);

// MARK: Stream sockets. Those made here are non-blocking and close-on-exec; a failure is -1 with errno unless it says otherwise.

// A socket address of any kind that the library knows.
struct cplatform_address {
    uint32_t length;
    _Alignas(8) unsigned char bytes[128];
};
enum { CPLATFORM_IPV4 = 4, CPLATFORM_IPV6 = 6, CPLATFORM_UNIX = 1, CPLATFORM_HOST_SIZE = 96 };
// False when the text is no numeric host, or the path is empty, too long, or has a zero where none may be.
bool cplatform_make_ipv4(struct cplatform_address *address, const char *host, uint16_t port);
bool cplatform_make_ipv6(struct cplatform_address *address, const char *host, uint16_t port);
bool cplatform_make_unix(struct cplatform_address *address, const char *path, uint32_t length);
// One of the kinds, or 0.
int cplatform_address_kind(const struct cplatform_address *address);
// For the two kinds of internet addresses.
uint16_t cplatform_address_port(const struct cplatform_address *address);
void cplatform_address_host(const struct cplatform_address *address, char text[CPLATFORM_HOST_SIZE]);
// Not ended by a zero; as long as the address. An abstract name begins with a zero.
const char *cplatform_address_path(const struct cplatform_address *address, uint32_t *length);
bool cplatform_address_is_any_ipv6(const struct cplatform_address *address);
int cplatform_local_address(int descriptor, struct cplatform_address *address);

int cplatform_make_socket(const struct cplatform_address *address);
// Binds and listens. Null, or the name of the call that failed, with errno.
const char *cplatform_listen(int descriptor, const struct cplatform_address *address, int backlog, bool reuse_port, bool ipv6_only);
int cplatform_accept(int listener, struct cplatform_address *peer);
// What an errno of `cplatform_accept` means for the listener.
enum { CPLATFORM_ACCEPT_NOTHING, CPLATFORM_ACCEPT_LOST, CPLATFORM_ACCEPT_EXHAUSTED, CPLATFORM_ACCEPT_BROKEN };
int cplatform_accept_failure(int code);
// Both: 0 when connected, EINPROGRESS while that goes on, else the errno.
int cplatform_connect(int descriptor, const struct cplatform_address *address);
int cplatform_connect_result(int descriptor);
int cplatform_duplicate(int descriptor);

// Which file stands at the path of a Unix address; -1 for an abstract name, or when there is none.
int cplatform_bound_file(const struct cplatform_address *address, uint64_t *device, uint64_t *inode);
// Removes it, if it is still that file.
void cplatform_unlink_bound_file(const struct cplatform_address *address, uint64_t device, uint64_t inode);

// MARK: libevent's bases

struct event_base;
struct event_config;
// Calls `make`, which is `event_base_new_with_config`, when the process has descriptors to spare. Null with errno also where libevent would
// end the process.
struct event_base *cplatform_make_event_base(
    struct event_base *(*make)(const struct event_config *), const struct event_config *config);
// For `event_set_fatal_callback`. Calls what was given to `cplatform_on_libevent_failure`, unless the thread is making a base.
void cplatform_libevent_gave_up(int code);
void cplatform_on_libevent_failure(void (*body)(int code));

// MARK: The dispatch main queue

// libdispatch's entry points for run loops, weak: where Dispatch is not loaded they are absent.
// The handle is an eventfd on Linux; it must be read, and then the callback called, on the main thread.
bool cplatform_main_queue_available(void);
int cplatform_main_queue_descriptor(void);
void cplatform_main_queue_drain(void);

// MARK: The async main

// Has the Swift runtime call `drain`, which does not return, where it would otherwise give the main thread to Dispatch: when an async `main`
// suspends for the first time. False where the runtime has no such hook, or somebody else has taken it.
bool cplatform_divert_async_main(void (*drain)(void));

#endif
