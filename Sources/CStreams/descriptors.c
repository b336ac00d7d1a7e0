// Reading and writing without SIGPIPE, EINTR, and the errors that mean an end.

#if defined(__linux__) && !defined(_GNU_SOURCE)
#define _GNU_SOURCE
#endif
#include "CPlatform.h"
#include "CStreams.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>
#if defined(__linux__)
#include <sys/syscall.h>
#endif

#if defined(__linux__)
enum { NO_SIGNAL = MSG_NOSIGNAL };
static int silence_socket(int descriptor) { (void)descriptor; return 0; }
#else
enum { NO_SIGNAL = 0 };
static int silence_socket(int descriptor) {
    int on = 1;
    return setsockopt(descriptor, SOL_SOCKET, SO_NOSIGPIPE, &on, sizeof(on)) == 0 ? 0 : errno;
}
#endif

// MARK: Calls in which a thread cannot be cancelled

#if defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
// They know the C library's functions only: which bytes a call reads or writes, and which thread has sent before which one received.
#define HAS_SANITIZER 1
#endif
#endif

#if defined(__linux__) && defined(SYS_recvfrom) && defined(SYS_sendto) && !defined(HAS_SANITIZER)
// Most calls of a stream are these two. syscall(2) is no cancellation point, and costs less than recv(2) and send(2).
static ssize_t receive(int descriptor, void *bytes, size_t count) {
    return syscall(SYS_recvfrom, descriptor, bytes, count, MSG_DONTWAIT, (void *)0, (void *)0);
}

static ssize_t send_bytes(int descriptor, const void *bytes, size_t count) {
    return syscall(SYS_sendto, descriptor, bytes, count, NO_SIGNAL | MSG_DONTWAIT, (void *)0, 0L);
}
#else
static ssize_t receive(int descriptor, void *bytes, size_t count) {
    int state = cplatform_hold_cancellation();
    ssize_t result = recv(descriptor, bytes, count, MSG_DONTWAIT);
    cplatform_resume_cancellation(state);
    return result;
}

static ssize_t send_bytes(int descriptor, const void *bytes, size_t count) {
    int state = cplatform_hold_cancellation();
    ssize_t result = send(descriptor, bytes, count, NO_SIGNAL | MSG_DONTWAIT);
    cplatform_resume_cancellation(state);
    return result;
}
#endif

static ssize_t send_message(int descriptor, const struct msghdr *message) {
    int state = cplatform_hold_cancellation();
    ssize_t result = sendmsg(descriptor, message, NO_SIGNAL | MSG_DONTWAIT);
    cplatform_resume_cancellation(state);
    return result;
}

void cstreams_close(int descriptor) { cplatform_close(descriptor); }

// MARK: Kinds

int cstreams_kind(int descriptor) {
    struct stat file;
    if (fstat(descriptor, &file) != 0) return -1;
    if (S_ISSOCK(file.st_mode)) return CSTREAMS_SOCKET;
    if (S_ISFIFO(file.st_mode)) return CSTREAMS_PIPE;
    return S_ISCHR(file.st_mode) && isatty(descriptor) ? CSTREAMS_TERMINAL : CSTREAMS_OTHER;
}

#if defined(__linux__)
#include <sys/epoll.h>
// epoll says it: EPERM. A trial in a set of its own; without descriptors for that, the answer is by the kind of file.
int cstreams_is_file(int descriptor) {
    struct stat file;
    if (fstat(descriptor, &file) != 0) return 0;
    if (S_ISREG(file.st_mode) || S_ISDIR(file.st_mode) || S_ISBLK(file.st_mode)) return 1;
    if (!S_ISCHR(file.st_mode)) return 0;
    int set = epoll_create1(EPOLL_CLOEXEC);
    if (set < 0) return 0;
    struct epoll_event event = {.events = EPOLLIN};
    int result = epoll_ctl(set, EPOLL_CTL_ADD, descriptor, &event) != 0 && errno == EPERM;
    cstreams_close(set);
    return result;
}
#else
int cstreams_is_file(int descriptor) {
    struct stat file;
    return fstat(descriptor, &file) == 0 && (S_ISREG(file.st_mode) || S_ISDIR(file.st_mode) || S_ISBLK(file.st_mode));
}
#endif

// MARK: Options of sockets

#if defined(__APPLE__)
enum { IDLE = TCP_KEEPALIVE, USER_TIMEOUT = -1 };
#else
enum { IDLE = TCP_KEEPIDLE, USER_TIMEOUT = TCP_USER_TIMEOUT };
#endif

int cstreams_set_option(int descriptor, enum cstreams_option option, int value) {
    static const struct { int level, name; } options[] = {
        [CSTREAMS_NO_DELAY] = {IPPROTO_TCP, TCP_NODELAY},        [CSTREAMS_SEND_BUFFER] = {SOL_SOCKET, SO_SNDBUF},
        [CSTREAMS_RECEIVE_BUFFER] = {SOL_SOCKET, SO_RCVBUF},     [CSTREAMS_KEEP_ALIVE] = {SOL_SOCKET, SO_KEEPALIVE},
        [CSTREAMS_KEEP_IDLE] = {IPPROTO_TCP, IDLE},              [CSTREAMS_KEEP_INTERVAL] = {IPPROTO_TCP, TCP_KEEPINTVL},
        [CSTREAMS_KEEP_COUNT] = {IPPROTO_TCP, TCP_KEEPCNT},      [CSTREAMS_UNACKNOWLEDGED] = {IPPROTO_TCP, USER_TIMEOUT},
    };
    return setsockopt(descriptor, options[option].level, options[option].name, &value, sizeof(value)) == 0 ? 0 : errno;
}

int cstreams_peer_credentials(int descriptor, int32_t *process, uint32_t *user, uint32_t *group) {
    struct sockaddr_storage local;
    socklen_t length = sizeof(local);
    if (getsockname(descriptor, (struct sockaddr *)&local, &length) != 0) return errno;
    if (local.ss_family != AF_UNIX) return ENOTSUP;
#if defined(__linux__)
    struct ucred peer;
    length = sizeof(peer);
    if (getsockopt(descriptor, SOL_SOCKET, SO_PEERCRED, &peer, &length) != 0) return errno;
    (*process = peer.pid, *user = peer.uid, *group = peer.gid);
#else
    uid_t uid;
    gid_t gid;
    pid_t pid = 0;
    if (getpeereid(descriptor, &uid, &gid) != 0) return errno;
    length = sizeof(pid);
    getsockopt(descriptor, SOL_LOCAL, LOCAL_PEERPID, &pid, &length);
    (*process = pid, *user = uid, *group = gid);
#endif
    return 0;
}

int cstreams_close_on_exec(int descriptor) {
    int flags = fcntl(descriptor, F_GETFD);
    if (flags < 0) return errno;
    return (flags & FD_CLOEXEC) || fcntl(descriptor, F_SETFD, flags | FD_CLOEXEC) == 0 ? 0 : errno;
}

// MARK: Open files that others may have

static short poll_now(int descriptor, short events) {
    struct pollfd entry = {.fd = descriptor, .events = events};
    int state = cplatform_hold_cancellation();
    int count = poll(&entry, 1, 0);
    cplatform_resume_cancellation(state);
    return count > 0 ? entry.revents : 0;
}

#if defined(__linux__)
// A pty's controlling side: opened again, it would be the side of another pty.
static bool is_controller(int descriptor) {
    unsigned int number;
    return ioctl(descriptor, TIOCGPTN, &number) == 0;
}

static int open_again(int descriptor, int kind, int mode) {
    char path[40];
    // /proc/self has no descriptors when the main thread has ended (pthread_exit).
    snprintf(path, sizeof(path), "/proc/thread-self/fd/%d", descriptor);
    const int flags = O_NONBLOCK | O_CLOEXEC | O_NOCTTY;
    int again = open(path, mode | flags);
    if (again >= 0 || errno != ENXIO || kind != CSTREAMS_PIPE || mode != O_WRONLY) return again;
    // fifo(7): opening the writing end without waiting fails with ENXIO if nobody has the reading end. So somebody has it for a moment.
    int both = open(path, O_RDWR | flags);
    if (both < 0) return -1;
    again = open(path, mode | flags);
    close(both);
    return again;
}

// Gives the number an open file of its own. False if the system lets nobody open the file again.
static bool separate(int descriptor, int kind, int mode) {
    int again = open_again(descriptor, kind, mode);
    if (again < 0) return false;
    // A named pipe that is opened after its last writer has gone reports no hang-up.
    bool is_same = kind != CSTREAMS_PIPE || mode != O_RDONLY || !(poll_now(descriptor, POLLIN) & POLLHUP) || (poll_now(again, POLLIN) & POLLHUP);
    bool is_done = is_same && dup3(again, descriptor, O_CLOEXEC) >= 0;
    close(again);
    return is_done;
}
#endif

static int make_nonblocking(int descriptor, int status) {
    return (status & O_NONBLOCK) || fcntl(descriptor, F_SETFL, status | O_NONBLOCK) == 0 ? 0 : errno;
}

int cstreams_prepare(int descriptor, int *kind, bool *restores) {
    *restores = false;
    int code = cstreams_close_on_exec(descriptor);
    if (code != 0) return code;
    if (*kind == CSTREAMS_SOCKET) return silence_socket(descriptor);
    int status = fcntl(descriptor, F_GETFL);
    if (status < 0) return errno;
#if defined(__linux__)
    if (*kind == CSTREAMS_PIPE || (*kind == CSTREAMS_TERMINAL && !is_controller(descriptor))) {
        // open(2) and close(2) are cancellation points.
        int state = cplatform_hold_cancellation();
        if (!separate(descriptor, *kind, status & O_ACCMODE)) *kind |= CSTREAMS_ASKS_FIRST;
        cplatform_resume_cancellation(state);
        return 0;
    }
#endif
    *restores = !(status & O_NONBLOCK);
    return make_nonblocking(descriptor, status);
}

int cstreams_check_connected(int descriptor, bool has_peer) {
    int type = 0;
    socklen_t length = sizeof(type);
    if (getsockopt(descriptor, SOL_SOCKET, SO_TYPE, &type, &length) != 0) return errno;
    if (type != SOCK_STREAM) return EPROTOTYPE;
    if (has_peer) return 0;
    struct sockaddr_storage peer;
    length = sizeof(peer);
    if (getpeername(descriptor, (struct sockaddr *)&peer, &length) == 0) return 0;
    // A connection that the peer has reset is none any more, on some systems. Its first read reports that.
    return errno == EINVAL ? 0 : errno;
}

// Where the file's own flag cannot be used. A call that moves at most PIPE_BUF bytes does not wait then, unless another process is faster.
static bool would_wait(int descriptor, int kind, short events) {
    return (kind & CSTREAMS_ASKS_FIRST) && poll_now(descriptor, events) == 0;
}

#if defined(__linux__)
void cstreams_drop_error_messages(int descriptor) {
    // Other sockets ignore the flag, and would give the bytes that have come meanwhile.
    int domain = 0;
    socklen_t size = sizeof(domain);
    if (getsockopt(descriptor, SOL_SOCKET, SO_DOMAIN, &domain, &size) != 0 || (domain != AF_INET && domain != AF_INET6)) return;
    int state = cplatform_hold_cancellation();
    char control[512], data[256];
    for (int count = 0; count < 64; count++) {  // bounded: the rest is dropped in the next pass
        struct iovec part = {data, sizeof(data)};
        struct msghdr message;
        memset(&message, 0, sizeof(message));
        (message.msg_iov = &part, message.msg_iovlen = 1, message.msg_control = control, message.msg_controllen = sizeof(control));
        if (recvmsg(descriptor, &message, MSG_ERRQUEUE | MSG_DONTWAIT) < 0) break;
    }
    cplatform_resume_cancellation(state);
}
#else
void cstreams_drop_error_messages(int descriptor) { (void)descriptor; }
#endif

static ssize_t read_file(int descriptor, void *bytes, size_t count) {
    int state = cplatform_hold_cancellation();
    ssize_t result = read(descriptor, bytes, count);
    cplatform_resume_cancellation(state);
    return result;
}

ptrdiff_t cstreams_read(int descriptor, int kind, void *bytes, size_t count) {
    for (;;) {  // ends: a signal interrupts a call that does not block at most a few times
        if (would_wait(descriptor, kind, POLLIN)) return -EAGAIN;
        ssize_t result = kind == CSTREAMS_SOCKET ? receive(descriptor, bytes, count) : read_file(descriptor, bytes, count);
        if (result >= 0) return result;
        if (errno == EINTR) continue;
        if (errno == EWOULDBLOCK) return -EAGAIN;
        return errno == EIO && (kind & CSTREAMS_TERMINAL) == CSTREAMS_TERMINAL ? 0 : -errno;
    }
}

static ssize_t write_file(int descriptor, int kind, const struct iovec *parts, int count) {
    int state = cplatform_hold_cancellation();
    ssize_t result = kind & CSTREAMS_ASKS_FIRST ? write(descriptor, parts->iov_base, parts->iov_len < PIPE_BUF ? parts->iov_len : PIPE_BUF)
                                                : writev(descriptor, parts, count);
    cplatform_resume_cancellation(state);
    return result;
}

static ssize_t write_once(int descriptor, int kind, const struct iovec *parts, int count) {
    if (kind != CSTREAMS_SOCKET) return write_file(descriptor, kind, parts, count);
    struct msghdr message;
    memset(&message, 0, sizeof(message));
    message.msg_iov = (struct iovec *)parts;
    message.msg_iovlen = count;
    return send_message(descriptor, &message);
}

static ptrdiff_t write_repeated(int descriptor, int kind, const struct iovec *parts, int count) {
    for (;;) {  // ends: as in cstreams_read
        if (would_wait(descriptor, kind, POLLOUT)) return -EAGAIN;
        ssize_t result = write_once(descriptor, kind, parts, count);
        if (result >= 0) return result;
        if (errno != EINTR) return errno == EWOULDBLOCK ? -EAGAIN : -errno;
    }
}

// A write to a pipe without a reader raises SIGPIPE in this thread. It is blocked for the call, and taken back, unless it was pending before.
static ptrdiff_t write_silently(int descriptor, int kind, const struct iovec *parts, int count) {
    sigset_t pipe_signal, old, pending;
    sigemptyset(&pipe_signal);
    sigaddset(&pipe_signal, SIGPIPE);
    sigpending(&pending);
    if (sigismember(&pending, SIGPIPE)) return write_repeated(descriptor, kind, parts, count);
    pthread_sigmask(SIG_BLOCK, &pipe_signal, &old);
    ptrdiff_t result = write_repeated(descriptor, kind, parts, count);
    if (result == -EPIPE) {
#if defined(__linux__)
        struct timespec none = {0, 0};
        int state = cplatform_hold_cancellation();
        while (sigtimedwait(&pipe_signal, 0, &none) < 0 && errno == EINTR) {}  // ends: the signal is pending, or was ignored
        cplatform_resume_cancellation(state);
#else
        sigpending(&pending);
        int taken, state = cplatform_hold_cancellation();
        if (sigismember(&pending, SIGPIPE)) sigwait(&pipe_signal, &taken);
        cplatform_resume_cancellation(state);
#endif
    }
    pthread_sigmask(SIG_SETMASK, &old, 0);
    return result;
}

ptrdiff_t cstreams_write_parts(int descriptor, int kind, const struct iovec *parts, int count) {
    return (kind & ~CSTREAMS_ASKS_FIRST) == CSTREAMS_PIPE ? write_silently(descriptor, kind, parts, count) : write_repeated(descriptor, kind, parts, count);
}

ptrdiff_t cstreams_write(int descriptor, int kind, const void *bytes, size_t count) {
    if (kind != CSTREAMS_SOCKET) {
        struct iovec part = {(void *)bytes, count};
        return cstreams_write_parts(descriptor, kind, &part, 1);
    }
    for (;;) {  // ends: as in cstreams_read
        ssize_t result = send_bytes(descriptor, bytes, count);
        if (result >= 0) return result;
        if (errno != EINTR) return errno == EWOULDBLOCK ? -EAGAIN : -errno;
    }
}

int cstreams_finish_writing(int descriptor) { return shutdown(descriptor, SHUT_WR) == 0 ? 0 : errno; }

bool cstreams_can_read(int descriptor) {
    int status = fcntl(descriptor, F_GETFL);
    return status < 0 || (status & O_ACCMODE) != O_WRONLY;
}

bool cstreams_has_lost_reader(int descriptor) { return poll_now(descriptor, 0) & (POLLERR | POLLHUP); }

#if defined(__linux__)
enum { PEER_FINISHED = POLLRDHUP };
#else
enum { PEER_FINISHED = 0 };
#endif

bool cstreams_peer_has_finished(int descriptor) {
    short seen = poll_now(descriptor, PEER_FINISHED);
    if (seen & POLLNVAL) return false;
    // An error alone is a lost reader at the writing end of a pipe; at a socket it may be a message in the error queue.
    return (seen & (PEER_FINISHED | POLLHUP)) || ((seen & POLLERR) && cstreams_kind(descriptor) == CSTREAMS_PIPE);
}

void cstreams_make_blocking(int descriptor) {
    int status = fcntl(descriptor, F_GETFL);
    if (status >= 0) (void)fcntl(descriptor, F_SETFL, status & ~O_NONBLOCK);
}
