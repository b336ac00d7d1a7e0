#if defined(__linux__)
#define _GNU_SOURCE
#include "CPlatform.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/timerfd.h>
#include <time.h>
#include <unistd.h>

int cplatform_make_wake_channel(int ends[2]) {
    ends[0] = ends[1] = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    return ends[0] < 0 ? -1 : 0;
}

void cplatform_wake(const int ends[2]) {
    int saved = errno;
    uint64_t one = 1;
    // EAGAIN: the counter is full, so it is readable. EINTR cannot come from a non-blocking eventfd.
    // Not `write`, which is a cancellation point: nobody else writes for the sleep that this ends.
    (void)!syscall(SYS_write, ends[1], &one, sizeof(one));
    errno = saved;
}

int cplatform_make_placeholder(void) { return eventfd(0, EFD_CLOEXEC); }

int cplatform_make_deadline_timer(void) { return timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK); }

int cplatform_arm_deadline_timer(int timer, int64_t nanoseconds) {
    struct itimerspec when;
    memset(&when, 0, sizeof(when));
    if (nanoseconds > 0) {
        when.it_value.tv_sec = nanoseconds / 1000000000;
        when.it_value.tv_nsec = nanoseconds % 1000000000;
    }
    return timerfd_settime(timer, TFD_TIMER_ABSTIME, &when, 0);
}

int cplatform_make_wall_timer(void) { return timerfd_create(CLOCK_REALTIME, TFD_CLOEXEC | TFD_NONBLOCK); }

int cplatform_arm_wall_timer(int timer, int64_t nanoseconds, bool reports_settings) {
    struct itimerspec when;
    memset(&when, 0, sizeof(when));
    if (nanoseconds > 0) {
        when.it_value.tv_sec = nanoseconds / 1000000000;
        when.it_value.tv_nsec = nanoseconds % 1000000000;
    }
    int result = timerfd_settime(timer, TFD_TIMER_ABSTIME | (reports_settings ? TFD_TIMER_CANCEL_ON_SET : 0), &when, 0);
    // ECANCELED: the clock was set just now. The timer is armed all the same.
    return result < 0 && errno == ECANCELED ? 0 : result;
}

static int64_t nanoseconds_of(clockid_t clock) {
    struct timespec time;
    clock_gettime(clock, &time);
    return (int64_t)time.tv_sec * 1000000000 + time.tv_nsec;
}

// clock_gettime(2): CLOCK_BOOTTIME is "identical to CLOCK_MONOTONIC, except that it also includes any time that the system is suspended".
int64_t cplatform_suspended_nanoseconds(void) {
    int64_t running = nanoseconds_of(CLOCK_MONOTONIC);
    return nanoseconds_of(CLOCK_BOOTTIME) - running;
}

int64_t cplatform_wall_clock_offset(void) {
    int64_t offset = 0;
    int64_t shortest = INT64_MAX;
    // Of several readings, the one that took the shortest time is the most exact: the thread may lose the processor in between.
    for (int i = 0; i < 5; i++) {
        int64_t before = nanoseconds_of(CLOCK_BOOTTIME);
        int64_t wall = nanoseconds_of(CLOCK_REALTIME);
        int64_t taken = nanoseconds_of(CLOCK_BOOTTIME) - before;
        if (taken >= shortest) continue;
        shortest = taken;
        offset = wall - (before + taken / 2);
    }
    return offset;
}

int cplatform_probe_descriptor(int descriptor) {
    if (descriptor < 0 || fcntl(descriptor, F_GETFD) < 0) return EBADF;
    int trial = epoll_create1(EPOLL_CLOEXEC);
    if (trial < 0) return errno;
    struct epoll_event event = {.events = 0};
    int result = epoll_ctl(trial, EPOLL_CTL_ADD, descriptor, &event) == 0 ? 0 : errno;
    cplatform_close(trial);
    return result;
}

static int readiness_of(short events) {
    int ready = 0;
    if (events & (POLLERR | POLLHUP | POLLNVAL)) ready |= CPLATFORM_BROKEN;
    if ((events & (POLLERR | POLLHUP | POLLNVAL)) == POLLERR) ready |= CPLATFORM_ERROR;
    if (events & POLLPRI) ready |= CPLATFORM_PRIORITY;
    if (events & POLLIN) ready |= CPLATFORM_READ;
    if (events & POLLOUT) ready |= CPLATFORM_WRITE;
    if (events & POLLRDHUP) ready |= CPLATFORM_CLOSED;
    return ready;
}

static short poll_events(int wanted) {
    short events = 0;
    if (wanted & CPLATFORM_READ) events |= POLLIN;
    if (wanted & CPLATFORM_WRITE) events |= POLLOUT;
    if (wanted & CPLATFORM_CLOSED) events |= POLLRDHUP;
    if (wanted & CPLATFORM_PRIORITY) events |= POLLPRI;
    return events;
}

int cplatform_readiness(int descriptor, int wanted) {
    struct pollfd entry = {.fd = descriptor, .events = poll_events(wanted)};
    return poll(&entry, 1, 0) <= 0 ? 0 : readiness_of(entry.revents);
}

static int64_t monotonic_now(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * INT64_C(1000000000) + now.tv_nsec;
}

static struct timespec timespec_of(int64_t nanoseconds) {
    return (struct timespec){.tv_sec = nanoseconds / 1000000000, .tv_nsec = nanoseconds % 1000000000};
}

static int poll_for(struct pollfd *polled, int count, int64_t nanoseconds) {
    struct timespec time = timespec_of(nanoseconds);
    return ppoll(polled, (nfds_t)count, &time, 0);
}

// ppoll(2) refuses more entries than RLIMIT_NOFILE (EINVAL), and a process may lower that. All are asked in slices, every 10 ms. Meanwhile the
// first entry wakes the thread.
static int poll_in_slices(struct pollfd *polled, int count, int64_t nanoseconds) {
    const int64_t pause = 10000000, end = monotonic_now() + nanoseconds;
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) < 0) return -1;
    int most = limit.rlim_cur == 0 ? 1 : limit.rlim_cur < (rlim_t)count ? (int)limit.rlim_cur : count;
    while (true) {  // ends: when one is ready, or the time is over
        int ready = 0;
        for (int begin = 0; begin < count; begin += most) {
            int found = poll_for(&polled[begin], count - begin < most ? count - begin : most, 0);
            if (found < 0) return found;
            ready += found;
        }
        int64_t left = end - monotonic_now();
        if (ready > 0 || left <= 0) return ready;
        if (poll_for(polled, 1, left < pause ? left : pause) < 0) return -1;
    }
}

int cplatform_poll(struct cplatform_polled *entries, int count, int64_t nanoseconds) {
    struct pollfd first, *polled = calloc((size_t)count, sizeof(*polled));
    if (!polled) {
        polled = &first;
        count = 1;
    }
    for (int index = 0; index < count; index++)
        polled[index] = (struct pollfd){.fd = entries[index].descriptor, .events = poll_events(entries[index].wanted)};
    int ready = poll_for(polled, count, nanoseconds);
    if (ready < 0 && errno == EINVAL) ready = poll_in_slices(polled, count, nanoseconds);
    // Where the kernel has no memory for many it has some for one, and the first entry wakes the thread.
    if (ready < 0 && errno != EINTR) ready = poll_for(polled, 1, nanoseconds);
    if (ready < 0 && errno != EINTR) {
        struct timespec time = timespec_of(nanoseconds);
        nanosleep(&time, 0);
    }
    for (int index = 0; ready > 0 && index < count; index++) entries[index].ready = readiness_of(polled[index].revents);
    if (polled != &first) free(polled);
    return ready < 0 ? 0 : ready;
}

// The two families of constants have the same values on Linux, epoll_ctl(2).
static struct epoll_event nested_event(int wanted, bool edge) {
    return (struct epoll_event){.events = (uint32_t)poll_events(wanted) | (edge ? EPOLLET : 0)};
}

int cplatform_set_nested_trigger(int nested_poller, int descriptor, int wanted, bool edge) {
    struct epoll_event event = nested_event(wanted, edge);
    return epoll_ctl(nested_poller, EPOLL_CTL_MOD, descriptor, &event) < 0 ? errno : 0;
}

int cplatform_make_nested_poller(int descriptor, int wanted, bool edge, bool one_shot) {
    int nested_poller = epoll_create1(EPOLL_CLOEXEC);
    if (nested_poller < 0) return -1;
    struct epoll_event event = nested_event(wanted, edge);
    if (one_shot) event.events |= EPOLLONESHOT;
    if (epoll_ctl(nested_poller, EPOLL_CTL_ADD, descriptor, &event) < 0) {
        int saved = errno;
        close(nested_poller);
        errno = saved;
        return -1;
    }
    return nested_poller;
}

int cplatform_poll_nested_poller(int nested_poller) {
    struct epoll_event event;
    if (epoll_wait(nested_poller, &event, 1, 0) <= 0) return 0;
    return readiness_of((short)event.events);
}

// epoll_ctl(2): MOD fails with ENOENT if the descriptor is not in the set, and with EINVAL if there is no set; then it changes nothing.
static bool is_in_set(int set, int member) {
    struct epoll_event event = {.events = EPOLLIN | EPOLLET, .data.fd = member};
    return epoll_ctl(set, EPOLL_CTL_MOD, member, &event) == 0;
}

int cplatform_find_epoll_set(int member) {
    long limit = sysconf(_SC_OPEN_MAX);
    if (limit < 0 || limit > 1 << 20) limit = 1 << 20;
    for (int distance = 1; distance <= member || member + distance < limit; distance++) {
        if (distance <= member && is_in_set(member - distance, member)) return member - distance;
        if (member + distance < limit && is_in_set(member + distance, member)) return member + distance;
    }
    return -1;
}

// /proc/self has no descriptors when the main thread has ended (pthread_exit).
static FILE *list_of_set(int set) {
    char path[64];
    snprintf(path, sizeof(path), "/proc/thread-self/fdinfo/%d", set);
    return fopen(path, "re");
}

int cplatform_epoll_members(int set, int *members, int capacity) {
    char line[256];
    FILE *list = list_of_set(set);
    if (!list) return -1;
    int count = 0, member;
    while (count < capacity && fgets(line, sizeof(line), list))
        if (sscanf(line, "tfd: %d", &member) == 1) members[count++] = member;
    fclose(list);
    return count;
}

int cplatform_epoll_contains(int set, int member) {
    char line[256];
    FILE *list = list_of_set(set);
    if (!list) return -1;
    int contains = 0, number;
    unsigned int events;
    unsigned long long data;
    while (!contains && fgets(line, sizeof(line), list)) {
        if (sscanf(line, "tfd: %d events: %x data: %llx", &number, &events, &data) != 3 || number != member) continue;
        // MOD to what it is: see `is_in_set`. The kernel has an entry for each pair of number and file.
        struct epoll_event same = {.events = events, .data.u64 = data};
        contains = epoll_ctl(set, EPOLL_CTL_MOD, member, &same) == 0;
    }
    fclose(list);
    return contains;
}

int cplatform_make_outer_set(void) { return epoll_create1(EPOLL_CLOEXEC); }

// Level-triggered: the outer set is readable as long as the inner one has anything to report.
int cplatform_add_inner_set(int outer, int inner) {
    struct epoll_event event = {.events = EPOLLIN, .data.fd = inner};
    return epoll_ctl(outer, EPOLL_CTL_ADD, inner, &event) == 0 ? 0 : errno;
}

int cplatform_make_endless(void) {
    // Each read of a semaphore subtracts one.
    int descriptor = eventfd(UINT32_MAX, EFD_SEMAPHORE | EFD_CLOEXEC | EFD_NONBLOCK);
    if (descriptor >= 0) eventfd_write(descriptor, UINT64_MAX - 1 - UINT32_MAX);
    return descriptor;
}

// dup2 would drop the flag.
int cplatform_redirect(int number, int descriptor) { return dup3(descriptor, number, O_CLOEXEC) < 0 ? errno : 0; }

void cplatform_remove_inner_set(int outer, int inner) { epoll_ctl(outer, EPOLL_CTL_DEL, inner, 0); }

// libevent's timeouts follow this clock, which moves in ticks.
int64_t cplatform_coarse_now(int64_t *tick) {
    struct timespec now, resolution;
    clock_gettime(CLOCK_MONOTONIC_COARSE, &now);
    clock_getres(CLOCK_MONOTONIC_COARSE, &resolution);
    *tick = resolution.tv_nsec;
    return now.tv_sec * INT64_C(1000000000) + now.tv_nsec;
}

bool cplatform_wait_for_readable(int descriptor, int milliseconds) {
    // poll(2): "If this field is negative, then the corresponding events field is ignored".
    struct pollfd entry = {.fd = descriptor, .events = POLLIN};
    return poll(&entry, 1, milliseconds) > 0;
}

#endif
