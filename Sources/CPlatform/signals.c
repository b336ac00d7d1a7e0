// Process signals: the watches that are notified, and the earlier handlers that ours calls.
//
// Lifecycle of a watch: made by `cplatform_watch_signal`, freed by `cplatform_unwatch_signal`, both under the lock. A handler that runs on
// another thread may still see a watch that was removed, so the watch is freed after all handlers that had begun by then.
// Lifecycle of the record of an earlier action: allocated when our handler is installed, kept until the same place is reused.

#if defined(__linux__) && !defined(_GNU_SOURCE)
#define _GNU_SOURCE
#endif
#include "CPlatform.h"

#include <dirent.h>
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#if defined(__linux__)
#include <sys/syscall.h>
#endif
#include <unistd.h>

#if !defined(NSIG)
#define NSIG 65
#endif

// How often other code may install a handler over ours and keep it there while ours is removed and installed again.
enum { PLACES = 8, NOBODY = -1 };

// The details of signals that were counted and not yet taken: a bounded queue with many producers, the handlers, and one consumer. `turn` says
// whose the slot is: at number `n` a handler may fill it, and at `n + 1` the consumer may empty it.
enum { DETAILS = 64 };
#define ONE_KEPT (UINT64_C(1) << 32)
struct slot {
    _Atomic uint64_t turn;
    struct cplatform_signal_details details;
};

struct cplatform_signal_watch {
    struct cplatform_signal_watch *_Atomic next;
    // In the upper half, how many of the signals have details in the slots.
    _Atomic uint64_t count;
    int ends[2];
    int signal;
    // At which number of forks it was made. Not the process's number: a child in a namespace of its own, or a late one, may have that of the parent.
    int forks;
    _Atomic uint64_t filled;
    // Of the consumer: details that it has taken, and details of counts that it has taken.
    uint64_t emptied, owed;
    struct slot slots[DETAILS];
};

struct earlier {
    struct sigaction action;
    atomic_bool has_been_called;
};

// If other code has installed a handler over ours, ours cannot be removed: the other may call it. So each installation has a function of
// its own, a *place*, which knows the action before it. Only the latest place of a watch notifies, so that no watch is notified twice and no
// two places call each other.
//
// The watchdog *holds* a signal while one of its own is on the way: the handler is there without a watch, and the filter takes what is the
// watchdog's. One place for both, because two handlers that each know the other as the one before them would call each other.
struct station {
    struct cplatform_signal_watch *_Atomic first;
    atomic_int counting_place;
    struct earlier *_Atomic before[PLACES];
    // Under the lock only. The held place is the one that the end of the hold removes; NOBODY if a watch does that.
    bool is_in_use[PLACES], is_held;
    int held_place;
};

static struct station stations[NSIG];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static _Atomic pid_t owner;
// The watchdog's; null before its first backtrace.
static bool (*_Atomic filter)(const void *, const void *);

// Handlers in progress, counted on two sides, so that a flood of new ones does not delay a thread that waits for the old ones.
static atomic_uint side, handlers[2];

// MARK: In signal context. Atomics, `getpid`, and a `write` to a descriptor; errno is preserved.

// siginfo(2) has the sender only for signals that a process has sent, and the value only for those of sigqueue(3), timers and message queues.
static struct cplatform_signal_details details_of(const siginfo_t *info) {
    struct cplatform_signal_details details = {.code = info->si_code};
    bool is_of_child = info->si_signo == SIGCHLD && info->si_code > 0;
    details.has_sender = info->si_code == SI_USER || info->si_code == SI_QUEUE || info->si_code == SI_MESGQ || is_of_child;
#if defined(__linux__)
    details.has_sender = details.has_sender || info->si_code == SI_TKILL;
#endif
    details.has_value = info->si_code == SI_QUEUE || info->si_code == SI_TIMER || info->si_code == SI_MESGQ;
    if (details.has_sender) {
        details.sender_process = info->si_pid;
        details.sender_user = info->si_uid;
    }
    if (details.has_value) details.value = info->si_value.sival_int;
    return details;
}

// False if the queue is full: then the signal is only counted.
static bool keep_details(struct cplatform_signal_watch *watch, const siginfo_t *info) {
    uint64_t number = atomic_load(&watch->filled);
    while (true) {  // ends: with a slot, or when the queue is full; each failed attempt is another handler's success
        struct slot *slot = &watch->slots[number % DETAILS];
        uint64_t turn = atomic_load(&slot->turn);
        if (turn < number) return false;
        if (turn > number) {
            number = atomic_load(&watch->filled);
        } else if (atomic_compare_exchange_weak(&watch->filled, &number, number + 1)) {
            slot->details = details_of(info);
            atomic_store(&slot->turn, number + 1);
            return true;
        }
    }
}

static void tell_watches(struct station *station, const siginfo_t *info) {
    for (struct cplatform_signal_watch *watch = atomic_load(&station->first); watch; watch = atomic_load(&watch->next)) {
        // Before the count, so that the taker of a count finds as many details; unless an earlier handler is still about to fill its slot.
        uint64_t one = keep_details(watch, info) ? 1 | ONE_KEPT : 1;
        // A watch that was notified and not yet read need not be notified again.
        if (atomic_fetch_add(&watch->count, one) == 0) cplatform_wake(watch->ends);
    }
}

static void call_earlier(const struct sigaction *action, int signal, siginfo_t *info, void *context) {
    if (action->sa_flags & SA_SIGINFO) {
        action->sa_sigaction(signal, info, context);
    } else if (action->sa_handler != SIG_DFL && action->sa_handler != SIG_IGN) {
        action->sa_handler(signal);
    }
}

static void handle(int place, int signal, siginfo_t *info, void *context) {
    bool (*takes)(const void *, const void *) = atomic_load(&filter);
    if (takes && takes(info, context)) return;
    int saved = errno;
    struct station *station = &stations[signal];
    struct sigaction action;
    bool has_earlier = false;
    unsigned mine = atomic_load(&side) & 1;
    atomic_fetch_add(&handlers[mine], 1);
    // A child of vfork shares this memory. Signals sent to it are not for the parent's loops.
    if (atomic_load(&station->counting_place) == place && atomic_load(&owner) == getpid()) tell_watches(station, info);
    struct earlier *earlier = atomic_load(&station->before[place]);
    if (earlier) {
        action = earlier->action;
        // SA_RESETHAND: the handler wants one signal only.
        has_earlier = !(action.sa_flags & (int)SA_RESETHAND) || !atomic_exchange(&earlier->has_been_called, true);
    }
    atomic_fetch_sub(&handlers[mine], 1);
    // Last, with nothing held: the handler may take its time, exit, or jump out.
    if (has_earlier) call_earlier(&action, signal, info, context);
    errno = saved;
}

#define PLACE(number) \
    static void handle_##number(int signal, siginfo_t *info, void *context) { handle(number, signal, info, context); }
PLACE(0)
PLACE(1)
PLACE(2)
PLACE(3)
PLACE(4)
PLACE(5)
PLACE(6)
PLACE(7)
static void (*const functions[PLACES])(int, siginfo_t *, void *) = {
    handle_0, handle_1, handle_2, handle_3, handle_4, handle_5, handle_6, handle_7,
};

// MARK: Under the lock

// Waits for every handler that had begun before the call.
static void wait_for_handlers(void) {
    int cancellation = cplatform_hold_cancellation();
    unsigned now = atomic_load(&side) & 1;
    for (int turn = 0; turn < 2; turn++) {
        unsigned waited_for = turn == 0 ? !now : now;
        if (turn == 1) atomic_store(&side, !now);
        // Ends: the counted part of a handler is a few instructions, and new handlers are counted on the other side.
        for (int tries = 0; atomic_load(&handlers[waited_for]) != 0; tries++) {
            if (tries < 100) sched_yield(); else usleep(100);
        }
    }
    cplatform_resume_cancellation(cancellation);
}

static int place_of(const struct sigaction *action) {
    if (!(action->sa_flags & SA_SIGINFO)) return NOBODY;
    for (int place = 0; place < PLACES; place++) {
        if (action->sa_sigaction == functions[place]) return place;
    }
    return NOBODY;
}

static bool remember(struct station *station, int place, const struct sigaction *action) {
    struct earlier *earlier = malloc(sizeof(*earlier));
    if (earlier == 0) return false;
    earlier->action = *action;
    atomic_init(&earlier->has_been_called, false);
    struct earlier *replaced = atomic_exchange(&station->before[place], earlier);
    if (replaced) {
        wait_for_handlers();
        free(replaced);
    }
    return true;
}

// The kernel's part of a signal alone may be larger than a thread's alternate stack (3,376 bytes with AVX-512), and then it ends the process.
// The watchdog sends these two to threads whose alternate stack nobody has chosen for them. Where the earlier handler uses one, ours does: it
// is called from ours, on a stack that may be too small for both.
static bool is_of_watchdog(int signal) { return signal == SIGURG || signal == SIGPROF; }

// Ours with the earlier settings: what it interrupts, what it blocks, and how it treats children.
static struct sigaction action_over(const struct sigaction *before, int place, int signal) {
    struct sigaction action;
    memset(&action, 0, sizeof(action));
    sigemptyset(&action.sa_mask);
    action.sa_sigaction = functions[place];
    action.sa_flags = SA_SIGINFO | (is_of_watchdog(signal) ? 0 : SA_ONSTACK);
    bool is_ignored = !(before->sa_flags & SA_SIGINFO) && before->sa_handler == SIG_IGN;
    if ((before->sa_flags & SA_SIGINFO) || (before->sa_handler != SIG_DFL && before->sa_handler != SIG_IGN)) {
        action.sa_mask = before->sa_mask;
        action.sa_flags |= before->sa_flags & (SA_RESTART | SA_NODEFER | SA_ONSTACK);
    } else {
        action.sa_flags |= SA_RESTART;
    }
    if (signal == SIGCHLD) {
        action.sa_flags |= before->sa_flags & (SA_NOCLDSTOP | SA_NOCLDWAIT);
        // If SIGCHLD is ignored, the kernel reaps children.
        if (is_ignored) action.sa_flags |= SA_NOCLDWAIT;
    }
    return action;
}

static bool is_same_action(const struct sigaction *one, const struct sigaction *other) {
    if ((one->sa_flags & SA_SIGINFO) != (other->sa_flags & SA_SIGINFO)) return false;
    return one->sa_flags & SA_SIGINFO ? one->sa_sigaction == other->sa_sigaction : one->sa_handler == other->sa_handler;
}

// 0 or an errno. A hold does not count: while it lasts, the place of the watches goes on to notify them.
static int install(struct station *station, int signal, bool counts) {
    struct sigaction before, replaced;
    if (sigaction(signal, 0, &before) < 0) return errno;
    int place = place_of(&before);
    if (place != NOBODY) {
        // It is held or watched, or the other code has restored ours.
        if (counts) {
            atomic_store(&station->counting_place, place);
        } else if (atomic_load(&station->first) == 0) {
            station->held_place = place;
        }
        return 0;
    }
    for (place = 0; place < PLACES && station->is_in_use[place]; place++) {}
    if (place == PLACES) return EBUSY;
    if (!remember(station, place, &before)) return ENOMEM;
    struct sigaction ours = action_over(&before, place, signal);
    if (counts) atomic_store(&station->counting_place, place);
    if (sigaction(signal, &ours, &replaced) < 0) {
        int code = errno;
        if (counts) atomic_store(&station->counting_place, NOBODY);
        return code;
    }
    station->is_in_use[place] = true;
    if (!counts) station->held_place = place;
    // Other code was faster.
    if (!is_same_action(&before, &replaced)) remember(station, place, &replaced);
    return 0;
}

// Restores the action before the place, if the place is still the installed one.
static void uninstall(struct station *station, int signal, int place) {
    struct sigaction present, replaced;
    if (place == NOBODY || sigaction(signal, 0, &present) < 0 || place_of(&present) != place) return;
    struct earlier *earlier = atomic_load(&station->before[place]);
    struct sigaction restored = earlier->action;
    if ((restored.sa_flags & (int)SA_RESETHAND) && atomic_load(&earlier->has_been_called)) {
        memset(&restored, 0, sizeof(restored));
        restored.sa_handler = SIG_DFL;
    }
    if (sigaction(signal, &restored, &replaced) < 0) return;
    if (place_of(&replaced) == place) {
        station->is_in_use[place] = false;
    } else {
        sigaction(signal, &replaced, 0);
    }
}

// MARK: Forks. A child begins without watches, and with the earlier actions.

static void before_fork(void) { pthread_mutex_lock(&lock); }
static void after_fork(void) { pthread_mutex_unlock(&lock); }

static void begin_as_child(void) {
    for (int number = 1; number < NSIG; number++) {
        struct station *station = &stations[number];
        bool is_in_use = false;
        for (int place = 0; place < PLACES; place++) is_in_use |= station->is_in_use[place];
        if (!is_in_use) continue;
        atomic_store(&station->first, 0);
        atomic_store(&station->counting_place, NOBODY);
        struct sigaction present;
        if (sigaction(number, 0, &present) == 0) uninstall(station, number, place_of(&present));
        station->is_held = false;
        station->held_place = NOBODY;
    }
    // Threads of the parent may have been in a handler.
    atomic_store(&handlers[0], 0);
    atomic_store(&handlers[1], 0);
    pthread_mutex_unlock(&lock);
}

static void prepare(void) {
    for (int number = 0; number < NSIG; number++) {
        atomic_init(&stations[number].counting_place, NOBODY);
        stations[number].held_place = NOBODY;
    }
    pthread_atfork(before_fork, after_fork, begin_as_child);
}

static void prepare_once(void) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, prepare);
}

// MARK: What Swift calls

bool cplatform_hold_signal(int signal, bool (*takes)(const void *info, const void *context)) {
    prepare_once();
    pthread_mutex_lock(&lock);
    atomic_store(&filter, takes);
    bool is_installed = install(&stations[signal], signal, false) == 0;
    if (is_installed) stations[signal].is_held = true;
    pthread_mutex_unlock(&lock);
    return is_installed;
}

void cplatform_release_signal(int signal) {
    pthread_mutex_lock(&lock);
    struct station *station = &stations[signal];
    station->is_held = false;
    uninstall(station, signal, station->held_place);
    station->held_place = NOBODY;
    pthread_mutex_unlock(&lock);
}

bool cplatform_is_watchable_signal(int signal) {
    if (signal < 1 || signal >= NSIG) return false;
    switch (signal) {
    case SIGKILL: case SIGSTOP:  // cannot be handled
    case SIGSEGV: case SIGBUS: case SIGFPE: case SIGILL: case SIGTRAP:  // after the handler, the same instruction runs again
        return false;
    default: {
        // The C library reserves some.
        struct sigaction present;
        return sigaction(signal, 0, &present) == 0;
    }
    }
}

struct cplatform_signal_watch *cplatform_watch_signal(int signal, const int ends[2]) {
    prepare_once();
    struct cplatform_signal_watch *watch = malloc(sizeof(*watch));
    if (watch == 0) return 0;
    watch->ends[0] = ends[0];
    watch->ends[1] = ends[1];
    watch->signal = signal;
    watch->forks = cplatform_forks;
    atomic_init(&watch->count, 0);
    atomic_init(&watch->filled, 0);
    watch->emptied = watch->owed = 0;
    for (uint64_t number = 0; number < DETAILS; number++) atomic_init(&watch->slots[number].turn, number);
    pthread_mutex_lock(&lock);
    struct station *station = &stations[signal];
    struct cplatform_signal_watch *second = atomic_load(&station->first);
    atomic_store(&owner, getpid());
    atomic_init(&watch->next, second);
    atomic_store(&station->first, watch);
    int code = second == 0 ? install(station, signal, true) : 0;
    if (code != 0) {
        atomic_store(&station->first, 0);
        wait_for_handlers();
    } else if (second == 0) {
        // The end of the watches removes it.
        station->held_place = NOBODY;
    }
    pthread_mutex_unlock(&lock);
    if (code != 0) {
        free(watch);
        errno = code;
        return 0;
    }
    return watch;
}

uint64_t cplatform_take_signals(struct cplatform_signal_watch *watch) {
    uint64_t count = atomic_exchange(&watch->count, 0);
    watch->owed += count / ONE_KEPT;
    return count % ONE_KEPT;
}

bool cplatform_take_signal_details(struct cplatform_signal_watch *watch, struct cplatform_signal_details *details) {
    struct slot *slot = &watch->slots[watch->emptied % DETAILS];
    if (watch->owed == 0 || atomic_load(&slot->turn) != watch->emptied + 1) return false;
    watch->owed--;
    *details = slot->details;
    atomic_store(&slot->turn, watch->emptied + DETAILS);
    watch->emptied++;
    return true;
}

#if defined(__linux__)
// proc(5): SigBlk and SigPnd are the masks of the signals that a thread blocks, and of those that wait for it, in hexadecimal. True also if the
// thread cannot be asked.
static bool is_in_mask(const char *mask, const char *thread, int signal) {
    char path[64], line[128];
    snprintf(path, sizeof(path), "/proc/self/task/%.20s/status", thread);
    FILE *status = fopen(path, "re");
    if (status == 0) return true;
    bool is_in = true;
    // The line of groups may be longer. It comes in pieces then, none of which begins with a name.
    while (fgets(line, sizeof(line), status)) {
        if (strncmp(line, mask, strlen(mask)) != 0) continue;
        is_in = strtoull(line + strlen(mask), 0, 16) >> (signal - 1) & 1;
        break;
    }
    fclose(status);
    return is_in;
}

// False if the threads cannot be asked.
static bool is_accepted_somewhere(int signal) {
    DIR *threads = opendir("/proc/self/task");
    if (threads == 0) return false;
    bool is_found = false;
    for (struct dirent *thread = readdir(threads); thread && !is_found; thread = readdir(threads)) {
        is_found = thread->d_name[0] != '.' && !is_in_mask("SigBlk:", thread->d_name, signal);
    }
    closedir(threads);
    return is_found;
}

static bool is_in_mask_of(int32_t thread, const char *mask, int signal) {
    char number[16];
    snprintf(number, sizeof(number), "%d", (int)thread);
    return is_in_mask(mask, number, signal);
}

bool cplatform_thread_blocks_signal(int32_t thread, int signal) { return is_in_mask_of(thread, "SigBlk:", signal); }

bool cplatform_is_signal_pending(int32_t thread, int signal) {
    // One that has ended cannot be asked, and no signal waits for it.
    return is_in_mask_of(thread, "SigPnd:", signal) && syscall(SYS_tgkill, getpid(), thread, 0) == 0;
}
#else
// Other threads cannot be asked. The main thread is taken to accept every signal.
static bool is_accepted_somewhere(int signal) { return pthread_main_np() == 0; }
#endif

bool cplatform_let_signal_through(int signal) {
    sigset_t mask;
    if (pthread_sigmask(SIG_BLOCK, 0, &mask) != 0 || sigismember(&mask, signal) != 1 || is_accepted_somewhere(signal)) return false;
    sigemptyset(&mask);
    sigaddset(&mask, signal);
    return pthread_sigmask(SIG_UNBLOCK, &mask, 0) == 0;
}

void cplatform_unwatch_signal(struct cplatform_signal_watch *watch) {
    // A child's copy is in no list.
    if (watch->forks != cplatform_forks) {
        free(watch);
        return;
    }
    pthread_mutex_lock(&lock);
    struct station *station = &stations[watch->signal];
    struct cplatform_signal_watch *_Atomic *link = &station->first;
    // Ends: the watch is in the list.
    while (atomic_load(link) != watch) link = &atomic_load(link)->next;
    atomic_store(link, atomic_load(&watch->next));
    if (atomic_load(&station->first) == 0) {
        int place = atomic_exchange(&station->counting_place, NOBODY);
        if (station->is_held && station->held_place == NOBODY) {
            station->held_place = place;
        } else {
            uninstall(station, watch->signal, place);
        }
    }
    wait_for_handlers();
    pthread_mutex_unlock(&lock);
    free(watch);
}
