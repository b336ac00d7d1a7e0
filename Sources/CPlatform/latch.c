// Threads wait on a condition until a deadline of the monotonic clock.

#include "CPlatform.h"

#include <time.h>

static struct timespec time_of(int64_t nanoseconds) {
    struct timespec time = {.tv_sec = (time_t)(nanoseconds / 1000000000), .tv_nsec = (long)(nanoseconds % 1000000000)};
    return time;
}

#if defined(__APPLE__)

static void make_condition(pthread_cond_t *condition) { pthread_cond_init(condition, 0); }

static void wait_once(struct cplatform_latch *latch, int64_t deadline, int64_t now) {
    struct timespec left = time_of(deadline - now);
    pthread_cond_timedwait_relative_np(&latch->condition, &latch->mutex, &left);
}

#else

static void make_condition(pthread_cond_t *condition) {
    pthread_condattr_t attributes;
    pthread_condattr_init(&attributes);
    // The default is the wall clock, and setting that clock must not end a wait.
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_cond_init(condition, &attributes);
    pthread_condattr_destroy(&attributes);
}

static void wait_once(struct cplatform_latch *latch, int64_t deadline, int64_t now) {
    (void)now;
    struct timespec date = time_of(deadline);
    pthread_cond_timedwait(&latch->condition, &latch->mutex, &date);
}

#endif

void cplatform_make_latch(struct cplatform_latch *latch) {
    pthread_mutex_init(&latch->mutex, 0);
    make_condition(&latch->condition);
    latch->is_open = false;
}

void cplatform_destroy_latch(struct cplatform_latch *latch, bool is_inherited) {
    // pthread_cond_destroy(3p) may wait for the waiters, which a child does not have.
    if (!is_inherited) pthread_cond_destroy(&latch->condition);
    pthread_mutex_destroy(&latch->mutex);
}

void cplatform_open_latch(struct cplatform_latch *latch) {
    pthread_mutex_lock(&latch->mutex);
    latch->is_open = true;
    pthread_cond_broadcast(&latch->condition);
    pthread_mutex_unlock(&latch->mutex);
}

bool cplatform_wait_for_latch(struct cplatform_latch *latch, int64_t deadline) {
    // "When a cancellation request is acted upon, or a thread calls pthread_exit", the mutex is locked (pthread_cond_wait(3p)), and nobody
    // would unlock it. And what the thread waits for may refer to its stack.
    int cancellation = cplatform_hold_cancellation();
    pthread_mutex_lock(&latch->mutex);
    while (!latch->is_open) {  // ends: the latch opens, or the deadline passes
        if (deadline == INT64_MAX) {
            pthread_cond_wait(&latch->condition, &latch->mutex);
            continue;
        }
        int64_t now = (int64_t)cplatform_nanoseconds();
        if (now >= deadline) break;
        wait_once(latch, deadline, now);
    }
    bool is_open = latch->is_open;
    pthread_mutex_unlock(&latch->mutex);
    cplatform_resume_cancellation(cancellation);
    return is_open;
}
