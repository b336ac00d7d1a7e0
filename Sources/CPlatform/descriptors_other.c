#if !defined(__linux__)
#include "CPlatform.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
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
    // Not a cancellation point: nobody else writes for the sleep that this ends.
    int cancellation = cplatform_hold_cancellation();
    while (write(ends[1], &one, 1) < 0 && errno == EINTR) {}
    cplatform_resume_cancellation(cancellation);
    errno = saved;
}

int cplatform_make_placeholder(void) { return open("/dev/null", O_RDONLY | O_CLOEXEC); }

// libevent's own timeouts replace it there (kqueue's are precise).
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

int cplatform_make_wall_timer(void) {
    errno = ENOSYS;
    return -1;
}
int cplatform_arm_wall_timer(int timer, int64_t nanoseconds, bool reports_settings) {
    (void)timer;
    (void)nanoseconds;
    (void)reports_settings;
    errno = ENOSYS;
    return -1;
}
int64_t cplatform_wall_clock_offset(void) { return 0; }
int64_t cplatform_suspended_nanoseconds(void) { return 0; }

int cplatform_probe_descriptor(int descriptor) {
    if (descriptor < 0 || fcntl(descriptor, F_GETFD) < 0) return EBADF;
    int trial = kqueue();
    if (trial < 0) return errno;
    struct kevent change;
    EV_SET(&change, descriptor, EVFILT_READ, EV_ADD, 0, 0, 0);
    int result = kevent(trial, &change, 1, 0, 0, 0) < 0 ? (errno == EINVAL ? EPERM : errno) : 0;
    cplatform_close(trial);
    return result;
}

static short poll_events(int wanted) {
    short events = 0;
    if (wanted & CPLATFORM_READ) events |= POLLIN;
    if (wanted & CPLATFORM_WRITE) events |= POLLOUT;
    return events;
}

static int readiness_of(short events) {
    int ready = 0;
    if (events & (POLLERR | POLLNVAL)) ready |= CPLATFORM_BROKEN;
    if (events & POLLIN) ready |= CPLATFORM_READ;
    if (events & POLLOUT) ready |= CPLATFORM_WRITE;
    if (events & POLLHUP) ready |= CPLATFORM_CLOSED | CPLATFORM_READ;
    return ready;
}

int cplatform_readiness(int descriptor, int wanted) {
    struct pollfd entry = {.fd = descriptor, .events = poll_events(wanted)};
    return poll(&entry, 1, 0) <= 0 ? 0 : readiness_of(entry.revents);
}

int cplatform_poll(struct cplatform_polled *entries, int count, int64_t nanoseconds) {
    int64_t milliseconds = nanoseconds / 1000000 + (nanoseconds % 1000000 != 0);
    int timeout = milliseconds > 1000000 ? 1000000 : (int)milliseconds;
    struct pollfd first, *polled = calloc((size_t)count, sizeof(*polled));
    if (!polled) {
        polled = &first;
        count = 1;
    }
    for (int index = 0; index < count; index++)
        polled[index] = (struct pollfd){.fd = entries[index].descriptor, .events = poll_events(entries[index].wanted)};
    int ready = poll(polled, (nfds_t)count, timeout);
    // poll(2) refuses more entries than the process may have descriptors. The first one still wakes the thread.
    if (ready < 0 && errno != EINTR) ready = poll(polled, 1, timeout);
    if (ready < 0 && errno != EINTR) usleep(1000);
    for (int index = 0; ready > 0 && index < count; index++) entries[index].ready = readiness_of(polled[index].revents);
    if (polled != &first) free(polled);
    return ready < 0 ? 0 : ready;
}

int cplatform_make_nested_poller(int descriptor, int wanted, bool edge, bool one_shot) {
    if (wanted & (CPLATFORM_PRIORITY | CPLATFORM_ERROR)) {
        errno = ENOTSUP;
        return -1;
    }
    int nested_poller = kqueue();
    if (nested_poller < 0) return -1;
    unsigned short flags = EV_ADD | (edge ? EV_CLEAR : 0) | (one_shot ? EV_ONESHOT : 0);
    struct kevent changes[2];
    int count = 0;
    if (wanted & (CPLATFORM_READ | CPLATFORM_CLOSED)) EV_SET(&changes[count++], descriptor, EVFILT_READ, flags, 0, 0, 0);
    if (wanted & CPLATFORM_WRITE) EV_SET(&changes[count++], descriptor, EVFILT_WRITE, flags, 0, 0, 0);
    if (kevent(nested_poller, changes, count, 0, 0, 0) < 0) {
        int saved = errno;
        close(nested_poller);
        errno = saved;
        return -1;
    }
    return nested_poller;
}

// Never called here: it is for errors without a hang-up, which are not reported.
int cplatform_set_nested_trigger(int nested_poller, int descriptor, int wanted, bool edge) { return ENOTSUP; }

int cplatform_poll_nested_poller(int nested_poller) {
    struct kevent events[2];
    struct timespec now = {0, 0};
    int count = kevent(nested_poller, 0, 0, events, 2, &now), ready = 0;
    for (int i = 0; i < count; i++) {
        if (events[i].flags & EV_ERROR) ready |= CPLATFORM_BROKEN;
        if (events[i].flags & EV_EOF) ready |= CPLATFORM_CLOSED;
        if (events[i].filter == EVFILT_READ) ready |= CPLATFORM_READ;
        if (events[i].filter == EVFILT_WRITE) ready |= CPLATFORM_WRITE;
    }
    return ready;
}

// Never called here: a closed descriptor leaves the kernel's set, whatever duplicates it has.
int cplatform_find_epoll_set(int member) { return -1; }
int cplatform_epoll_members(int set, int *members, int capacity) { return -1; }
int cplatform_epoll_contains(int set, int member) { return -1; }

// A kqueue could be found with EV_ENABLE, and put into another one. But there the deadline is a timeout of libevent's, which makes no kqueue
// readable, so that is not enough, and nothing of it has been tried.
int cplatform_make_outer_set(void) {
    errno = ENOTSUP;
    return -1;
}
int cplatform_add_inner_set(int outer, int inner) { return ENOTSUP; }
void cplatform_remove_inner_set(int outer, int inner) {}
int64_t cplatform_coarse_now(int64_t *tick) {
    *tick = 0;
    return 0;
}

bool cplatform_wait_for_readable(int descriptor, int milliseconds) {
    struct pollfd entry = {.fd = descriptor, .events = POLLIN};
    return poll(&entry, 1, milliseconds) > 0;
}

#endif
