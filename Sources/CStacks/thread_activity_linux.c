// What a thread does, as the kernel reports it: whether it sleeps in a system call, in which one, and what is on its stack.

#if defined(__linux__)
#define _GNU_SOURCE
#include "CStacks.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

int64_t cstacks_processor_time(int32_t thread) {
    // The clock that pthread_getcpuclockid(3) returns for the thread, without its handle, which may not be used after its end: the
    // complement of the id, and below it three bits for "of a thread" (4) and "as the scheduler counts" (2).
    clockid_t clock = (clockid_t)((~(unsigned)thread << 3) | 6);
    struct timespec time;
    if (thread <= 0 || clock_gettime(clock, &time) < 0) return -1;
    return (int64_t)time.tv_sec * 1000000000 + time.tv_nsec;
}

// MARK: Calls

void cstacks_thread_activity(int32_t thread, struct cstacks_thread_activity *activity) {
    memset(activity, 0, sizeof(*activity));
    char path[64], text[256];
    snprintf(path, sizeof(path), "/proc/self/task/%" PRId32 "/syscall", thread);
    int file = open(path, O_RDONLY | O_CLOEXEC);
    if (file < 0) return;
    ssize_t length = read(file, text, sizeof(text) - 1);
    close(file);
    if (length <= 0) return;
    text[length] = 0;
    // proc(5): "running" if the thread is not blocked; otherwise the number of the call, six arguments, the stack pointer and the program
    // counter; with a number of -1, for a thread that waits outside a call (for a page), only the last two.
    long call = -1;
    uint64_t rest[8];
    int count = sscanf(
        text, "%ld %" SCNx64 " %" SCNx64 " %" SCNx64 " %" SCNx64 " %" SCNx64 " %" SCNx64 " %" SCNx64 " %" SCNx64, &call, &rest[0],
        &rest[1], &rest[2], &rest[3], &rest[4], &rest[5], &rest[6], &rest[7]);
    if (count < 9 || call < 0) {
        activity->kind = CSTACKS_THREAD_RUNNING;
        return;
    }
    activity->kind = CSTACKS_THREAD_IN_CALL;
    activity->call = call;
    activity->first_argument = rest[0];
    activity->stack_pointer = rest[6];
    activity->program_counter = rest[7];
}

struct call {
    const char *name;
    bool takes_descriptor;
};

// Calls that may sleep. On the others a thread cannot be stuck for long.
static const struct call calls[] = {
#define CALL(name) [SYS_##name] = {#name, false}
#define ON_DESCRIPTOR(name) [SYS_##name] = {#name, true}
    ON_DESCRIPTOR(read), ON_DESCRIPTOR(write), ON_DESCRIPTOR(readv), ON_DESCRIPTOR(writev), ON_DESCRIPTOR(pread64),
    ON_DESCRIPTOR(pwrite64), ON_DESCRIPTOR(preadv), ON_DESCRIPTOR(pwritev), ON_DESCRIPTOR(preadv2), ON_DESCRIPTOR(pwritev2),
    ON_DESCRIPTOR(close), ON_DESCRIPTOR(fsync), ON_DESCRIPTOR(fdatasync), ON_DESCRIPTOR(sync_file_range), ON_DESCRIPTOR(syncfs),
    ON_DESCRIPTOR(ftruncate), ON_DESCRIPTOR(fallocate), ON_DESCRIPTOR(flock), ON_DESCRIPTOR(fcntl), ON_DESCRIPTOR(ioctl),
    ON_DESCRIPTOR(getdents64), ON_DESCRIPTOR(lseek), ON_DESCRIPTOR(fstat), ON_DESCRIPTOR(copy_file_range), ON_DESCRIPTOR(sendfile),
    ON_DESCRIPTOR(splice), ON_DESCRIPTOR(tee), ON_DESCRIPTOR(vmsplice), ON_DESCRIPTOR(accept), ON_DESCRIPTOR(accept4),
    ON_DESCRIPTOR(connect), ON_DESCRIPTOR(recvfrom), ON_DESCRIPTOR(recvmsg), ON_DESCRIPTOR(recvmmsg), ON_DESCRIPTOR(sendto),
    ON_DESCRIPTOR(sendmsg), ON_DESCRIPTOR(sendmmsg), ON_DESCRIPTOR(shutdown), ON_DESCRIPTOR(epoll_pwait), ON_DESCRIPTOR(epoll_ctl),
    ON_DESCRIPTOR(openat), ON_DESCRIPTOR(unlinkat), ON_DESCRIPTOR(mkdirat), ON_DESCRIPTOR(renameat2), ON_DESCRIPTOR(faccessat),
    ON_DESCRIPTOR(readlinkat), ON_DESCRIPTOR(statx), ON_DESCRIPTOR(setns),
    CALL(ppoll), CALL(pselect6), CALL(nanosleep), CALL(clock_nanosleep), CALL(futex), CALL(wait4), CALL(waitid), CALL(rt_sigsuspend),
    CALL(rt_sigtimedwait), CALL(msgrcv), CALL(msgsnd), CALL(semop), CALL(semtimedop), CALL(mq_timedreceive), CALL(mq_timedsend),
    CALL(io_getevents), CALL(sync), CALL(truncate), CALL(statfs), CALL(fstatfs), CALL(mount), CALL(umount2), CALL(execve),
    CALL(execveat), CALL(clone), CALL(exit), CALL(exit_group), CALL(mmap), CALL(munmap), CALL(mprotect), CALL(mremap), CALL(madvise),
    CALL(msync), CALL(mlock), CALL(mlockall), CALL(brk), CALL(getrandom), CALL(membarrier), CALL(sched_yield), CALL(ptrace),
    CALL(request_key), CALL(finit_module), CALL(reboot), CALL(process_vm_readv), CALL(restart_syscall), CALL(userfaultfd),
#ifdef SYS_newfstatat
    ON_DESCRIPTOR(newfstatat),
#endif
#ifdef SYS_io_uring_enter
    ON_DESCRIPTOR(io_uring_enter),
#endif
#ifdef SYS_openat2
    ON_DESCRIPTOR(openat2),
#endif
#ifdef SYS_epoll_pwait2
    ON_DESCRIPTOR(epoll_pwait2),
#endif
#ifdef SYS_futex_waitv
    CALL(futex_waitv),
#endif
#ifdef SYS_clone3
    CALL(clone3),
#endif
#ifdef __x86_64__
    // Older forms, which newer architectures do not have.
    ON_DESCRIPTOR(epoll_wait), ON_DESCRIPTOR(getdents), CALL(poll), CALL(select), CALL(pause), CALL(open), CALL(creat), CALL(stat),
    CALL(lstat), CALL(access), CALL(unlink), CALL(rename), CALL(mkdir), CALL(rmdir), CALL(link), CALL(symlink), CALL(readlink),
    CALL(fork), CALL(vfork),
#endif
};

void cstacks_describe_call(const struct cstacks_thread_activity *activity, char *text, size_t size) {
    const struct call *call = 0;
    if (activity->call >= 0 && activity->call < (long)(sizeof(calls) / sizeof(calls[0]))) call = &calls[activity->call];
    if (call == 0 || call->name == 0) {
        snprintf(text, size, "system call %ld", activity->call);
    } else if (call->takes_descriptor && (int)activity->first_argument == AT_FDCWD) {
        snprintf(text, size, "%s(AT_FDCWD, …)", call->name);
    } else if (call->takes_descriptor) {
        snprintf(text, size, "%s(%d, …)", call->name, (int)activity->first_argument);
    } else {
        snprintf(text, size, "%s(…)", call->name);
    }
}
#endif
