// Child processes: how one of them ended. No other child's status is taken.

#if defined(__linux__) && !defined(_GNU_SOURCE)
#define _GNU_SOURCE
#endif
#include "CPlatform.h"

#include <errno.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <unistd.h>

// The status of exactly this child, or none.
static int wait_for_one(idtype_t kind, id_t which, siginfo_t *info, int flags) {
    int result;
    // waitid(2): with WNOHANG and no child to report, si_pid is zero only if it was zero before.
    do {
        memset(info, 0, sizeof(*info));
        result = waitid(kind, which, info, WEXITED | WNOHANG | flags);
    } while (result < 0 && errno == EINTR);
    return result;
}

static int wait_for(pid_t child, int descriptor, siginfo_t *info, int flags) {
#if defined(__linux__)
    enum { BY_DESCRIPTOR = 3 };  // P_PIDFD, which older headers do not have
    if (descriptor >= 0) {
        int result = wait_for_one((idtype_t)BY_DESCRIPTOR, (id_t)descriptor, info, flags);
        // Linux has the descriptors since 5.3, and can wait for them since 5.4.
        if (result == 0 || errno != EINVAL) return result;
    }
#else
    (void)descriptor;
#endif
    return wait_for_one(P_PID, (id_t)child, info, flags);
}

int cplatform_child_status(int32_t child, int descriptor, bool takes, struct cplatform_exit *exit) {
    siginfo_t info;
    if (child <= 0) {
        errno = ECHILD;
        return -1;
    }
    if (wait_for(child, descriptor, &info, takes ? 0 : WNOWAIT) < 0) return -1;
    if (info.si_pid != child) return 0;
    exit->was_killed = info.si_code != CLD_EXITED;
    exit->dumped_core = info.si_code == CLD_DUMPED;
    exit->status = info.si_status;
    return 1;
}

static atomic_bool is_refused;
void cplatform_tests_refuse_child_descriptors(bool refuses) { atomic_store(&is_refused, refuses); }

#if defined(__linux__)

#include <sys/syscall.h>

#if !defined(SYS_pidfd_open)
#define SYS_pidfd_open 434
#endif

int cplatform_child_descriptor(int32_t child) {
    if (atomic_load(&is_refused)) {
        errno = ENOSYS;
        return -1;
    }
    // pidfd_open(2): "The close-on-exec flag is set on the file descriptor", and it is readable once the process has ended.
    int descriptor = (int)syscall(SYS_pidfd_open, (pid_t)child, 0);
    // Kernels before 5.3, and sandboxes that do not know the call.
    if (descriptor < 0 && errno == EPERM) errno = ENOSYS;
    return descriptor;
}

#else

#include <fcntl.h>
#include <sys/event.h>

int cplatform_child_descriptor(int32_t child) {
    if (atomic_load(&is_refused)) {
        errno = ENOSYS;
        return -1;
    }
    int queue = kqueue();
    if (queue < 0) return -1;
    struct kevent change;
    EV_SET(&change, child, EVFILT_PROC, EV_ADD | EV_ONESHOT, NOTE_EXIT, 0, 0);
    int result = kevent(queue, &change, 1, 0, 0, 0);
    if (result < 0 && errno == ESRCH) {
        // The child has ended and is not reaped. kqueue does not report the past, so the event is added by hand.
        EV_SET(&change, 1, EVFILT_USER, EV_ADD, NOTE_TRIGGER, 0, 0);
        result = kevent(queue, &change, 1, 0, 0, 0);
    }
    if (result < 0 || fcntl(queue, F_SETFD, FD_CLOEXEC) < 0) {
        int saved = errno;
        close(queue);
        errno = saved;
        return -1;
    }
    return queue;
}

#endif
