#define _GNU_SOURCE
#include "CFaults.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <link.h>
#include <malloc.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/timerfd.h>
#include <unistd.h>

enum {
    EPOLL_WAIT, EPOLL_CTL, EPOLL_CREATE, EVENTFD, TIMERFD_CREATE, TIMERFD_SETTIME, SOCKETPAIR, PIPE2, PIPE, SOCKET, BIND, LISTEN,
    ACCEPT4, CONNECT, RECVMSG, SENDMSG, OPEN, OPENAT, MKDIR, CHMOD, FCHMOD, RENAME, UNLINK, UNLINKAT, FLOCK, READ, PPOLL,
    GETSOCKOPT, FORK, PTHREAD_CREATE, MALLOC, DESCRIPTORS, FUNCTIONS
};

struct function {
    const char *name;
    int errnos[24];
    bool makes_descriptors;
};

// Each with the errors of its manual page on Linux.
static const struct function functions[FUNCTIONS] = {
    [EPOLL_WAIT] = {"epoll_wait", {EINTR, EBADF, EFAULT, EINVAL}},
    [EPOLL_CTL] = {"epoll_ctl", {ENOMEM, ENOSPC, EPERM, EBADF, EEXIST, ENOENT, EINVAL, ELOOP}},
    [EPOLL_CREATE] = {"epoll_create1", {EMFILE, ENFILE, ENOMEM, EINVAL}, true},
    [EVENTFD] = {"eventfd", {EMFILE, ENFILE, ENOMEM, ENODEV, EINVAL}, true},
    [TIMERFD_CREATE] = {"timerfd_create", {EMFILE, ENFILE, ENOMEM, ENODEV, EPERM, EINVAL}, true},
    [TIMERFD_SETTIME] = {"timerfd_settime", {ECANCELED, EBADF, EFAULT, EINVAL}},
    [SOCKETPAIR] = {"socketpair", {EMFILE, ENFILE, EAFNOSUPPORT, EPROTONOSUPPORT, EOPNOTSUPP, EFAULT}, true},
    [PIPE2] = {"pipe2", {EMFILE, ENFILE, EINVAL, EFAULT}, true},
    [PIPE] = {"pipe", {EMFILE, ENFILE, EFAULT}, true},
    [SOCKET] = {"socket", {EMFILE, ENFILE, ENOBUFS, ENOMEM, EACCES, EAFNOSUPPORT, EINVAL, EPROTONOSUPPORT}, true},
    [BIND] = {"bind", {EADDRINUSE, EACCES, EADDRNOTAVAIL, EINVAL, ENOMEM, ENOENT, ENOTDIR, EROFS, ELOOP, ENAMETOOLONG, EBADF, ENOTSOCK, EFAULT}},
    [LISTEN] = {"listen", {EADDRINUSE, EOPNOTSUPP, EBADF, ENOTSOCK}},
    [ACCEPT4] = {"accept4",
        {EAGAIN, EINTR, ECONNABORTED, EMFILE, ENFILE, ENOBUFS, ENOMEM, EPROTO, EPERM, ENETDOWN, ENOPROTOOPT, EHOSTDOWN, ENONET,
         EHOSTUNREACH, EOPNOTSUPP, ENETUNREACH, ETIMEDOUT, EINVAL, EBADF, ENOTSOCK, EFAULT}, true},
    [CONNECT] = {"connect",
        {EINTR, EAGAIN, ECONNREFUSED, ETIMEDOUT, ENETUNREACH, EACCES, EPERM, EADDRINUSE, EADDRNOTAVAIL, EAFNOSUPPORT, EPROTOTYPE,
         EALREADY, EISCONN, EBADF, ENOTSOCK, EFAULT}},
    [RECVMSG] = {"recvmsg", {EINTR, EAGAIN, ENOMEM, ECONNREFUSED, ECONNRESET, ENOTCONN, EINVAL, EBADF, ENOTSOCK, EFAULT}},
    [SENDMSG] = {"sendmsg",
        {EINTR, EAGAIN, ENOMEM, ENOBUFS, EPIPE, ECONNRESET, ENOTCONN, EMSGSIZE, EACCES, EALREADY, EDESTADDRREQ, EISCONN, EOPNOTSUPP,
         EINVAL, EBADF, ENOTSOCK, EFAULT}},
    [OPEN] = {"open",
        {EINTR, EMFILE, ENFILE, ENOMEM, EACCES, ENOENT, EEXIST, EISDIR, ELOOP, ENAMETOOLONG, ENOSPC, ENOTDIR, EROFS, EDQUOT, EPERM,
         ENXIO, EOVERFLOW, EFAULT}, true},
    [OPENAT] = {"openat", {EINTR, EMFILE, ENFILE, ENOMEM, EACCES, ENOENT, EEXIST, ELOOP, ENOSPC, ENOTDIR, EROFS, EBADF, EINVAL}, true},
    [MKDIR] = {"mkdir", {EACCES, EEXIST, EDQUOT, ELOOP, EMLINK, ENAMETOOLONG, ENOENT, ENOMEM, ENOSPC, ENOTDIR, EPERM, EROFS, EFAULT}},
    [CHMOD] = {"chmod", {EPERM, EACCES, EIO, ELOOP, ENAMETOOLONG, ENOENT, ENOMEM, ENOTDIR, EROFS, EFAULT}},
    [FCHMOD] = {"fchmod", {EPERM, EIO, EROFS, EBADF}},
    [RENAME] = {"rename", {EACCES, EBUSY, EDQUOT, EEXIST, ELOOP, ENOENT, ENOMEM, ENOSPC, ENOTDIR, EPERM, EROFS, EXDEV, EFAULT}},
    [UNLINK] = {"unlink", {EACCES, EBUSY, EIO, ENOENT, ENOMEM, ENOTDIR, EPERM, EROFS, EFAULT}},
    [UNLINKAT] = {"unlinkat", {EACCES, EBUSY, EIO, ENOENT, ENOMEM, ENOTDIR, EPERM, EROFS, EBADF}},
    [FLOCK] = {"flock", {EINTR, EWOULDBLOCK, ENOLCK, EBADF, EINVAL}},
    [READ] = {"read", {EINTR, EAGAIN, EIO, EBADF, EINVAL, EFAULT}},
    [PPOLL] = {"ppoll", {EINTR, ENOMEM, EINVAL, EFAULT}},
    [GETSOCKOPT] = {"getsockopt", {EBADF, EFAULT, EINVAL, ENOPROTOOPT, ENOTSOCK}},
    [FORK] = {"fork", {EAGAIN, ENOMEM, ENOSYS}},
    [PTHREAD_CREATE] = {"pthread_create", {EAGAIN, EINVAL, EPERM}},
    [MALLOC] = {"malloc", {ENOMEM}},
    [DESCRIPTORS] = {"descriptors", {EMFILE, ENFILE}},
};

int faults_function_count(void) { return FUNCTIONS; }
const char *faults_function_name(int function) { return functions[function].name; }
const int *faults_errnos(int function) { return functions[function].errnos; }
bool faults_is_group(int function) { return function == DESCRIPTORS; }

long faults_own_read(int descriptor, void *bytes, unsigned long count) { return syscall(SYS_read, descriptor, bytes, count); }
long faults_own_write(int descriptor, const void *bytes, unsigned long count) { return syscall(SYS_write, descriptor, bytes, count); }

void faults_own_unlink(const char *path) { syscall(SYS_unlinkat, AT_FDCWD, path, 0); }

int faults_make_file(void) { return memfd_create("faults", MFD_CLOEXEC); }

static struct faults_report *report;

struct faults_report *faults_report(void) {
    if (report == NULL) {
        report = mmap(0, sizeof(*report), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
        if (report == MAP_FAILED) abort();
        report->function = -1;
    }
    return report;
}

#if defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define HAS_SANITIZER 1
#endif
#endif

#if defined(__GLIBC__) && !defined(HAS_SANITIZER)

bool faults_are_available(void) { return true; }

// MARK: Who calls

static struct { uintptr_t begin, end; } callers[8];
static int caller_count;

static int note_object(struct dl_phdr_info *object, size_t size, void *context) {
    (void)size;
    (void)context;
    bool is_program = object->dlpi_name[0] == 0, is_libevent = strstr(object->dlpi_name, "libevent") != 0;
    if (!is_program && !is_libevent) return 0;
    for (int index = 0; index < object->dlpi_phnum && caller_count < 8; index++) {
        const ElfW(Phdr) *part = &object->dlpi_phdr[index];
        if (part->p_type != PT_LOAD || !(part->p_flags & PF_X)) continue;
        callers[caller_count].begin = object->dlpi_addr + part->p_vaddr;
        callers[caller_count].end = callers[caller_count].begin + part->p_memsz;
        caller_count++;
    }
    return 0;
}

static bool is_counted_caller(uintptr_t address) {
    for (int index = 0; index < caller_count; index++) {
        if (address >= callers[index].begin && address < callers[index].end) return true;
    }
    return false;
}

// Not shared: a process that was forked before is none of this.
static bool is_armed_here;

void faults_arm(int function, uint32_t first, uint32_t length, int code) {
    struct faults_report *report = faults_report();
    is_armed_here = true;
    if (caller_count == 0) dl_iterate_phdr(note_object, 0);
    report->function = function;
    report->first = first;
    report->length = length;
    report->code = code;
    memset(report->calls, 0, sizeof(report->calls));
    report->failed = report->calls_after = report->calls_at_all = 0;
    __atomic_store_n(&report->is_armed, true, __ATOMIC_SEQ_CST);
}

void faults_disarm(void) { __atomic_store_n(&faults_report()->is_armed, false, __ATOMIC_SEQ_CST); }

static bool fails_as(int function, int armed) {
    uint32_t number = __atomic_add_fetch(&report->calls[function], 1, __ATOMIC_SEQ_CST);
    return function == armed && number >= report->first && number - report->first < report->length;
}

// Whether this call is to fail. Counts it.
static bool fails(int function, void *caller) {
    if (!is_armed_here || !__atomic_load_n(&report->is_armed, __ATOMIC_SEQ_CST)) return false;
    if (!is_counted_caller((uintptr_t)caller)) return false;
    __atomic_add_fetch(&report->calls_at_all, 1, __ATOMIC_SEQ_CST);
    if (__atomic_load_n(&report->failed, __ATOMIC_SEQ_CST)) __atomic_add_fetch(&report->calls_after, 1, __ATOMIC_SEQ_CST);
    bool fails = fails_as(function, report->function);
    if (functions[function].makes_descriptors && fails_as(DESCRIPTORS, report->function)) fails = true;
    if (fails) __atomic_add_fetch(&report->failed, 1, __ATOMIC_SEQ_CST);
    return fails;
}

// MARK: The definitions

#define REAL(type, name, ...) \
    static type (*real)(__VA_ARGS__); \
    if (real == NULL) real = (type(*)(__VA_ARGS__))dlsym(RTLD_NEXT, #name);

#define FAIL(function) \
    if (fails(function, __builtin_return_address(0))) { \
        errno = report->code; \
        return -1; \
    }

int epoll_wait(int set, struct epoll_event *events, int count, int timeout) {
    REAL(int, epoll_wait, int, struct epoll_event *, int, int)
    FAIL(EPOLL_WAIT)
    return real(set, events, count, timeout);
}
int epoll_ctl(int set, int operation, int descriptor, struct epoll_event *event) {
    REAL(int, epoll_ctl, int, int, int, struct epoll_event *)
    FAIL(EPOLL_CTL)
    return real(set, operation, descriptor, event);
}
int epoll_create1(int flags) {
    REAL(int, epoll_create1, int)
    FAIL(EPOLL_CREATE)
    return real(flags);
}
int eventfd(unsigned int count, int flags) {
    REAL(int, eventfd, unsigned int, int)
    FAIL(EVENTFD)
    return real(count, flags);
}
int timerfd_create(clockid_t clock, int flags) {
    REAL(int, timerfd_create, clockid_t, int)
    FAIL(TIMERFD_CREATE)
    return real(clock, flags);
}
int timerfd_settime(int timer, int flags, const struct itimerspec *time, struct itimerspec *before) {
    REAL(int, timerfd_settime, int, int, const struct itimerspec *, struct itimerspec *)
    if (fails(TIMERFD_SETTIME, __builtin_return_address(0))) {
        // The kernel arms the timer all the same, and reports that the clock was set.
        if (report->code == ECANCELED) real(timer, flags, time, before);
        errno = report->code;
        return -1;
    }
    return real(timer, flags, time, before);
}
int socketpair(int family, int type, int protocol, int ends[2]) {
    REAL(int, socketpair, int, int, int, int *)
    FAIL(SOCKETPAIR)
    return real(family, type, protocol, ends);
}
int pipe2(int ends[2], int flags) {
    REAL(int, pipe2, int *, int)
    FAIL(PIPE2)
    return real(ends, flags);
}
int pipe(int ends[2]) {
    REAL(int, pipe, int *)
    FAIL(PIPE)
    return real(ends);
}
int socket(int family, int type, int protocol) {
    REAL(int, socket, int, int, int)
    FAIL(SOCKET)
    return real(family, type, protocol);
}
int bind(int descriptor, const struct sockaddr *address, socklen_t length) {
    REAL(int, bind, int, const struct sockaddr *, socklen_t)
    FAIL(BIND)
    return real(descriptor, address, length);
}
int listen(int descriptor, int backlog) {
    REAL(int, listen, int, int)
    FAIL(LISTEN)
    return real(descriptor, backlog);
}
int accept4(int listener, struct sockaddr *address, socklen_t *length, int flags) {
    REAL(int, accept4, int, struct sockaddr *, socklen_t *, int)
    FAIL(ACCEPT4)
    return real(listener, address, length, flags);
}
int connect(int descriptor, const struct sockaddr *address, socklen_t length) {
    REAL(int, connect, int, const struct sockaddr *, socklen_t)
    FAIL(CONNECT)
    return real(descriptor, address, length);
}
ssize_t recvmsg(int descriptor, struct msghdr *message, int flags) {
    REAL(ssize_t, recvmsg, int, struct msghdr *, int)
    FAIL(RECVMSG)
    return real(descriptor, message, flags);
}
ssize_t sendmsg(int descriptor, const struct msghdr *message, int flags) {
    REAL(ssize_t, sendmsg, int, const struct msghdr *, int)
    FAIL(SENDMSG)
    return real(descriptor, message, flags);
}
int open(const char *path, int flags, ...) {
    REAL(int, open, const char *, int, ...)
    va_list more;
    va_start(more, flags);
    mode_t mode = flags & (O_CREAT | O_TMPFILE) ? va_arg(more, mode_t) : 0;
    va_end(more);
    FAIL(OPEN)
    return real(path, flags, mode);
}
int openat(int directory, const char *path, int flags, ...) {
    REAL(int, openat, int, const char *, int, ...)
    va_list more;
    va_start(more, flags);
    mode_t mode = flags & (O_CREAT | O_TMPFILE) ? va_arg(more, mode_t) : 0;
    va_end(more);
    FAIL(OPENAT)
    return real(directory, path, flags, mode);
}
int mkdir(const char *path, mode_t mode) {
    REAL(int, mkdir, const char *, mode_t)
    FAIL(MKDIR)
    return real(path, mode);
}
int mkdirat(int directory, const char *path, mode_t mode) {
    REAL(int, mkdirat, int, const char *, mode_t)
    FAIL(MKDIR)
    return real(directory, path, mode);
}
int chmod(const char *path, mode_t mode) {
    REAL(int, chmod, const char *, mode_t)
    FAIL(CHMOD)
    return real(path, mode);
}
int fchmodat(int directory, const char *path, mode_t mode, int flags) {
    REAL(int, fchmodat, int, const char *, mode_t, int)
    FAIL(CHMOD)
    return real(directory, path, mode, flags);
}
int fchmod(int descriptor, mode_t mode) {
    REAL(int, fchmod, int, mode_t)
    FAIL(FCHMOD)
    return real(descriptor, mode);
}
int rename(const char *from, const char *to) {
    REAL(int, rename, const char *, const char *)
    FAIL(RENAME)
    return real(from, to);
}
int renameat(int from_directory, const char *from, int to_directory, const char *to) {
    REAL(int, renameat, int, const char *, int, const char *)
    FAIL(RENAME)
    return real(from_directory, from, to_directory, to);
}
int unlink(const char *path) {
    REAL(int, unlink, const char *)
    FAIL(UNLINK)
    return real(path);
}
int unlinkat(int directory, const char *path, int flags) {
    REAL(int, unlinkat, int, const char *, int)
    FAIL(UNLINKAT)
    return real(directory, path, flags);
}
int flock(int descriptor, int operation) {
    REAL(int, flock, int, int)
    FAIL(FLOCK)
    return real(descriptor, operation);
}
ssize_t read(int descriptor, void *bytes, size_t count) {
    REAL(ssize_t, read, int, void *, size_t)
    FAIL(READ)
    return real(descriptor, bytes, count);
}
int ppoll(struct pollfd *entries, nfds_t count, const struct timespec *time, const sigset_t *mask) {
    REAL(int, ppoll, struct pollfd *, nfds_t, const struct timespec *, const sigset_t *)
    FAIL(PPOLL)
    return real(entries, count, time, mask);
}
int getsockopt(int descriptor, int level, int name, void *value, socklen_t *length) {
    REAL(int, getsockopt, int, int, int, void *, socklen_t *)
    FAIL(GETSOCKOPT)
    return real(descriptor, level, name, value, length);
}
pid_t fork(void) {
    REAL(pid_t, fork, void)
    FAIL(FORK)
    return real();
}
int pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*body)(void *), void *context) {
    REAL(int, pthread_create, pthread_t *, const pthread_attr_t *, void *(*)(void *), void *)
    if (fails(PTHREAD_CREATE, __builtin_return_address(0))) return report->code;
    return real(thread, attributes, body, context);
}

// The Swift runtime ends the process when it gets no memory. So only the program's own C code and libevent get none: the runtime's calls
// come from another library.
extern void *__libc_malloc(size_t);
extern void *__libc_calloc(size_t, size_t);
extern void *__libc_realloc(void *, size_t);

void *malloc(size_t size) {
    if (!fails(MALLOC, __builtin_return_address(0))) return __libc_malloc(size);
    errno = ENOMEM;
    return NULL;
}
void *calloc(size_t count, size_t size) {
    if (!fails(MALLOC, __builtin_return_address(0))) return __libc_calloc(count, size);
    errno = ENOMEM;
    return NULL;
}
void *realloc(void *old, size_t size) {
    if (!fails(MALLOC, __builtin_return_address(0))) return __libc_realloc(old, size);
    errno = ENOMEM;
    return NULL;
}

#else

bool faults_are_available(void) { return false; }
void faults_arm(int function, uint32_t first, uint32_t length, int code) {
    (void)function;
    (void)first;
    (void)length;
    (void)code;
}
void faults_disarm(void) {}

#endif
