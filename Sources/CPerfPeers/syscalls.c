// Counts system calls with ptrace. This needs no other program, and no privilege beyond tracing one's own child.

#define _GNU_SOURCE
#include "CPerfPeers.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include "tracing.h"

enum { REFUSED = 126, NOT_FOUND = 127 };

static void become_traced(char *const arguments[], int output) {
    // After fork in a process with threads: until exec, only functions that a signal handler may call.
    dup2(output, STDOUT_FILENO);
    if (ptrace(PTRACE_TRACEME, 0, 0, 0) != 0) _exit(REFUSED);
    raise(SIGSTOP);
    execv(arguments[0], arguments);
    _exit(NOT_FOUND);
}

struct tracer {
    struct perf_syscalls *counts;
    pid_t marked;  // the thread between its marks; 0 when none is
};

static void entered(struct tracer *tracer, pid_t thread, uint64_t number) {
    if (number == MARK_BEGIN) {
        tracer->marked = thread;
    } else if (number == MARK_END) {
        tracer->marked = 0;
    } else if (tracer->marked) {
        tracer->counts->by_process++;
        if (thread == tracer->marked) tracer->counts->by_thread++;
        if (number < PERF_SYSCALL_NUMBERS) tracer->counts->numbers[number]++;
    }
}

// Handles one stop of one thread: counts it if it is the start of a system call. Returns the signal to deliver.
static int stopped(struct tracer *tracer, pid_t thread, int status) {
    int signal = WSTOPSIG(status);
    if (signal == (SIGTRAP | 0x80)) {  // PTRACE_O_TRACESYSGOOD
        struct __ptrace_syscall_info info;
        if (ptrace(PTRACE_GET_SYSCALL_INFO, thread, sizeof info, &info) > 0 && info.op == PTRACE_SYSCALL_INFO_ENTRY)
            entered(tracer, thread, info.entry.nr);
        return 0;
    }
    // An event (a new thread, exec), or the first stop of a new thread.
    if (status >> 16 != 0 || signal == SIGSTOP || signal == SIGTRAP) return 0;
    return signal;
}

int perf_trace(char *const arguments[], int output, struct perf_syscalls *counts, int *status) {
    memset(counts, 0, sizeof *counts);
    pid_t child = fork();
    if (child < 0) return -errno;
    if (child == 0) become_traced(arguments, output);

    int first;
    if (waitpid(child, &first, 0) < 0) return -errno;
    if (!WIFSTOPPED(first)) return -EPERM;
    long options = PTRACE_O_TRACESYSGOOD | PTRACE_O_TRACECLONE | PTRACE_O_TRACEFORK | PTRACE_O_TRACEVFORK | PTRACE_O_TRACEEXEC |
                   PTRACE_O_EXITKILL;
    if (ptrace(PTRACE_SETOPTIONS, child, 0, options) != 0 || ptrace(PTRACE_SYSCALL, child, 0, 0) != 0) {
        int code = -errno;
        kill(child, SIGKILL);
        waitpid(child, &first, 0);
        return code;
    }

    struct tracer tracer = {.counts = counts};
    for (;;) {  // ends when the child has ended, which takes all its threads with it
        int state;
        pid_t thread = waitpid(-1, &state, __WALL);
        if (thread < 0) {
            if (errno == EINTR) continue;
            return -errno;
        }
        if (WIFSTOPPED(state)) {
            int signal = stopped(&tracer, thread, state);
            ptrace(PTRACE_SYSCALL, thread, 0, (long)signal);  // fails for a thread that has ended
        } else if (thread == child) {
            *status = WIFEXITED(state) ? WEXITSTATUS(state) : 128 + WTERMSIG(state);
            return 0;
        }
    }
}

const char *perf_syscall_name(int number) {
    switch (number) {
#define NAME(name) case SYS_##name: return #name
        NAME(read); NAME(write); NAME(readv); NAME(writev); NAME(close); NAME(futex);
        NAME(epoll_ctl); NAME(epoll_pwait); NAME(ppoll); NAME(pselect6); NAME(eventfd2);
        NAME(timerfd_settime); NAME(timerfd_create); NAME(mmap); NAME(munmap); NAME(mprotect); NAME(madvise); NAME(brk);
        NAME(ioctl); NAME(fcntl); NAME(getpid); NAME(gettid); NAME(clock_gettime); NAME(clock_nanosleep); NAME(nanosleep);
        NAME(sched_yield); NAME(accept4); NAME(recvfrom); NAME(sendto); NAME(mremap); NAME(rt_sigprocmask);
        NAME(fstat); NAME(getrusage); NAME(newfstatat);
#if defined(SYS_epoll_wait)
        NAME(epoll_wait);
#endif
#if defined(SYS_poll)
        NAME(poll);
#endif
#if defined(SYS_epoll_pwait2)
        NAME(epoll_pwait2);
#endif
#undef NAME
    default: return NULL;
    }
}
