// Calls that leave a simulation: they block, use real sockets, or start threads and processes. They are the executable's own definitions, so that
// the libraries of the process call them, too. On threads of no simulation they do what the originals do.
// And hops to loops of other threads.

#define _GNU_SOURCE
#include "scheduler.h"

#ifdef CSIM_SUPPORTED
#include <dlfcn.h>
#include <errno.h>
#include <execinfo.h>
#include <fcntl.h>
#include <netdb.h>
#include <poll.h>
#include <semaphore.h>
#include <signal.h>
#include <spawn.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define EXPORT __attribute__((visibility("default")))
#define NEXT(name, type) ({ static __typeof__(type) found; if (!found) found = (__typeof__(type))dlsym(RTLD_NEXT, name); found; })

/// True if the call must not block: the run does not allow escapes, and ends after this step.
__attribute__((noinline)) static bool escape(const char *call, bool blocks) {
    csim_run *run = csim_of_thread;
    if (!run || run->is_over) return false;
    // What the report does is no escape.
    csim_of_thread = NULL;
    // This function and the one that it is called by are no callers.
    void *callers[24];
    int count = backtrace(callers, 24) - 2;
    run->callbacks.escape(run->callbacks.context, call, callers + 2, count < 0 ? 0 : count, blocks);
    csim_of_thread = run;
    return blocks && !run->allows_escapes;
}

/// A call that is counted and carried out.
#define NOTED(result, name, parameters, arguments)               \
    EXPORT result name parameters {                              \
        escape(#name, false);                                    \
        return NEXT(#name, result (*) parameters) arguments;     \
    }
/// A call that blocks if `condition` holds, and then does `refusal` in place of that.
#define BLOCKING(result, name, parameters, arguments, condition, refusal) \
    EXPORT result name parameters {                                       \
        if (csim_of_thread && (condition) && escape(#name, true)) {       \
            refusal;                                                      \
        }                                                                 \
        return NEXT(#name, result (*) parameters) arguments;              \
    }
#define FAIL(code) errno = code; return -1
static const struct timespec no_time;
static struct timeval no_wait;

// MARK: Threads and processes

NOTED(int, pthread_create, (pthread_t *thread, const pthread_attr_t *attributes, void *(*start)(void *), void *argument), (thread, attributes, start, argument))
NOTED(int, pthread_join, (pthread_t thread, void **value), (thread, value))
NOTED(pid_t, fork, (void), ())
NOTED(int, system, (const char *command), (command))
NOTED(int, posix_spawn, (pid_t *restrict child, const char *restrict path, const posix_spawn_file_actions_t *actions, const posix_spawnattr_t *restrict attributes, char *const *restrict arguments, char *const *restrict environment), (child, path, actions, attributes, arguments, environment))
NOTED(int, posix_spawnp, (pid_t *restrict child, const char *restrict file, const posix_spawn_file_actions_t *actions, const posix_spawnattr_t *restrict attributes, char *const *restrict arguments, char *const *restrict environment), (child, file, actions, attributes, arguments, environment))
BLOCKING(pid_t, wait, (int *status), (status), true, FAIL(EINTR))
BLOCKING(pid_t, waitpid, (pid_t child, int *status, int options), (child, status, options), !(options & WNOHANG), FAIL(EINTR))
BLOCKING(pid_t, wait4, (pid_t child, int *status, int options, struct rusage *usage), (child, status, options, usage), !(options & WNOHANG), FAIL(EINTR))
BLOCKING(int, waitid, (idtype_t type, id_t id, siginfo_t *info, int options), (type, id, info, options), !(options & WNOHANG), FAIL(EINTR))

// MARK: Waiting for others

BLOCKING(int, pthread_cond_wait, (pthread_cond_t *condition, pthread_mutex_t *mutex), (condition, mutex), true, return 0)
BLOCKING(int, pthread_cond_timedwait, (pthread_cond_t *condition, pthread_mutex_t *mutex, const struct timespec *limit), (condition, mutex, limit), true, return ETIMEDOUT)
BLOCKING(int, pthread_cond_clockwait, (pthread_cond_t *condition, pthread_mutex_t *mutex, clockid_t clock, const struct timespec *limit), (condition, mutex, clock, limit), true, return ETIMEDOUT)
BLOCKING(int, pthread_barrier_wait, (pthread_barrier_t *barrier), (barrier), true, return 0)
BLOCKING(int, sem_wait, (sem_t *semaphore), (semaphore), true, FAIL(EINTR))
BLOCKING(int, sem_timedwait, (sem_t *restrict semaphore, const struct timespec *restrict limit), (semaphore, limit), true, FAIL(ETIMEDOUT))
BLOCKING(int, sem_clockwait, (sem_t *restrict semaphore, clockid_t clock, const struct timespec *restrict limit), (semaphore, clock, limit), true, FAIL(ETIMEDOUT))
BLOCKING(int, pause, (void), (), true, FAIL(EINTR))
BLOCKING(int, sigsuspend, (const sigset_t *mask), (mask), true, FAIL(EINTR))
BLOCKING(int, sigwait, (const sigset_t *restrict set, int *restrict number), (set, number), true, return EINTR)
BLOCKING(int, sigwaitinfo, (const sigset_t *restrict set, siginfo_t *restrict info), (set, info), true, FAIL(EINTR))
BLOCKING(int, sigtimedwait, (const sigset_t *restrict set, siginfo_t *restrict info, const struct timespec *restrict limit), (set, info, limit), true, FAIL(EAGAIN))

// MARK: Sleeping

BLOCKING(int, nanosleep, (const struct timespec *time, struct timespec *left), (time, left), true, return 0)
BLOCKING(int, clock_nanosleep, (clockid_t clock, int flags, const struct timespec *time, struct timespec *left), (clock, flags, time, left), true, return 0)
BLOCKING(int, usleep, (useconds_t time), (time), true, return 0)
BLOCKING(unsigned, sleep, (unsigned seconds), (seconds), true, return 0)

// MARK: Waiting for descriptors. The world's loop asks without waiting.

BLOCKING(int, poll, (struct pollfd *descriptors, nfds_t count, int timeout), (descriptors, count, timeout), timeout != 0, timeout = 0)
BLOCKING(int, ppoll, (struct pollfd *descriptors, nfds_t count, const struct timespec *timeout, const sigset_t *mask), (descriptors, count, timeout, mask), true, timeout = &no_time)
BLOCKING(int, select, (int count, fd_set *restrict reading, fd_set *restrict writing, fd_set *restrict others, struct timeval *restrict timeout), (count, reading, writing, others, timeout), true, timeout = &no_wait)
BLOCKING(int, pselect, (int count, fd_set *restrict reading, fd_set *restrict writing, fd_set *restrict others, const struct timespec *restrict timeout, const sigset_t *restrict mask), (count, reading, writing, others, timeout, mask), true, timeout = &no_time)
BLOCKING(int, epoll_wait, (int set, struct epoll_event *events, int count, int timeout), (set, events, count, timeout), timeout != 0, timeout = 0)
BLOCKING(int, epoll_pwait, (int set, struct epoll_event *events, int count, int timeout, const sigset_t *mask), (set, events, count, timeout, mask), timeout != 0, timeout = 0)
BLOCKING(int, epoll_pwait2, (int set, struct epoll_event *events, int count, const struct timespec *timeout, const sigset_t *mask), (set, events, count, timeout, mask), !timeout || timeout->tv_sec || timeout->tv_nsec, timeout = &no_time)

// MARK: Sockets

NOTED(int, socket, (int domain, int type, int protocol), (domain, type, protocol))
NOTED(int, socketpair, (int domain, int type, int protocol, int pair[2]), (domain, type, protocol, pair))
NOTED(ssize_t, send, (int descriptor, const void *bytes, size_t count, int flags), (descriptor, bytes, count, flags))
NOTED(ssize_t, sendto, (int descriptor, const void *bytes, size_t count, int flags, const struct sockaddr *address, socklen_t length), (descriptor, bytes, count, flags, address, length))
NOTED(ssize_t, sendmsg, (int descriptor, const struct msghdr *message, int flags), (descriptor, message, flags))
BLOCKING(int, connect, (int descriptor, const struct sockaddr *address, socklen_t length), (descriptor, address, length), true, FAIL(ECONNREFUSED))
BLOCKING(int, accept, (int descriptor, struct sockaddr *restrict address, socklen_t *restrict length), (descriptor, address, length), true, FAIL(EAGAIN))
BLOCKING(int, accept4, (int descriptor, struct sockaddr *restrict address, socklen_t *restrict length, int flags), (descriptor, address, length, flags), true, FAIL(EAGAIN))
BLOCKING(ssize_t, recv, (int descriptor, void *bytes, size_t count, int flags), (descriptor, bytes, count, flags), true, FAIL(EAGAIN))
BLOCKING(ssize_t, recvfrom, (int descriptor, void *restrict bytes, size_t count, int flags, struct sockaddr *restrict address, socklen_t *restrict length), (descriptor, bytes, count, flags, address, length), true, FAIL(EAGAIN))
BLOCKING(ssize_t, recvmsg, (int descriptor, struct msghdr *message, int flags), (descriptor, message, flags), true, FAIL(EAGAIN))
BLOCKING(int, getaddrinfo, (const char *restrict name, const char *restrict service, const struct addrinfo *restrict hints, struct addrinfo **restrict result), (name, service, hints, result), true, return EAI_AGAIN)

/// A socket, or a pipe or terminal that has nothing to read. Files have no state that somebody else decides at this moment.
static bool reads_from_elsewhere(int descriptor) {
    struct stat status;
    if (fstat(descriptor, &status) != 0) return false;
    if (S_ISSOCK(status.st_mode)) return true;
    if (!S_ISFIFO(status.st_mode) && !isatty(descriptor)) return false;
    struct pollfd one = {descriptor, POLLIN, 0};
    return NEXT("poll", int (*)(struct pollfd *, nfds_t, int))(&one, 1, 0) == 0;
}
/// Foundation's `UUID()` reads /dev/urandom.
static bool reads_chance(int descriptor) {
    struct stat status;
    if (fstat(descriptor, &status) != 0 || !S_ISCHR(status.st_mode)) return false;
    return status.st_rdev == makedev(1, 8) || status.st_rdev == makedev(1, 9);
}
EXPORT ssize_t read(int descriptor, void *bytes, size_t count) {
    if (csim_of_thread && reads_chance(descriptor)) {
        csim_fill(csim_of_thread, bytes, count);
        return (ssize_t)count;
    }
    if (csim_of_thread && reads_from_elsewhere(descriptor) && escape("read", true)) {
        FAIL(EAGAIN);
    }
    return NEXT("read", ssize_t (*)(int, void *, size_t))(descriptor, bytes, count);
}
BLOCKING(ssize_t, readv, (int descriptor, const struct iovec *parts, int count), (descriptor, parts, count), reads_from_elsewhere(descriptor), FAIL(EAGAIN))

// MARK: Dispatch

NOTED(void, dispatch_async, (void *queue, void *block), (queue, block))
NOTED(void, dispatch_async_f, (void *queue, void *context, void *work), (queue, context, work))
NOTED(void, dispatch_barrier_async, (void *queue, void *block), (queue, block))
NOTED(void, dispatch_group_async, (void *group, void *queue, void *block), (group, queue, block))
NOTED(void, dispatch_group_notify, (void *group, void *queue, void *block), (group, queue, block))
NOTED(void, dispatch_after, (uint64_t when, void *queue, void *block), (when, queue, block))
NOTED(void, dispatch_after_f, (uint64_t when, void *queue, void *context, void *work), (when, queue, context, work))
NOTED(void, dispatch_sync, (void *queue, void *block), (queue, block))
NOTED(void, dispatch_sync_f, (void *queue, void *context, void *work), (queue, context, work))
NOTED(void, dispatch_barrier_sync, (void *queue, void *block), (queue, block))
NOTED(void, dispatch_async_and_wait, (void *queue, void *block), (queue, block))
NOTED(void, dispatch_apply, (size_t count, void *queue, void *block), (count, queue, block))
NOTED(void *, dispatch_source_create, (void *type, uintptr_t handle, unsigned long mask, void *queue), (type, handle, mask, queue))
BLOCKING(intptr_t, dispatch_semaphore_wait, (void *semaphore, uint64_t timeout), (semaphore, timeout), true, timeout = 0)
BLOCKING(intptr_t, dispatch_group_wait, (void *group, uint64_t timeout), (group, timeout), true, timeout = 0)
BLOCKING(intptr_t, dispatch_block_wait, (void *block, uint64_t timeout), (block, timeout), true, timeout = 0)

// MARK: Hops

bool csim_leaves(csim_run *run, csim_task_state task, csim_executor to) {
    if (csim_is_crashed(run, task.process)) return false;
    // What the report does is no escape.
    csim_of_thread = NULL;
    bool has_left = run->callbacks.leaves(run->callbacks.context, &task, to);
    csim_of_thread = run;
    return has_left;
}

bool csim_may_hop(csim_run *run, csim_executor to) {
    struct csim_task *record = csim_find_task(run, csim_running_task());
    if (!record) return true;
    record->has_left = csim_leaves(run, csim_identity_of(record), to);
    if (record->has_left) csim_hand_over(run, record);
    return !record->has_left || run->allows_escapes;
}
#endif
