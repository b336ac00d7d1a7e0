// The sockets of a service manager: the one that we notify, and those that it passes to us.

#if defined(__linux__) && !defined(_GNU_SOURCE)
#define _GNU_SOURCE
#endif
#include "CPlatform.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#if defined(__linux__)
#define NOTIFIER_TYPE (SOCK_DGRAM | SOCK_CLOEXEC)
#define SEND_FLAGS MSG_NOSIGNAL
#else
#define NOTIFIER_TYPE SOCK_DGRAM
#define SEND_FLAGS 0
#endif

int cplatform_make_notifier(int milliseconds) {
    int descriptor = socket(AF_UNIX, NOTIFIER_TYPE, 0);
    if (descriptor < 0) return -1;
    struct timeval limit = {.tv_sec = milliseconds / 1000, .tv_usec = milliseconds % 1000 * 1000};
    int code = cplatform_set_close_on_exec(descriptor);
    if (code == 0 && setsockopt(descriptor, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof(limit)) < 0) code = errno;
    if (code == 0) return descriptor;
    close(descriptor);
    errno = code;
    return -1;
}

int cplatform_send_datagram(int descriptor, const struct cplatform_address *to, const void *bytes, size_t count, bool waits) {
    int flags = SEND_FLAGS | (waits ? 0 : MSG_DONTWAIT);
    // A signal interrupts a wait, which then begins again. Bounded, so that a flood of signals does not extend it for ever.
    for (int tries = 0; tries < 16; tries++) {
        if (sendto(descriptor, bytes, count, flags, (const struct sockaddr *)to->bytes, to->length) >= 0) return 0;
        if (errno != EINTR) return errno;
    }
    return EINTR;
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
