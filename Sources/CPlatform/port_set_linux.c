#if defined(__linux__)
#define _GNU_SOURCE
#include "CPlatform.h"

#include <errno.h>
#include <sys/epoll.h>
#include <sys/inotify.h>
#include <unistd.h>

int cplatform_make_port_set(struct cplatform_port_set *set) {
    set->alarm = -1;
    set->set = epoll_create1(EPOLL_CLOEXEC);
    if (set->set < 0) return -1;
    set->alarm = cplatform_make_deadline_timer();
    if (set->alarm >= 0 && cplatform_port_set_watch(set, set->alarm, CPLATFORM_ALARM_TOKEN, CPLATFORM_READ, true) == 0) return 0;
    int saved = errno;
    cplatform_close_port_set(set);
    errno = saved;
    return -1;
}

void cplatform_close_port_set(struct cplatform_port_set *set) {
    if (set->alarm >= 0) close(set->alarm);
    if (set->set >= 0) close(set->set);
    set->set = set->alarm = -1;
}

int cplatform_port_set_watch(const struct cplatform_port_set *set, int descriptor, uint64_t token, int wanted, bool is_new) {
    struct epoll_event event = {.events = 0, .data.u64 = token};
    if (wanted & CPLATFORM_READ) event.events |= EPOLLIN;
    if (wanted & CPLATFORM_WRITE) event.events |= EPOLLOUT;
    if (wanted & CPLATFORM_CLOSED) event.events |= EPOLLRDHUP;
    return epoll_ctl(set->set, is_new ? EPOLL_CTL_ADD : EPOLL_CTL_MOD, descriptor, &event);
}

void cplatform_port_set_forget(const struct cplatform_port_set *set, int descriptor) {
    epoll_ctl(set->set, EPOLL_CTL_DEL, descriptor, NULL);
}

void cplatform_port_set_alarm(const struct cplatform_port_set *set, int64_t nanoseconds) {
    // Setting a timer that has expired also makes it unreadable, timerfd_create(2).
    cplatform_arm_deadline_timer(set->alarm, nanoseconds);
}

bool cplatform_alarm_stays(void) { return true; }

int cplatform_port_set_take(const struct cplatform_port_set *set, struct cplatform_port_event *events, int limit) {
    struct epoll_event ready[64];
    int count = epoll_wait(set->set, ready, limit < 64 ? limit : 64, 0);
    if (count < 0) return 0;
    for (int index = 0; index < count; index++) {
        int bits = 0;
        if (ready[index].events & (EPOLLERR | EPOLLHUP)) bits |= CPLATFORM_BROKEN;
        if (ready[index].events & EPOLLIN) bits |= CPLATFORM_READ;
        if (ready[index].events & EPOLLOUT) bits |= CPLATFORM_WRITE;
        if (ready[index].events & EPOLLRDHUP) bits |= CPLATFORM_CLOSED;
        events[index] = (struct cplatform_port_event){.token = ready[index].data.u64, .ready = bits};
    }
    return count;
}

int cplatform_watch_file(const char *directory, const char *file) {
    int watch = inotify_init1(IN_CLOEXEC | IN_NONBLOCK);
    if (watch < 0) return -1;
    // inotify(7): removing a file changes its link count, which is IN_ATTRIB. IN_DELETE_SELF comes only once the file is closed.
    if (inotify_add_watch(watch, file, IN_ATTRIB | IN_MOVE_SELF | IN_DELETE_SELF | IN_DONT_FOLLOW) >= 0
        && inotify_add_watch(watch, directory, IN_MOVE_SELF | IN_DELETE_SELF) >= 0) {
        return watch;
    }
    int saved = errno;
    close(watch);
    errno = saved;
    return -1;
}

void cplatform_drain_file_watch(int watch) {
    _Alignas(8) char events[4096];
    if (watch < 0) return;
    // Bounded: a process that keeps changing the file must not keep the reader here. What is left is reported again.
    for (int turn = 0; turn < 4 && read(watch, events, sizeof(events)) > 0; turn++) {}
}

#endif
