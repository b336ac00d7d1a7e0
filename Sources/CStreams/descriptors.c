// Reading and writing without SIGPIPE, EINTR, and the errors that mean an end.

#if defined(__linux__) && !defined(_GNU_SOURCE)
#define _GNU_SOURCE
#endif
#include "CStreams.h"

#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

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
    close(set);
    return result;
}
#else
int cstreams_is_file(int descriptor) {
    struct stat file;
    return fstat(descriptor, &file) == 0 && (S_ISREG(file.st_mode) || S_ISDIR(file.st_mode) || S_ISBLK(file.st_mode));
}
#endif

// The kernel would keep a small message until the peer has acknowledged the one before. Streams gather by themselves. Fails for other sockets.
static void send_small_messages_at_once(int descriptor) {
    int on = 1;
    setsockopt(descriptor, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
}

int cstreams_prepare(int descriptor, int kind) {
    int status = fcntl(descriptor, F_GETFL);
    if (status < 0) return errno;
    if (!(status & O_NONBLOCK) && fcntl(descriptor, F_SETFL, status | O_NONBLOCK) != 0) return errno;
    int flags = fcntl(descriptor, F_GETFD);
    if (flags < 0) return errno;
    if (!(flags & FD_CLOEXEC) && fcntl(descriptor, F_SETFD, flags | FD_CLOEXEC) != 0) return errno;
    if (kind != CSTREAMS_SOCKET) return 0;
    send_small_messages_at_once(descriptor);
    return silence_socket(descriptor);
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

ptrdiff_t cstreams_read(int descriptor, int kind, void *bytes, size_t count) {
    for (;;) {  // ends: a signal interrupts a call that does not block at most a few times
        ssize_t result = read(descriptor, bytes, count);
        if (result >= 0) return result;
        if (errno == EINTR) continue;
        if (errno == EWOULDBLOCK) return -EAGAIN;
        return errno == EIO && kind == CSTREAMS_TERMINAL ? 0 : -errno;
    }
}

static ssize_t write_once(int descriptor, int kind, const struct iovec *parts, int count) {
    if (kind != CSTREAMS_SOCKET) return writev(descriptor, parts, count);
    struct msghdr message;
    memset(&message, 0, sizeof(message));
    message.msg_iov = (struct iovec *)parts;
    message.msg_iovlen = count;
    return sendmsg(descriptor, &message, NO_SIGNAL);
}

static ptrdiff_t write_repeated(int descriptor, int kind, const struct iovec *parts, int count) {
    for (;;) {  // ends: as in cstreams_read
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
        while (sigtimedwait(&pipe_signal, 0, &none) < 0 && errno == EINTR) {}  // ends: the signal is pending, or was ignored
#else
        sigpending(&pending);
        int taken;
        if (sigismember(&pending, SIGPIPE)) sigwait(&pipe_signal, &taken);
#endif
    }
    pthread_sigmask(SIG_SETMASK, &old, 0);
    return result;
}

ptrdiff_t cstreams_write_parts(int descriptor, int kind, const struct iovec *parts, int count) {
    return kind == CSTREAMS_PIPE ? write_silently(descriptor, kind, parts, count) : write_repeated(descriptor, kind, parts, count);
}

ptrdiff_t cstreams_write(int descriptor, int kind, const void *bytes, size_t count) {
    if (kind != CSTREAMS_SOCKET) {
        struct iovec part = {(void *)bytes, count};
        return cstreams_write_parts(descriptor, kind, &part, 1);
    }
    for (;;) {  // ends: as in cstreams_read
        ssize_t result = send(descriptor, bytes, count, NO_SIGNAL);
        if (result >= 0) return result;
        if (errno != EINTR) return errno == EWOULDBLOCK ? -EAGAIN : -errno;
    }
}

int cstreams_finish_writing(int descriptor) { return shutdown(descriptor, SHUT_WR) == 0 ? 0 : errno; }

bool cstreams_is_write_only(int descriptor) {
    int status = fcntl(descriptor, F_GETFL);
    return status >= 0 && (status & O_ACCMODE) == O_WRONLY;
}

bool cstreams_is_blocking(int descriptor) {
    int status = fcntl(descriptor, F_GETFL);
    return status >= 0 && !(status & O_NONBLOCK);
}

void cstreams_make_blocking(int descriptor) {
    int status = fcntl(descriptor, F_GETFL);
    if (status >= 0) (void)fcntl(descriptor, F_SETFL, status & ~O_NONBLOCK);
}
