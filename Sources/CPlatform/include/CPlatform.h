#ifndef EVENTLOOP_CPLATFORM_H
#define EVENTLOOP_CPLATFORM_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <unistd.h>

#include "CPlatformPorts.h"
#include "CPlatformSupervisor.h"

// MARK: Errors

// The symbol of an errno, such as "EACCES"; null if it has none here.
const char *cplatform_error_name(int code);
// The system's message, with a zero byte at its end. Thread-safe, unlike strerror(3).
void cplatform_error_message(int code, char *buffer, unsigned size);

// MARK: Threads

// The calling thread's run loop. Swift has no thread-local variables. A pthread key costs a library call; this is one load, on a path
// that every wake-up and every timer change takes.
struct cplatform_thread {
    uint64_t loop_id;  // 0: the thread has no loop (yet), or it is a child's, and its loop the parent process's
    void *loop;        // unretained; the thread's exit handler holds the reference
    uint64_t adopted_loop_id;  // the ended loop whose jobs this thread runs; otherwise 0
    bool reports_warning;      // inside the handler of warnings
};
extern _Thread_local struct cplatform_thread cplatform_thread_state;

static inline uint64_t cplatform_current_loop_id(void) { return cplatform_thread_state.loop_id; }
static inline void *cplatform_current_loop(void) { return cplatform_thread_state.loop; }
static inline void cplatform_set_current_loop(uint64_t id, void *loop) {
    cplatform_thread_state.loop_id = id;
    cplatform_thread_state.loop = loop;
}

// Returns false if the thread is inside the handler of warnings already.
static inline bool cplatform_begin_warning(void) {
    if (cplatform_thread_state.reports_warning) return false;
    return cplatform_thread_state.reports_warning = true;
}
static inline void cplatform_end_warning(void) { cplatform_thread_state.reports_warning = false; }

static inline uint64_t cplatform_adopted_loop_id(void) { return cplatform_thread_state.adopted_loop_id; }
static inline void cplatform_set_adopted_loop(uint64_t id) { cplatform_thread_state.adopted_loop_id = id; }

// Between these two a pthread_cancel does not end the calling thread. The second gets what the first has returned. Many functions of the C library
// are cancellation points (pthread_setcancelstate(3)): a thread that ended in one would keep a lock or its turn for ever, or not report an end.
static inline int cplatform_hold_cancellation(void) {
    int state;
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &state);
    return state;
}
static inline void cplatform_resume_cancellation(int state) { pthread_setcancelstate(state, 0); }

// close(2), and no cancellation point: a thread that ended in it would leave the descriptor open for ever.
static inline void cplatform_close(int descriptor) {
    int state = cplatform_hold_cancellation();
    close(descriptor);
    cplatform_resume_cancellation(state);
}

// Whether the caller is the process's first thread. After fork that is the child's only thread.
bool cplatform_is_main_thread(void);

// The kernel's ids of the calling thread and of the process's first thread; 0 if the platform has none.
int32_t cplatform_thread_id(void);
int32_t cplatform_main_thread_id(void);

// The name appears in `top -H` and in debuggers, cut to the platform's limit (15 bytes on Linux).
void cplatform_name_this_thread(const char *name);

// ThreadSanitizer does not record what the calling thread reads and writes between these two. Nothing else changes, and without the sanitizer
// they do nothing. For accesses whose order the sanitizer cannot see: the Swift runtime's own synchronization is not built for it.
void cplatform_begin_unrecorded_accesses(void);
void cplatform_end_unrecorded_accesses(void);

// MARK: Forks

// The number of forks between the start of the program and this process: 0, and one more in every child. `_Fork`, `vfork` and `clone` call
// no handlers and are not counted.
extern int cplatform_forks;
static inline int cplatform_fork_count(void) { return cplatform_forks; }

// The parts of the library that have process-wide state, in the order in which they are held.
enum { CPLATFORM_GLOBALS_OF_WATCHDOG, CPLATFORM_GLOBALS_OF_PORTS, CPLATFORM_GLOBALS_OF_LOOPS, CPLATFORM_GLOBALS_OF_SOCKETS, CPLATFORM_GLOBALS_PARTS };

// Makes every later fork call `hold` before it, and `release` after it in both processes. Calls both once before it first returns, so that
// Swift's lazy values are made; `hold` accesses all of them. Thread-safe. A second call for a part is one load.
void cplatform_hold_globals(int part, void (*hold)(void), void (*release)(bool in_child));

// The main thread's loop, retained forever; null before it is made. A C variable, because a child of fork would wait forever for a Swift
// one that another thread was initializing.
void *cplatform_main_loop(void);
// Must be called once.
void cplatform_set_main_loop(void *loop);

// MARK: Time

// The processor's own clock, in its own units. Use it for differences only, and convert them by comparing with the system's clock. On every
// processor since about 2010 it runs at a constant speed. On other processors: nanoseconds.
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

// How long the machine has been suspended since its start, in nanoseconds; too much by what passes between two readings of the system's clock. 0
// where the system does not report it.
int64_t cplatform_suspended_nanoseconds(void);

// MARK: Recordings

// How many loops of the process are recorded. A C variable, because each post reads it.
extern int cplatform_recordings_in_progress;
static inline int cplatform_recordings(void) { return __atomic_load_n(&cplatform_recordings_in_progress, __ATOMIC_RELAXED); }
static inline void cplatform_count_recordings(int change) {
    __atomic_fetch_add(&cplatform_recordings_in_progress, change, __ATOMIC_RELAXED);
}

// MARK: Locking

// A lock of one word, zero when free. It replaces Synchronization.Mutex for two reasons (decision 16): ThreadSanitizer does not see into
// the mutex's slow path and reports races where there are none (Swift 6.3), and this lock detects forks.
//
// A lock that another thread held at a fork is *inherited* in the child: nobody will unlock it, and the state under it may be half changed.
struct cplatform_lock { uint32_t word; };
// Traps with a message if the lock is inherited.
void cplatform_lock(struct cplatform_lock *lock);
// Returns false if the lock is inherited.
bool cplatform_lock_if_own(struct cplatform_lock *lock);
void cplatform_unlock(struct cplatform_lock *lock);
// Whether some thread holds the lock: for assertions.
bool cplatform_lock_is_held(struct cplatform_lock *lock);

// Threads wait until it is open. It stays open.
struct cplatform_latch {
    pthread_mutex_t mutex;  // of `is_open`
    pthread_cond_t condition;
    bool is_open;
};
void cplatform_make_latch(struct cplatform_latch *latch);
// `is_inherited`: the process was forked from the one that made the latch.
void cplatform_destroy_latch(struct cplatform_latch *latch, bool is_inherited);
void cplatform_open_latch(struct cplatform_latch *latch);
// Returns false if the deadline passes first: nanoseconds of the monotonic clock, INT64_MAX for none. No cancellation point.
bool cplatform_wait_for_latch(struct cplatform_latch *latch, int64_t deadline);

// Lets the processor know that the caller spins, so that it yields to the other thread of the core.
static inline void cplatform_relax(void) {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

// MARK: Descriptors. Those made here are non-blocking and close-on-exec. A failure is -1 with errno.

// A descriptor that wakes a sleeping loop: the loop watches `ends[0]`, producers write to `ends[1]` (with eventfd they are the same).
int cplatform_make_wake_channel(int ends[2]);
// Makes `ends[0]` readable. An eventfd that is already readable has a new edge. Async-signal-safe; preserves errno.
void cplatform_wake(const int ends[2]);

// The events for which a descriptor is polled, and those for which it is ready: bits as below.
struct cplatform_polled {
    int descriptor, wanted, ready;
};
// Waits until an entry is ready, but at most for `nanoseconds`. Returns the number of ready entries. Returns 0 also if a signal interrupted
// the wait, or if there was no memory; in that case the thread has slept.
int cplatform_poll(struct cplatform_polled *entries, int count, int64_t nanoseconds);

// A descriptor without a use of its own: it reserves a number.
int cplatform_make_placeholder(void);
// Whether `count` descriptors can be opened: 0, or the errno of the first that could not.
int cplatform_check_room(int count);
// A check briefly opens every descriptor that is free. Between these two calls no thread checks. Held over forks.
void cplatform_hold_room_checks(void);
void cplatform_release_room_checks(void);

// A timer with a descriptor, on the monotonic clock; -1 with ENOSYS if the platform has none.
int cplatform_make_deadline_timer(void);
// Arms it for an absolute time in nanoseconds; 0 disarms it. A time in the past makes it readable at once.
int cplatform_arm_deadline_timer(int timer, int64_t nanoseconds);

// A timer with a descriptor, on the wall clock; -1 with ENOSYS if the platform has none.
int cplatform_make_wall_timer(void);
// Arms it for an absolute time in nanoseconds since 1970; 0 disarms it. A time in the past makes it readable at once. With
// `reports_settings`, it also becomes readable when the wall clock is set.
int cplatform_arm_wall_timer(int timer, int64_t nanoseconds, bool reports_settings);
// By how much the wall clock is ahead of the time since the start of the machine, suspension included. Only setting the wall clock changes
// it, apart from less than a microsecond by which the two readings differ.
int64_t cplatform_wall_clock_offset(void);

// Asks the kernel whether the descriptor can become ready: 0, or EBADF, EPERM (not pollable) or another errno.
int cplatform_probe_descriptor(int descriptor);

// Readiness, in bits of our own, so that no poller's constants reach Swift. BROKEN is an error or a hang-up; ERROR is set beside it for an error
// without a hang-up, on Linux.
enum {
    CPLATFORM_READ = 1,
    CPLATFORM_WRITE = 2,
    CPLATFORM_CLOSED = 4,
    CPLATFORM_BROKEN = 8,
    CPLATFORM_PRIORITY = 16,
    CPLATFORM_ERROR = 32,
};
// The events for which `descriptor` is ready now, without waiting.
int cplatform_readiness(int descriptor, int wanted);

// A nested poller for one descriptor. Other pollers can watch it as a plain readable descriptor. -1 with errno; ENOTSUP for PRIORITY and ERROR
// where the kernel has neither.
int cplatform_make_nested_poller(int descriptor, int wanted, bool edge, bool one_shot);
// Changes between level and edge. What is ready is reported again. 0 or an errno.
int cplatform_set_nested_trigger(int nested_poller, int descriptor, int wanted, bool edge);
// The readiness that it has collected since the last call: bits, 0 for none.
int cplatform_poll_nested_poller(int nested_poller);

// The epoll set that contains `member`, or -1 if there is none. `member` must have been added to one set only, edge-triggered and for
// reading; it may be reported once more. Tries the open descriptors in order of their distance from the member's number.
int cplatform_find_epoll_set(int member);
// The descriptors in an epoll set, from the kernel's own list (proc(5), fdinfo: `tfd`). Returns their number, and stores at most `capacity`
// of them in `members`; -1 with errno if there is no such list, which is ENOENT if the set has been closed.
int cplatform_epoll_members(int set, int *members, int capacity);
// Whether an epoll set contains the file that `member` refers to, under that number: 1 or 0; -1 as above. The kernel's list alone does not
// say so: it has numbers that were closed, and those of another program, whose set this one has inherited. Changes nothing; only the thread
// that changes the registration of `member` may ask.
int cplatform_epoll_contains(int set, int member);
// Waits until a descriptor is readable, for ever if `milliseconds` is negative. Returns false if the time passed or a signal came instead.
// With a descriptor of -1 it is a pause.
bool cplatform_wait_for_readable(int descriptor, int milliseconds);

// MARK: A set in a set

// A set that is readable as long as the set in it has something to report. -1 with errno; ENOTSUP where there is none.
int cplatform_make_outer_set(void);
// 0 or an errno.
int cplatform_add_inner_set(int outer, int inner);
void cplatform_remove_inner_set(int outer, int inner);

#if defined(__linux__)
// A descriptor that does not run out: each read takes eight bytes and succeeds. -1 with errno.
int cplatform_make_endless(void);
// Makes `number` refer to the file of `descriptor`, to be closed on exec. 0 or an errno.
int cplatform_redirect(int number, int descriptor);
#endif

// The clock of libevent's timeouts, in nanoseconds, and by how much it moves at a time.
int64_t cplatform_coarse_now(int64_t *tick);

// MARK: Signals

// False for SIGKILL, SIGSTOP, the signals that report a fault, the C library's reserved signals, and numbers that are no signal.
bool cplatform_is_watchable_signal(int signal);
// Counts a signal, and wakes `ends` when there is a signal to take. `ends` are those of `cplatform_wake`, and must stay open until the
// watch is freed. The first watch of a signal installs a handler, which also calls the earlier handler. The last watch restores the earlier
// handler, unless other code has installed one since. Null with errno: ENOMEM; EBUSY if other code has done that too often.
struct cplatform_signal_watch;
struct cplatform_signal_watch *cplatform_watch_signal(int signal, const int ends[2]);
// The number of signals since the last call. One thread at a time.
uint64_t cplatform_take_signals(struct cplatform_signal_watch *watch);
// What siginfo_t says about a signal. `sender_process` and `sender_user` are set if `has_sender`.
struct cplatform_signal_details {
    int32_t code;
    bool has_sender, has_value;
    int32_t sender_process;
    uint32_t sender_user;
    int32_t value;
};
// The details of the oldest signal that `cplatform_take_signals` has counted and whose details were not taken; false if there is none, or if its handler
// is still in progress. At most 64 are kept, those of later signals are dropped. One thread at a time.
bool cplatform_take_signal_details(struct cplatform_signal_watch *watch, struct cplatform_signal_details *details);
// Unblocks the signal on this thread if every thread of the process blocks it, so that the kernel could deliver it to none. Returns true if it
// has done so.
bool cplatform_let_signal_through(int signal);
#if defined(__linux__)
// Whether the thread with the kernel's id blocks the signal. True also if it has ended, or if there is no descriptor left to find out.
bool cplatform_thread_blocks_signal(int32_t thread, int signal);
// Whether the signal was sent to the thread with the kernel's id and has not arrived. False if the thread has ended. True also if there is no
// descriptor left to find out.
bool cplatform_is_signal_pending(int32_t thread, int signal);
#endif
// Frees the watch. When this returns, no handler uses it or its ends any more. Waits for the part of handlers in progress on other threads
// that is ours. Must not be called in a signal handler. In a child of fork, only frees the copy of its parent's watch.
void cplatform_unwatch_signal(struct cplatform_signal_watch *watch);

// Installs the handler of watched signals for this one, over whatever is installed, until `cplatform_release_signal`; a second call renews that.
// In the handler, `takes` is called before anything else, for every signal: one that it takes is not counted, and no other handler is called.
// For the watchdog, whose signals nobody else must see. `takes` must be async-signal-safe; its arguments are a siginfo_t and a ucontext_t.
// Returns false, and changes nothing, in the cases in which `cplatform_watch_signal` returns null.
bool cplatform_hold_signal(int signal, bool (*takes)(const void *info, const void *context));
// Restores the earlier action, unless the signal is watched or other code has installed a handler since. Every signal that `takes` must see has
// arrived. No-op if the signal is not held.
void cplatform_release_signal(int signal);

// MARK: An alarm bell, on which one thread waits

// Wakes the waiting thread, or has the next wait return at once. Any thread; async-signal-safe; preserves errno. One system call at most.
void cplatform_ring_alarm(void);
// Waits until the bell rings, at most for `nanoseconds`; negative waits forever. It may return early.
void cplatform_wait_for_alarm(int64_t nanoseconds);

// MARK: Child processes

// How a process ended: `status` is its exit code, or the signal that killed it.
struct cplatform_exit {
    bool was_killed, dumped_core;
    int32_t status;
};
// Finds out how a child of this process ended, without waiting. Returns 1 if it has ended, 0 if not, and -1 with ECHILD if it is no child
// of this process or other code has reaped it. With `takes`, a child that has ended is reaped. Affects no other child. With the descriptor
// of `cplatform_child_descriptor` (otherwise -1), and if the kernel supports it, this also excludes a new child with the number of a reaped
// one.
int cplatform_child_status(int32_t child, int descriptor, bool takes, struct cplatform_exit *exit);
// A close-on-exec descriptor that becomes readable when the process ends; it may have ended already. -1 with ENOSYS if the kernel has none.
int cplatform_child_descriptor(int32_t child);
// For tests: behaves as on a kernel without such descriptors from now on.
void cplatform_tests_refuse_child_descriptors(bool refuses);

// MARK: Stream sockets. Those made here are non-blocking and close-on-exec. Unless stated otherwise, a failure is -1 with errno.

// A socket address of any kind that the library knows.
struct cplatform_address {
    uint32_t length;
    _Alignas(8) unsigned char bytes[128];
};
enum { CPLATFORM_IPV4 = 4, CPLATFORM_IPV6 = 6, CPLATFORM_UNIX = 1, CPLATFORM_HOST_SIZE = 96 };
// Returns false if the text is not a numeric host, or if the path is empty, too long, or has a zero byte where none is allowed.
bool cplatform_make_ipv4(struct cplatform_address *address, const char *host, uint16_t port);
bool cplatform_make_ipv6(struct cplatform_address *address, const char *host, uint16_t port);
bool cplatform_make_unix(struct cplatform_address *address, const char *path, uint32_t length);
// One of the kinds, or 0.
int cplatform_address_kind(const struct cplatform_address *address);
// For the two kinds of internet addresses.
uint16_t cplatform_address_port(const struct cplatform_address *address);
void cplatform_address_host(const struct cplatform_address *address, char text[CPLATFORM_HOST_SIZE]);
// Not zero-terminated; valid as long as the address. An abstract name begins with a zero byte.
const char *cplatform_address_path(const struct cplatform_address *address, uint32_t *length);
bool cplatform_address_is_any_ipv6(const struct cplatform_address *address);
// The addresses of a socket and of its peer: 0, or -1 with errno.
int cplatform_local_address(int descriptor, struct cplatform_address *address);
int cplatform_peer_address(int descriptor, struct cplatform_address *address);

int cplatform_make_socket(const struct cplatform_address *address);
// Binds and listens. Null, or the name of the call that failed, with errno.
const char *cplatform_listen(int descriptor, const struct cplatform_address *address, int backlog, bool reuse_port, bool ipv6_only);
// The descriptor, or minus the errno. If the socket `is_shared`, another process may have shut it down. Then it stays readable, and with a Unix
// socket in non-blocking mode accept(2) of Linux says that nobody waits. Here that is EINVAL.
int cplatform_accept(int listener, struct cplatform_address *peer, bool is_shared);
// accept(2), close-on-exec: on Linux in one step, so that a child which another thread starts meanwhile does not inherit the connection.
// `address` and `size` as there. The connection is in blocking mode on Linux, and in the listener's mode elsewhere.
int cplatform_accept_native(int listener, void *address, uint32_t *size);
// The meaning of an errno of `cplatform_accept` for the listener.
enum { CPLATFORM_ACCEPT_NOTHING, CPLATFORM_ACCEPT_LOST, CPLATFORM_ACCEPT_EXHAUSTED, CPLATFORM_ACCEPT_BROKEN };
int cplatform_accept_failure(int code);
// Whether an errno of a read or a write says that the connection has failed, in both directions.
bool cplatform_is_connection_failure(int code);
// Both return 0 if connected, EINPROGRESS while connecting, otherwise the errno.
int cplatform_connect(int descriptor, const struct cplatform_address *address);
int cplatform_connect_result(int descriptor);
// Makes the socket of a failed attempt writable, so that a set reports it. Elsewhere than on Linux another file may take the number of a socket
// that has never begun to connect.
void cplatform_hang_up(int descriptor);
int cplatform_duplicate(int descriptor);

// Finds out which file is at a path; -1 if there is none.
int cplatform_bound_file(const char *path, uint64_t *device, uint64_t *inode);
// Removes the file at the path, if it is still that file.
void cplatform_unlink_bound_file(const char *path, uint64_t device, uint64_t inode);

// Lets a listening socket accept those in its queue only, as far as the system can. For all processes that have the socket.
void cplatform_refuse_connections(int listener);
bool cplatform_is_readable(int descriptor);
// How many bytes of a connection have come and were not read.
int cplatform_unread_bytes(int descriptor);
bool cplatform_is_blocking(int descriptor);
// Binds a socket that will connect. Returns the operation that failed, with errno set, or null.
const char *cplatform_bind_local(int descriptor, const struct cplatform_address *address);

// MARK: libevent's bases

struct event_base;
struct event_config;
// Calls `make`, which is `event_base_new_with_config`, if the process has enough free descriptors. Returns null with errno where libevent
// would end the process.
struct event_base *cplatform_make_event_base(
    struct event_base *(*make)(const struct event_config *), const struct event_config *config);
// For `event_set_fatal_callback`. Calls the function given to `cplatform_on_libevent_failure`, unless the thread is making a base.
void cplatform_libevent_gave_up(int code);
void cplatform_on_libevent_failure(void (*body)(int code));

// Memory that begins a cache line; ends the process if there is none. What is freed with the same size is kept for the next, some of it.
void *cplatform_allocate_lines(size_t size);
void cplatform_free_lines(void *block, size_t size);

// MARK: The dispatch main queue

// Releases a Swift object until one reference is left; nothing for NULL. For a thread that has the only reference that will ever be released.
void cplatform_release_all_but_one(void *object);

// libdispatch's entry points for run loops, as weak symbols: if Dispatch is not loaded, they are absent.
// The handle is an eventfd on Linux. The main thread must read it, and then call the callback.
bool cplatform_main_queue_available(void);
int cplatform_main_queue_descriptor(void);
void cplatform_main_queue_drain(void);
// The same if another loop of this thread may be draining the queue, in a block of which the caller is: Dispatch does nothing then. If so,
// returns false, and makes the handle readable again for that loop.
bool cplatform_main_queue_drain_unless_draining(void);

// MARK: The async main

// When an async `main` first suspends, the Swift runtime gives the main thread to Dispatch. This makes it call `drain` instead, which does
// not return. Returns false if the runtime has no such hook, or if other code has taken it.
bool cplatform_divert_async_main(void (*drain)(void));

#endif
