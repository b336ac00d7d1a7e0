#if !defined(__linux__)
#include "CPlatform.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <string.h>
#include <sys/event.h>
#include <sys/types.h>
#include <unistd.h>

static int prepare(int descriptor) {
    if (fcntl(descriptor, F_SETFL, O_NONBLOCK) < 0) return -1;
    return fcntl(descriptor, F_SETFD, FD_CLOEXEC);
}

int cplatform_make_wake_channel(int ends[2]) {
    if (pipe(ends) < 0) return -1;
    if (prepare(ends[0]) < 0 || prepare(ends[1]) < 0) {
        int saved = errno;
        close(ends[0]);
        close(ends[1]);
        errno = saved;
        return -1;
    }
    return 0;
}

void cplatform_wake(const int ends[2]) {
    int saved = errno;
    char one = 1;
    // EAGAIN: the pipe is full, so it is readable.
    while (write(ends[1], &one, 1) < 0 && errno == EINTR) {}
    errno = saved;
}

// libevent's own timeouts take its place there (kqueue's are precise).
int cplatform_make_deadline_timer(void) {
    errno = ENOSYS;
    return -1;
}
int cplatform_arm_deadline_timer(int timer, int64_t nanoseconds) {
    (void)timer;
    (void)nanoseconds;
    errno = ENOSYS;
    return -1;
}

int cplatform_probe_descriptor(int descriptor) {
    if (descriptor < 0 || fcntl(descriptor, F_GETFD) < 0) return EBADF;
    int trial = kqueue();
    if (trial < 0) return errno;
    struct kevent change;
    EV_SET(&change, descriptor, EVFILT_READ, EV_ADD, 0, 0, 0);
    int result = kevent(trial, &change, 1, 0, 0, 0) < 0 ? (errno == EINVAL ? EPERM : errno) : 0;
    close(trial);
    return result;
}

int cplatform_readiness(int descriptor, int wanted) {
    struct pollfd entry = {.fd = descriptor, .events = 0};
    if (wanted & CPLATFORM_READ) entry.events |= POLLIN;
    if (wanted & CPLATFORM_WRITE) entry.events |= POLLOUT;
    if (poll(&entry, 1, 0) <= 0) return 0;
    int ready = 0;
    if (entry.revents & (POLLERR | POLLNVAL)) ready |= CPLATFORM_BROKEN;
    if (entry.revents & POLLIN) ready |= CPLATFORM_READ;
    if (entry.revents & POLLOUT) ready |= CPLATFORM_WRITE;
    if (entry.revents & POLLHUP) ready |= CPLATFORM_CLOSED | CPLATFORM_READ;
    return ready;
}

int cplatform_make_gate(int descriptor, int wanted, bool edge, bool one_shot) {
    int gate = kqueue();
    if (gate < 0) return -1;
    unsigned short flags = EV_ADD | (edge ? EV_CLEAR : 0) | (one_shot ? EV_ONESHOT : 0);
    struct kevent changes[2];
    int count = 0;
    if (wanted & (CPLATFORM_READ | CPLATFORM_CLOSED)) EV_SET(&changes[count++], descriptor, EVFILT_READ, flags, 0, 0, 0);
    if (wanted & CPLATFORM_WRITE) EV_SET(&changes[count++], descriptor, EVFILT_WRITE, flags, 0, 0, 0);
    if (kevent(gate, changes, count, 0, 0, 0) < 0) {
        int saved = errno;
        close(gate);
        errno = saved;
        return -1;
    }
    return gate;
}

int cplatform_take_gate(int gate) {
    struct kevent events[2];
    struct timespec now = {0, 0};
    int count = kevent(gate, 0, 0, events, 2, &now), ready = 0;
    for (int i = 0; i < count; i++) {
        if (events[i].flags & EV_ERROR) ready |= CPLATFORM_BROKEN;
        if (events[i].flags & EV_EOF) ready |= CPLATFORM_CLOSED;
        if (events[i].filter == EVFILT_READ) ready |= CPLATFORM_READ;
        if (events[i].filter == EVFILT_WRITE) ready |= CPLATFORM_WRITE;
    }
    return ready;
}

#endif
