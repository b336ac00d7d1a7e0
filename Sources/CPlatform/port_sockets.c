// Unix-domain sockets. Only the first functions differ between systems.

#if defined(__linux__)
#define _GNU_SOURCE
#endif
#include "CPlatform.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <string.h>
#include <sys/file.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#if defined(__linux__)
enum { QUIETLY = MSG_NOSIGNAL | MSG_DONTWAIT, TAKING = MSG_CMSG_CLOEXEC };

// An urgent byte (MSG_OOB, Linux 5.15) that is not read in place is discarded by the next read, and the kernel closes its descriptors on
// the reading thread.
static int with_urgent_bytes_in_place(int descriptor) {
    int one = 1;
    if (descriptor >= 0) setsockopt(descriptor, SOL_SOCKET, SO_OOBINLINE, &one, sizeof one);
    return descriptor;
}
static int make_socket(void) { return with_urgent_bytes_in_place(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0)); }
static int take_connection(int listener) {
    return with_urgent_bytes_in_place(accept4(listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK));
}

int cplatform_peer(int descriptor, uint32_t *user, int32_t *process) {
    struct ucred peer;
    socklen_t size = sizeof peer;
    if (getsockopt(descriptor, SOL_SOCKET, SO_PEERCRED, &peer, &size) < 0) return -1;
    *user = peer.uid;
    *process = peer.pid;
    return 0;
}
#else
enum { QUIETLY = MSG_DONTWAIT, TAKING = 0 };

static int keep(int descriptor) {
    int one = 1;
    if (descriptor < 0) return -1;
    fcntl(descriptor, F_SETFD, FD_CLOEXEC);
#ifdef SO_NOSIGPIPE
    setsockopt(descriptor, SOL_SOCKET, SO_NOSIGPIPE, &one, sizeof one);
#endif
    return descriptor;
}
static int make_socket(void) { return keep(socket(AF_UNIX, SOCK_STREAM, 0)); }
static int take_connection(int listener) {
    int descriptor = keep(accept(listener, NULL, NULL));
    if (descriptor >= 0) fcntl(descriptor, F_SETFL, O_NONBLOCK);
    return descriptor;
}

int cplatform_peer(int descriptor, uint32_t *user, int32_t *process) {
    uid_t uid;
    gid_t gid;
    if (getpeereid(descriptor, &uid, &gid) < 0) return -1;
    *user = uid;
    *process = 0;
#ifdef LOCAL_PEERPID
    pid_t pid;
    socklen_t size = sizeof pid;
    if (getsockopt(descriptor, SOL_LOCAL, LOCAL_PEERPID, &pid, &size) == 0) *process = pid;
#endif
    return 0;
}
#endif

// MARK: Connecting

static int address_of(const char *path, struct sockaddr_un *address) {
    memset(address, 0, sizeof *address);
    address->sun_family = AF_UNIX;
    if (strlen(path) >= sizeof address->sun_path) {
        errno = ENAMETOOLONG;
        return -1;
    }
    strcpy(address->sun_path, path);
    return 0;
}

int cplatform_socket_path_limit(void) { return (int)sizeof(((struct sockaddr_un *)0)->sun_path) - 1; }

static int close_keeping_errno(int descriptor) {
    int saved = errno;
    close(descriptor);
    errno = saved;
    return -1;
}

int cplatform_listen_in(int directory, const char *file, const char *path, int backlog) {
    struct sockaddr_un address;
    struct stat status;
    if (address_of(path, &address) < 0) return -1;
    int listener = make_socket();
    if (listener < 0) return -1;
    // Linux creates the file with the socket's mode, so it never grants more than this. On other systems fchmod fails, and the umask
    // determines the mode until the next step, in a directory that only the owner may enter.
    (void)!fchmod(listener, S_IRUSR | S_IWUSR);
    if (bind(listener, (struct sockaddr *)&address, sizeof address) < 0) return close_keeping_errno(listener);
    // Every call resolves the path again: it may have led into another directory than the open one.
    if (fstatat(directory, file, &status, AT_SYMLINK_NOFOLLOW) < 0 || !S_ISSOCK(status.st_mode)) {
        close(listener);
        errno = ESTALE;
        return -1;
    }
    bool has_mode = (status.st_mode & 07777) == (S_IRUSR | S_IWUSR);
    if ((!has_mode && fchmodat(directory, file, S_IRUSR | S_IWUSR, AT_SYMLINK_NOFOLLOW) < 0) || listen(listener, backlog) < 0
        || fcntl(listener, F_SETFL, O_NONBLOCK) < 0) {
        int saved = errno;
        unlinkat(directory, file, 0);
        close(listener);
        errno = saved;
        return -1;
    }
    return listener;
}

static int64_t milliseconds_now(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

// unix(7): a blocking connect to a listener with a full queue waits. SO_SNDTIMEO limits that wait; then connect fails with EAGAIN.
int cplatform_connect_to(const char *path, int64_t milliseconds) {
    struct sockaddr_un address;
    if (address_of(path, &address) < 0) return -1;
    int descriptor = make_socket();
    if (descriptor < 0) return -1;
    int64_t deadline = milliseconds < 0 ? 0 : milliseconds_now() + milliseconds;
    if (milliseconds == 0 && fcntl(descriptor, F_SETFL, O_NONBLOCK) < 0) return close_keeping_errno(descriptor);
    for (;;) {  // ends: with a connection, an error, or the deadline
        if (milliseconds > 0) {
            int64_t left = deadline - milliseconds_now();
            if (left <= 0) left = 1;
            struct timeval limit = {.tv_sec = left / 1000, .tv_usec = left % 1000 * 1000};
            setsockopt(descriptor, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
        }
        if (connect(descriptor, (struct sockaddr *)&address, sizeof address) == 0) break;
        if (errno != EINTR) return close_keeping_errno(descriptor);
        // Signals that keep coming must not end each wait before the kernel's clock has moved.
        if (milliseconds > 0 && milliseconds_now() >= deadline) {
            errno = EAGAIN;
            return close_keeping_errno(descriptor);
        }
    }
    if (milliseconds == 0 && fcntl(descriptor, F_SETFL, 0) < 0) return close_keeping_errno(descriptor);
    return descriptor;
}

int cplatform_accept_client(int listener) {
    for (;;) {  // ends: each turn removes a lost client from the queue
        int descriptor = take_connection(listener);
        if (descriptor >= 0 || (errno != EINTR && cplatform_accept_failure(errno) != CPLATFORM_ACCEPT_LOST)) return descriptor;
    }
}

bool cplatform_has_unread(int descriptor) {
    int count = 0;
    return ioctl(descriptor, FIONREAD, &count) < 0 || count > 0;
}

void cplatform_shutdown(int descriptor) { shutdown(descriptor, SHUT_RDWR); }

// MARK: Bytes and descriptors

union control {
    struct cmsghdr aligned;
    char bytes[CMSG_SPACE(CPLATFORM_PASSED_LIMIT * sizeof(int))];
};

static size_t skip(struct iovec *part, size_t offset) {
    size_t skipped = offset < part->iov_len ? offset : part->iov_len;
    part->iov_base = (char *)part->iov_base + skipped;
    part->iov_len -= skipped;
    return offset - skipped;
}

// Copying a small frame costs less than an iovec of its parts: it saves a tenth of a round trip.
enum { SMALL = 512 };

static ssize_t send_small(
    int descriptor, const void *header, size_t header_size, const void *body, size_t body_size, const void *trailer,
    size_t trailer_size) {
    char frame[SMALL];
    memcpy(frame, header, header_size);
    if (body_size > 0) memcpy(frame + header_size, body, body_size);
    memcpy(frame + header_size + body_size, trailer, trailer_size);
    return send(descriptor, frame, header_size + body_size + trailer_size, QUIETLY);
}

static ssize_t send_parts(
    int descriptor, const void *header, size_t header_size, const void *body, size_t body_size, const void *trailer,
    size_t trailer_size, size_t offset, const int *passed, int passed_count) {
    struct iovec parts[3] = {
        {.iov_base = (void *)header, .iov_len = header_size},
        {.iov_base = (void *)body, .iov_len = body_size},
        {.iov_base = (void *)trailer, .iov_len = trailer_size},
    };
    for (int index = 0; index < 3; index++) offset = skip(&parts[index], offset);
    struct msghdr message = {.msg_iov = parts, .msg_iovlen = 3};
    union control control;
    if (passed_count > 0) {
        size_t size = (size_t)passed_count * sizeof(int);
        memset(&control, 0, CMSG_SPACE(size));
        message.msg_control = control.bytes;
        message.msg_controllen = CMSG_SPACE(size);
        struct cmsghdr *first = CMSG_FIRSTHDR(&message);
        first->cmsg_level = SOL_SOCKET;
        first->cmsg_type = SCM_RIGHTS;
        first->cmsg_len = CMSG_LEN(size);
        memcpy(CMSG_DATA(first), passed, size);
    }
    return sendmsg(descriptor, &message, QUIETLY);
}

int64_t cplatform_send(
    int descriptor, const void *header, size_t header_size, const void *body, size_t body_size, const void *trailer,
    size_t trailer_size, size_t offset, const int *passed, int passed_count) {
    bool is_small = offset == 0 && passed_count == 0 && header_size + trailer_size <= SMALL && body_size <= SMALL - header_size - trailer_size;
    ssize_t count;
    // The caller holds the lock of its connection.
    int cancellation = cplatform_hold_cancellation();
    do {
        count = is_small ? send_small(descriptor, header, header_size, body, body_size, trailer, trailer_size)
                         : send_parts(
                               descriptor, header, header_size, body, body_size, trailer, trailer_size, offset, passed, passed_count);
    } while (count < 0 && errno == EINTR);
    cplatform_resume_cancellation(cancellation);
    // Without memory for the queue, Linux reports ENOBUFS and others EAGAIN.
    if (count < 0 && (errno == EWOULDBLOCK || errno == ENOBUFS)) errno = EAGAIN;
    return count;
}

static void take_passed(struct msghdr *message, int *passed, int *passed_count) {
    for (struct cmsghdr *part = CMSG_FIRSTHDR(message); part; part = CMSG_NXTHDR(message, part)) {
        if (part->cmsg_level != SOL_SOCKET || part->cmsg_type != SCM_RIGHTS) continue;
        int count = (int)((part->cmsg_len - CMSG_LEN(0)) / sizeof(int));
        for (int index = 0; index < count; index++) {
            int descriptor;
            memcpy(&descriptor, CMSG_DATA(part) + (size_t)index * sizeof(int), sizeof descriptor);
#if !defined(__linux__)
            fcntl(descriptor, F_SETFD, FD_CLOEXEC);
#endif
            if (*passed_count < CPLATFORM_PASSED_LIMIT) passed[(*passed_count)++] = descriptor; else close(descriptor);
        }
    }
}

static ssize_t receive_once(int descriptor, void *buffer, size_t size, int flags, union control *control, struct msghdr *message) {
    struct iovec part = {.iov_base = buffer, .iov_len = size};
    *message = (struct msghdr){.msg_iov = &part, .msg_iovlen = 1};
    if (control) {
        message->msg_control = control->bytes;
        message->msg_controllen = sizeof control->bytes;
    }
    ssize_t count;
    do count = recvmsg(descriptor, message, flags);
    while (count < 0 && errno == EINTR && (flags & MSG_DONTWAIT));
    // After a signal the caller checks the time.
    if (count < 0 && (errno == EWOULDBLOCK || errno == EINTR)) errno = EAGAIN;
    return count;
}

int64_t cplatform_receive(
    int descriptor, int mode, void *buffer, size_t size, int *passed, int *passed_count, bool *truncated, bool *early) {
    *passed_count = 0;
    *truncated = false;
    *early = false;
    int flags = mode == CPLATFORM_BLOCKING ? TAKING : TAKING | MSG_DONTWAIT;
    union control control;
    struct msghdr message;
    if (mode == CPLATFORM_REFUSING) {
        // Without a control buffer a peek reports that there are descriptors, and leaves them.
        ssize_t seen = receive_once(descriptor, buffer, size, flags | MSG_PEEK, NULL, &message);
        if (seen <= 0) return seen;
        *truncated = (message.msg_flags & MSG_CTRUNC) != 0;
        if (*truncated) return seen;
        size = (size_t)seen;
    }
    bool is_peeking = mode == CPLATFORM_PEEKING;
    ssize_t count = receive_once(descriptor, buffer, size, is_peeking ? flags | MSG_PEEK : flags, &control, &message);
    if (count <= 0) return count;
    if (message.msg_controllen > 0) take_passed(&message, passed, passed_count);
    *truncated = (message.msg_flags & MSG_CTRUNC) != 0;
    // Peeked descriptors are copies. Now the kernel releases its own, and closes none of these.
    if (is_peeking && !*truncated) {
        count = receive_once(descriptor, buffer, (size_t)count, flags, NULL, &message);
#if defined(__linux__)
        // A peek looks beyond the bytes that it was asked for, up to the next descriptors. Only taking the bytes shows whose these are.
        *early = *passed_count > 0 && (message.msg_flags & MSG_CTRUNC) == 0;
#endif
    }
    return count;
}

void cplatform_limit_waiting(int descriptor, int64_t milliseconds) {
    struct timeval limit = {.tv_sec = milliseconds / 1000, .tv_usec = milliseconds % 1000 * 1000};
    setsockopt(descriptor, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
}

void cplatform_await_readable(int descriptor, int64_t nanoseconds) {
    struct pollfd entry = {.fd = descriptor, .events = POLLIN};
#if defined(__linux__)
    struct timespec limit = {.tv_sec = nanoseconds / 1000000000, .tv_nsec = nanoseconds % 1000000000};
    ppoll(&entry, 1, nanoseconds < 0 ? NULL : &limit, NULL);
#else
    int64_t milliseconds = nanoseconds < 0 ? -1 : (nanoseconds + 999999) / 1000000;
    poll(&entry, 1, milliseconds > 1000000000 ? 1000000000 : (int)milliseconds);
#endif
}

// MARK: Files

static int or_working_directory(int directory) { return directory < 0 ? AT_FDCWD : directory; }

int cplatform_make_directory(int parent, const char *path) { return mkdirat(or_working_directory(parent), path, S_IRWXU); }

int cplatform_open_directory(int parent, const char *path) {
    return openat(or_working_directory(parent), path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
}

int cplatform_open_lock_file(int directory, const char *file) {
    // open(2) waits until the holder of a lease (fcntl(2), F_SETLEASE) gives it up, unless O_NONBLOCK is set.
    int descriptor = openat(directory, file, O_RDWR | O_CREAT | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, S_IRUSR | S_IWUSR);
    if (descriptor < 0) return -1;
    struct stat status;
    if (fstat(descriptor, &status) < 0) return close_keeping_errno(descriptor);
    if (!S_ISREG(status.st_mode)) {
        close(descriptor);
        errno = EINVAL;
        return -1;
    }
    return descriptor;
}

void cplatform_unlock_file(int descriptor) { flock(descriptor, LOCK_UN); }

int cplatform_try_lock_file(int descriptor) {
    int result;
    do result = flock(descriptor, LOCK_EX | LOCK_NB);
    while (result < 0 && errno == EINTR);
    return result;
}
