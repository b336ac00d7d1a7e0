#if !defined(__linux__)
#include "CPlatform.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/event.h>
#include <sys/types.h>
#include <unistd.h>

int cplatform_make_port_set(struct cplatform_port_set *set) {
    set->alarm = -1;
    set->set = kqueue();
    if (set->set < 0) return -1;
    fcntl(set->set, F_SETFD, FD_CLOEXEC);
    return 0;
}

void cplatform_close_port_set(struct cplatform_port_set *set) {
    if (set->set >= 0) close(set->set);
    set->set = -1;
}

static int change(const struct cplatform_port_set *set, int descriptor, int16_t filter, uint16_t flags, uint64_t token) {
    struct kevent change;
    EV_SET(&change, (uintptr_t)descriptor, filter, flags, 0, 0, (void *)(uintptr_t)token);
    return kevent(set->set, &change, 1, 0, 0, 0);
}

int cplatform_port_set_watch(const struct cplatform_port_set *set, int descriptor, uint64_t token, int wanted, bool is_new) {
    (void)is_new;
    // The read filter reports a hang-up as an end of file. A low-water mark that no data reaches suppresses everything else.
    int result = 0;
    if (wanted & CPLATFORM_READ) {
        result = change(set, descriptor, EVFILT_READ, EV_ADD, token);
    } else if (wanted & CPLATFORM_CLOSED) {
        struct kevent mark;
        EV_SET(&mark, (uintptr_t)descriptor, EVFILT_READ, EV_ADD, NOTE_LOWAT, INT32_MAX, (void *)(uintptr_t)token);
        result = kevent(set->set, &mark, 1, 0, 0, 0);
    } else {
        change(set, descriptor, EVFILT_READ, EV_DELETE, token);
    }
    if (wanted & CPLATFORM_WRITE) {
        if (result == 0) result = change(set, descriptor, EVFILT_WRITE, EV_ADD, token);
    } else {
        change(set, descriptor, EVFILT_WRITE, EV_DELETE, token);
    }
    return result;
}

void cplatform_port_set_forget(const struct cplatform_port_set *set, int descriptor) {
    change(set, descriptor, EVFILT_READ, EV_DELETE, 0);
    change(set, descriptor, EVFILT_WRITE, EV_DELETE, 0);
}

void cplatform_port_set_alarm(const struct cplatform_port_set *set, int64_t nanoseconds) {
    struct kevent alarm;
    if (nanoseconds == 0) {
        EV_SET(&alarm, 0, EVFILT_TIMER, EV_DELETE, 0, 0, 0);
    } else {
        int64_t left = nanoseconds - (int64_t)cplatform_nanoseconds();
        EV_SET(&alarm, 0, EVFILT_TIMER, EV_ADD | EV_ONESHOT, NOTE_NSECONDS, left > 1 ? left : 1, (void *)CPLATFORM_ALARM_TOKEN);
    }
    kevent(set->set, &alarm, 1, 0, 0, 0);
}

bool cplatform_alarm_stays(void) { return false; }

int cplatform_port_set_take(const struct cplatform_port_set *set, struct cplatform_port_event *events, int limit) {
    struct kevent ready[64];
    struct timespec now = {0, 0};
    int count = kevent(set->set, 0, 0, ready, limit < 64 ? limit : 64, &now);
    if (count < 0) return 0;
    for (int index = 0; index < count; index++) {
        int bits = 0;
        if (ready[index].flags & EV_ERROR) bits |= CPLATFORM_BROKEN;
        if (ready[index].flags & EV_EOF) bits |= CPLATFORM_CLOSED;
        if (ready[index].filter == EVFILT_READ) bits |= CPLATFORM_READ;
        if (ready[index].filter == EVFILT_WRITE) bits |= CPLATFORM_WRITE;
        events[index] = (struct cplatform_port_event){.token = (uint64_t)(uintptr_t)ready[index].udata, .ready = bits};
    }
    return count;
}

// kqueue(2) cannot watch the file of a socket. It can watch an open directory, but only for all of its changes.
int cplatform_watch_file(const char *directory, const char *file) {
    (void)directory, (void)file;
    errno = ENOSYS;
    return -1;
}

void cplatform_drain_file_watch(int watch) { (void)watch; }

#endif
