// The sockets of a service manager: the one that we notify, and those that it passes to us.

#if defined(__linux__) && !defined(_GNU_SOURCE)
#define _GNU_SOURCE
#endif
#include "CPlatform.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#if defined(__linux__)
#define NOTIFIER_TYPE (SOCK_DGRAM | SOCK_CLOEXEC)
#define SEND_FLAGS (MSG_NOSIGNAL | MSG_DONTWAIT)
#else
#define NOTIFIER_TYPE SOCK_DGRAM
#define SEND_FLAGS MSG_DONTWAIT
#endif

int cplatform_make_notifier(void) {
    int descriptor = socket(AF_UNIX, NOTIFIER_TYPE, 0);
    if (descriptor < 0) return -1;
    int code = cplatform_set_close_on_exec(descriptor);
    if (code == 0) return descriptor;
    close(descriptor);
    errno = code;
    return -1;
}

static int64_t milliseconds_now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (int64_t)time.tv_sec * 1000 + time.tv_nsec / 1000000;
}

int cplatform_send_datagram(int descriptor, const struct cplatform_address *to, const void *bytes, size_t count, int milliseconds) {
    int64_t deadline = milliseconds_now() + milliseconds;
    // poll(2) calls a socket that is not connected writable although its receiver's queue is full. So a wait asks again and again, less and
    // less often.
    struct timespec pause = {.tv_sec = 0, .tv_nsec = 1000000};
    for (;;) {  // ends: with the datagram, an error, or the deadline
        if (sendto(descriptor, bytes, count, SEND_FLAGS, (const struct sockaddr *)to->bytes, to->length) >= 0) return 0;
        int code = errno;
        if (code != EAGAIN && code != EWOULDBLOCK && code != ENOBUFS && code != EINTR) return code;
        if (milliseconds_now() >= deadline) return code == EINTR ? EAGAIN : code;
        if (code == EINTR) continue;
        nanosleep(&pause, NULL);
        if (pause.tv_nsec < 16000000) pause.tv_nsec *= 2;
    }
}

int cplatform_descriptor_kind(int descriptor) {
    int type = 0, listens = 0;
    socklen_t length = sizeof(type);
    if (getsockopt(descriptor, SOL_SOCKET, SO_TYPE, &type, &length) < 0) return errno == ENOTSOCK ? CPLATFORM_OTHER_FILE : -1;
    length = sizeof(listens);
    if (getsockopt(descriptor, SOL_SOCKET, SO_ACCEPTCONN, &listens, &length) < 0) listens = 0;
    switch (type) {
    case SOCK_STREAM: return listens ? CPLATFORM_LISTENER : CPLATFORM_STREAM;
    case SOCK_DGRAM: return CPLATFORM_DATAGRAM;
    case SOCK_SEQPACKET: return CPLATFORM_SEQUENCED;
    default: return CPLATFORM_OTHER_FILE;
    }
}

int cplatform_set_close_on_exec(int descriptor) {
    int flags = fcntl(descriptor, F_GETFD);
    if (flags < 0) return errno;
    return (flags & FD_CLOEXEC) || fcntl(descriptor, F_SETFD, flags | FD_CLOEXEC) == 0 ? 0 : errno;
}

int cplatform_set_nonblocking(int descriptor) {
    int flags = fcntl(descriptor, F_GETFL);
    if (flags < 0) return errno;
    return (flags & O_NONBLOCK) || fcntl(descriptor, F_SETFL, flags | O_NONBLOCK) == 0 ? 0 : errno;
}
