// Stream sockets and their addresses: macros, unions and overlaid structures of C, and the differences between systems.

#if defined(__linux__) && !defined(_GNU_SOURCE)
#define _GNU_SOURCE
#endif
#include "CPlatform.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <net/if.h>
#include <netinet/in.h>
#include <poll.h>
#include <stddef.h>
#include <stdlib.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

_Static_assert(sizeof(struct sockaddr_un) <= sizeof(((struct cplatform_address *)0)->bytes), "the longest address fits");

#if defined(__linux__)
enum { HAS_ABSTRACT_NAMES = 1 };
#define NEW_SOCKET_FLAGS (SOCK_NONBLOCK | SOCK_CLOEXEC)
static int prepared(int descriptor) { return descriptor; }
static int accept_prepared(int listener, struct sockaddr *peer, socklen_t *length) {
    return accept4(listener, peer, length, NEW_SOCKET_FLAGS);
}
int cplatform_accept_native(int listener, void *address, uint32_t *size) { return accept4(listener, address, size, SOCK_CLOEXEC); }
#else
enum { HAS_ABSTRACT_NAMES = 0 };
#define NEW_SOCKET_FLAGS 0
static int prepared(int descriptor) {
    if (descriptor < 0) return -1;
    if (fcntl(descriptor, F_SETFL, O_NONBLOCK) == 0 && fcntl(descriptor, F_SETFD, FD_CLOEXEC) == 0) return descriptor;
    int saved = errno;
    close(descriptor);
    errno = saved;
    return -1;
}
static int accept_prepared(int listener, struct sockaddr *peer, socklen_t *length) { return prepared(accept(listener, peer, length)); }
int cplatform_accept_native(int listener, void *address, uint32_t *size) {
    int connection = accept(listener, address, size);
    if (connection >= 0) fcntl(connection, F_SETFD, FD_CLOEXEC);
    return connection;
}
#endif

// MARK: Addresses

static void set_length(struct cplatform_address *address, size_t length) {
    address->length = (uint32_t)length;
#if !defined(__linux__)
    address->bytes[0] = (unsigned char)length;  // sa_len
#endif
}

bool cplatform_make_ipv4(struct cplatform_address *address, const char *host, uint16_t port) {
    struct sockaddr_in ipv4;
    memset(&ipv4, 0, sizeof(ipv4));
    ipv4.sin_family = AF_INET;
    ipv4.sin_port = htons(port);
    if (inet_pton(AF_INET, host, &ipv4.sin_addr) != 1) return false;
    memcpy(address->bytes, &ipv4, sizeof(ipv4));
    set_length(address, sizeof(ipv4));
    return true;
}

static bool parse_scope(const char *text, uint32_t *scope) {
    if (*text == 0) return false;
    char *end;
    errno = 0;
    unsigned long number = strtoul(text, &end, 10);
    if (*text >= '0' && *text <= '9' && *end == 0 && errno == 0 && number <= UINT32_MAX) {
        *scope = (uint32_t)number;
        return true;
    }
    *scope = if_nametoindex(text);
    return *scope != 0;
}

bool cplatform_make_ipv6(struct cplatform_address *address, const char *host, uint16_t port) {
    struct sockaddr_in6 ipv6;
    memset(&ipv6, 0, sizeof(ipv6));
    ipv6.sin6_family = AF_INET6;
    ipv6.sin6_port = htons(port);
    char numbers[INET6_ADDRSTRLEN];
    const char *percent = strchr(host, '%');
    size_t length = percent ? (size_t)(percent - host) : strlen(host);
    if (length >= sizeof(numbers)) return false;
    memcpy(numbers, host, length);
    numbers[length] = 0;
    if (inet_pton(AF_INET6, numbers, &ipv6.sin6_addr) != 1) return false;
    if (percent && !parse_scope(percent + 1, &ipv6.sin6_scope_id)) return false;
    memcpy(address->bytes, &ipv6, sizeof(ipv6));
    set_length(address, sizeof(ipv6));
    return true;
}

bool cplatform_make_unix(struct cplatform_address *address, const char *path, uint32_t length) {
    struct sockaddr_un local;
    memset(&local, 0, sizeof(local));
    local.sun_family = AF_UNIX;
    bool is_abstract = length > 0 && path[0] == 0;
    if (length == 0 || (is_abstract && (!HAS_ABSTRACT_NAMES || length == 1))) return false;
    // A path ends with a zero byte, an abstract name with the address.
    if (length > sizeof(local.sun_path) - (is_abstract ? 0 : 1)) return false;
    if (!is_abstract && memchr(path, 0, length)) return false;
    memcpy(local.sun_path, path, length);
    memcpy(address->bytes, &local, sizeof(local));
    set_length(address, offsetof(struct sockaddr_un, sun_path) + length + (is_abstract ? 0 : 1));
    return true;
}

int cplatform_address_kind(const struct cplatform_address *address) {
    if (address->length < sizeof(sa_family_t)) return 0;
    switch (((const struct sockaddr *)address->bytes)->sa_family) {
    case AF_INET: return CPLATFORM_IPV4;
    case AF_INET6: return CPLATFORM_IPV6;
    case AF_UNIX: return CPLATFORM_UNIX;
    default: return 0;
    }
}

uint16_t cplatform_address_port(const struct cplatform_address *address) {
    if (cplatform_address_kind(address) == CPLATFORM_IPV4) return ntohs(((const struct sockaddr_in *)address->bytes)->sin_port);
    return ntohs(((const struct sockaddr_in6 *)address->bytes)->sin6_port);
}

static char *write_decimal(char *text, unsigned value) {
    if (value >= 100) *text++ = (char)('0' + value / 100);
    if (value >= 10) *text++ = (char)('0' + value / 10 % 10);
    *text++ = (char)('0' + value % 10);
    return text;
}

// As inet_ntop, which calls printf: 1,700 instructions for each accepted connection, against 100.
static void write_ipv4(const struct in_addr *host, char *text) {
    const unsigned char *bytes = (const unsigned char *)&host->s_addr;  // in the network's order
    for (int index = 0; index < 4; index++) {
        text = write_decimal(text, bytes[index]);
        *text++ = index < 3 ? '.' : 0;
    }
}

void cplatform_address_host(const struct cplatform_address *address, char text[CPLATFORM_HOST_SIZE]) {
    text[0] = 0;
    if (cplatform_address_kind(address) == CPLATFORM_IPV4) {
        write_ipv4(&((const struct sockaddr_in *)address->bytes)->sin_addr, text);
        return;
    }
    const struct sockaddr_in6 *ipv6 = (const struct sockaddr_in6 *)address->bytes;
    inet_ntop(AF_INET6, &ipv6->sin6_addr, text, CPLATFORM_HOST_SIZE);
    if (ipv6->sin6_scope_id == 0) return;
    char name[IF_NAMESIZE];
    size_t length = strlen(text);
    if (if_indextoname(ipv6->sin6_scope_id, name)) {
        snprintf(text + length, CPLATFORM_HOST_SIZE - length, "%%%s", name);
    } else {
        snprintf(text + length, CPLATFORM_HOST_SIZE - length, "%%%u", ipv6->sin6_scope_id);
    }
}

const char *cplatform_address_path(const struct cplatform_address *address, uint32_t *length) {
    const struct sockaddr_un *local = (const struct sockaddr_un *)address->bytes;
    size_t start = offsetof(struct sockaddr_un, sun_path);
    size_t whole = address->length > start ? address->length - start : 0;
    if (whole > sizeof(local->sun_path)) whole = sizeof(local->sun_path);
    bool is_abstract = HAS_ABSTRACT_NAMES && whole > 0 && local->sun_path[0] == 0;
    *length = (uint32_t)(is_abstract ? whole : strnlen(local->sun_path, whole));
    return local->sun_path;
}

bool cplatform_address_is_any_ipv6(const struct cplatform_address *address) {
    if (cplatform_address_kind(address) != CPLATFORM_IPV6) return false;
    return IN6_IS_ADDR_UNSPECIFIED(&((const struct sockaddr_in6 *)address->bytes)->sin6_addr);
}

typedef int address_reader(int descriptor, struct sockaddr *address, socklen_t *length);

static int read_address(int descriptor, struct cplatform_address *address, address_reader *reader) {
    memset(address, 0, sizeof(*address));
    socklen_t length = sizeof(address->bytes);
    if (reader(descriptor, (struct sockaddr *)address->bytes, &length) < 0) return -1;
    address->length = length;
    return 0;
}

int cplatform_local_address(int descriptor, struct cplatform_address *address) { return read_address(descriptor, address, getsockname); }
int cplatform_peer_address(int descriptor, struct cplatform_address *address) { return read_address(descriptor, address, getpeername); }

// MARK: Sockets

int cplatform_make_socket(const struct cplatform_address *address) {
    int family = ((const struct sockaddr *)address->bytes)->sa_family;
    return prepared(socket(family, SOCK_STREAM | NEW_SOCKET_FLAGS, 0));
}

static int set_option(int descriptor, int level, int option, int value) {
    return setsockopt(descriptor, level, option, &value, sizeof(value));
}

// MARK: Files of Unix sockets

static const char *path_of(const struct cplatform_address *address) {
    const char *path = ((const struct sockaddr_un *)address->bytes)->sun_path;
    return cplatform_address_kind(address) == CPLATFORM_UNIX && path[0] != 0 ? path : 0;
}

// Whether the path is a socket's on which nobody listens: connecting is refused. A listener whose queue is full answers EAGAIN.
static bool is_stale(const struct cplatform_address *address, struct stat *file) {
    if (lstat(path_of(address), file) < 0 || !S_ISSOCK(file->st_mode)) return false;
    int trial = cplatform_make_socket(address);
    if (trial < 0) return false;
    bool is_refused = connect(trial, (const struct sockaddr *)address->bytes, address->length) < 0 && errno == ECONNREFUSED;
    close(trial);
    return is_refused;
}

static bool remove_stale(const struct cplatform_address *address) {
    struct stat stale, present;
    if (!is_stale(address, &stale) || lstat(path_of(address), &present) < 0) return false;
    if (present.st_dev != stale.st_dev || present.st_ino != stale.st_ino) return false;
    return unlink(path_of(address)) == 0;
}

// Between bind(2) and listen(2) a new socket looks like a stale one. So the two are one step for all who replace stale files: they hold a lock on
// the directory. Without the lock (a file system that has none, or somebody who keeps it) the step is taken all the same. -1 if there is no lock.
static int lock_directory(const char *path) {
    char directory[sizeof(((struct sockaddr_un *)0)->sun_path) + 1];
    snprintf(directory, sizeof(directory), "%s", path);
    char *slash = strrchr(directory, '/');
    if (slash) slash[slash == directory] = 0; else snprintf(directory, sizeof(directory), ".");
    int descriptor = open(directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    for (int tries = 0; descriptor >= 0 && tries < 100; tries++) {
        if (flock(descriptor, LOCK_EX | LOCK_NB) == 0) return descriptor;
        if (errno != EWOULDBLOCK && errno != EINTR) break;
        poll(0, 0, 1);
    }
    if (descriptor >= 0) close(descriptor);
    return -1;
}

static const char *bind_and_listen(int descriptor, const struct cplatform_address *address, int backlog) {
    if (bind(descriptor, (const struct sockaddr *)address->bytes, address->length) < 0) {
        if (errno != EADDRINUSE || !path_of(address)) return "bind";
        if (!remove_stale(address)) return errno = EADDRINUSE, "bind";
        if (bind(descriptor, (const struct sockaddr *)address->bytes, address->length) < 0) return "bind";
    }
    return listen(descriptor, backlog) < 0 ? "listen" : 0;
}

const char *cplatform_listen(int descriptor, const struct cplatform_address *address, int backlog, bool reuse_port, bool ipv6_only) {
    bool is_unix = cplatform_address_kind(address) == CPLATFORM_UNIX;
    // Lingering connections of an earlier listener do not count as "in use"; an active listener does.
    if (!is_unix && set_option(descriptor, SOL_SOCKET, SO_REUSEADDR, 1) < 0) return "setsockopt(SO_REUSEADDR)";
    if (!is_unix && reuse_port && set_option(descriptor, SOL_SOCKET, SO_REUSEPORT, 1) < 0) return "setsockopt(SO_REUSEPORT)";
    // The system's setting (net.ipv6.bindv6only) may be either.
    if (cplatform_address_is_any_ipv6(address) && set_option(descriptor, IPPROTO_IPV6, IPV6_V6ONLY, ipv6_only) < 0) {
        return "setsockopt(IPV6_V6ONLY)";
    }
    // A thread that ended here would keep the lock as long as the process lives.
    int cancellation = cplatform_hold_cancellation();
    int lock = path_of(address) ? lock_directory(path_of(address)) : -1;
    const char *failed = bind_and_listen(descriptor, address, backlog);
    int saved = errno;
    if (lock >= 0) close(lock);
    cplatform_resume_cancellation(cancellation);
    errno = saved;
    return failed;
}

// MARK: The end of listening

#if defined(__linux__)
#include <linux/filter.h>

// A new connection begins with a packet that has the flag SYN and not ACK. The filter sees the header of TCP, whose byte 13 has the flags.
// The client sends the packet again after a second, and is refused then, or accepted by somebody else who listens there.
static void drop_new_connections(int listener) {
    struct sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_B | BPF_ABS, 13),
        BPF_STMT(BPF_ALU | BPF_AND | BPF_K, 0x12),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, 0x02, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, 0),
        BPF_STMT(BPF_RET | BPF_K, 0xFFFFFFFF),
    };
    struct sock_fprog program = {.len = sizeof(code) / sizeof(code[0]), .filter = code};
    setsockopt(listener, SOL_SOCKET, SO_ATTACH_FILTER, &program, sizeof(program));
}

void cplatform_refuse_connections(int listener) {
    struct cplatform_address local;
    if (cplatform_local_address(listener, &local) < 0) return;
    // A Unix socket that is shut down refuses connections, and accepts those in its queue.
    if (cplatform_address_kind(&local) == CPLATFORM_UNIX) shutdown(listener, SHUT_RD); else drop_new_connections(listener);
}
#else
void cplatform_refuse_connections(int listener) { (void)listener; }
#endif

bool cplatform_is_readable(int descriptor) {
    struct pollfd entry = {.fd = descriptor, .events = POLLIN};
    return poll(&entry, 1, 0) > 0;
}

int cplatform_unread_bytes(int descriptor) {
    int count = 0;
    return ioctl(descriptor, FIONREAD, &count) < 0 || count < 0 ? 0 : count;
}

bool cplatform_is_blocking(int descriptor) {
    int status = fcntl(descriptor, F_GETFL);
    return status >= 0 && !(status & O_NONBLOCK);
}

const char *cplatform_bind_local(int descriptor, const struct cplatform_address *address) {
#if defined(IP_BIND_ADDRESS_NO_PORT)
    // With a port of 0, connect(2) chooses one that is free for this peer, not for all.
    if (cplatform_address_kind(address) != CPLATFORM_UNIX) set_option(descriptor, IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, 1);
#endif
    return bind(descriptor, (const struct sockaddr *)address->bytes, address->length) < 0 ? "bind" : 0;
}

static int accept_now(int listener, struct cplatform_address *peer) {
    int descriptor;
    do {
        memset(peer, 0, sizeof(*peer));
        socklen_t length = sizeof(peer->bytes);
        descriptor = accept_prepared(listener, (struct sockaddr *)peer->bytes, &length);
        peer->length = length;
    } while (descriptor < 0 && errno == EINTR);
    return descriptor < 0 ? -errno : descriptor;
}

int cplatform_accept(int listener, struct cplatform_address *peer, bool is_shared) {
    int result = accept_now(listener, peer);
    if (result != -EAGAIN || !is_shared || !(cplatform_readiness(listener, CPLATFORM_CLOSED) & CPLATFORM_CLOSED)) return result;
    // Once more, for a client that has connected since and before the shutdown.
    result = accept_now(listener, peer);
    return result == -EAGAIN ? -EINVAL : result;
}

// Errors of the network and of the peer that end one connection.
static bool ends_connection(int code) {
    switch (code) {
    case ECONNABORTED: case ECONNRESET: case ETIMEDOUT: case EPROTO: case ENETDOWN: case ENOPROTOOPT: case EHOSTDOWN: case EHOSTUNREACH:
    case ENETUNREACH: case EOPNOTSUPP:
#if defined(ENONET)
    case ENONET:
#endif
        return true;
    default:
        return false;
    }
}

// The kernel gives a connection up with the last thing that it has heard of the way to the peer, and with ETIMEDOUT if it has heard nothing. It may
// also hear that the port is closed (ECONNREFUSED) or the address forbidden (EACCES). From accept(2), EACCES is a security module's and would repeat.
bool cplatform_is_connection_failure(int code) { return ends_connection(code) || code == ECONNREFUSED || code == EACCES; }

int cplatform_accept_failure(int code) {
    switch (code) {
    case EAGAIN:
#if EWOULDBLOCK != EAGAIN
    case EWOULDBLOCK:
#endif
        return CPLATFORM_ACCEPT_NOTHING;
    case EMFILE: case ENFILE: case ENOBUFS: case ENOMEM:
        return CPLATFORM_ACCEPT_EXHAUSTED;
    // accept(2): "Linux accept() (and accept4()) passes already-pending network errors on the new socket as an error code [...]. For
    // reliable operation the application should detect the network errors defined for the protocol after accept() and treat them like
    // EAGAIN by retrying. [...] these are ENETDOWN, EPROTO, ENOPROTOOPT, EHOSTDOWN, ENONET, EHOSTUNREACH, EOPNOTSUPP, and ENETUNREACH."
    // They are the connection's, which is gone. So is a firewall's refusal (EPERM).
    case EPERM:
        return CPLATFORM_ACCEPT_LOST;
    default:
        return ends_connection(code) ? CPLATFORM_ACCEPT_LOST : CPLATFORM_ACCEPT_BROKEN;
    }
}

int cplatform_connect(int descriptor, const struct cplatform_address *address) {
    // The caller may hold a lock.
    int cancellation = cplatform_hold_cancellation();
    int code = connect(descriptor, (const struct sockaddr *)address->bytes, address->length) == 0 ? 0 : errno;
    cplatform_resume_cancellation(cancellation);
    // connect(2) on EINTR: as with EINPROGRESS, connecting continues.
    return code == EINTR ? EINPROGRESS : code;
}

// A socket that connects to a free port of its own host can get that port for itself, and then connects to itself (a simultaneous open). Nobody
// listens there.
static bool is_own_peer(int descriptor, const struct sockaddr_storage *peer, socklen_t peer_length) {
    struct sockaddr_storage local;
    socklen_t length = sizeof(local);
    if (peer->ss_family != AF_INET && peer->ss_family != AF_INET6) return false;
    if (getsockname(descriptor, (struct sockaddr *)&local, &length) < 0 || length != peer_length) return false;
    return memcmp(&local, peer, length) == 0;
}

int cplatform_connect_result(int descriptor) {
    int code = 0;
    socklen_t length = sizeof(code);
    if (getsockopt(descriptor, SOL_SOCKET, SO_ERROR, &code, &length) < 0) return errno;
    if (code != 0) return code;
    for (int tries = 0; tries < 2; tries++) {
        struct sockaddr_storage peer;
        length = sizeof(peer);
        if (getpeername(descriptor, (struct sockaddr *)&peer, &length) == 0) {
            return is_own_peer(descriptor, &peer, length) ? ECONNREFUSED : 0;
        }
        // BSD: the peer has connected and disconnected. The first read reports that.
        if (errno == EINVAL) return 0;
        if (errno != ENOTCONN) return errno;
        struct pollfd entry = {.fd = descriptor, .events = POLLOUT};
        int cancellation = cplatform_hold_cancellation();
        int count = poll(&entry, 1, 0);
        cplatform_resume_cancellation(cancellation);
        if (count <= 0) return EINPROGRESS;
        // Ready, but without a peer: it has connected just now, or it has lost its peer and other code has taken the error.
        if (entry.revents & (POLLHUP | POLLERR)) return ENOTCONN;
    }
    return EINPROGRESS;
}

#if defined(__linux__)
// A socket that has no connection, and is not connecting, reports a hang-up.
void cplatform_hang_up(int descriptor) { shutdown(descriptor, SHUT_RDWR); }
#else
// BSD reports nothing of a socket that has never begun to connect. One whose peer has gone takes its place.
void cplatform_hang_up(int descriptor) {
    int ends[2];
    if (shutdown(descriptor, SHUT_RDWR) == 0 || socketpair(AF_UNIX, SOCK_STREAM, 0, ends) < 0) return;
    int cancellation = cplatform_hold_cancellation();
    close(ends[1]);
    if (prepared(ends[0]) >= 0) {
        dup2(ends[0], descriptor);
        fcntl(descriptor, F_SETFD, FD_CLOEXEC);
        close(ends[0]);
    }
    cplatform_resume_cancellation(cancellation);
}
#endif

int cplatform_duplicate(int descriptor) { return fcntl(descriptor, F_DUPFD_CLOEXEC, 0); }

// MARK: Bound files

int cplatform_bound_file(const char *path, uint64_t *device, uint64_t *inode) {
    struct stat status;
    if (lstat(path, &status) < 0) return -1;
    *device = (uint64_t)status.st_dev;
    *inode = (uint64_t)status.st_ino;
    return 0;
}

void cplatform_unlink_bound_file(const char *path, uint64_t device, uint64_t inode) {
    uint64_t present_device, present_inode;
    if (cplatform_bound_file(path, &present_device, &present_inode) < 0) return;
    if (present_device == device && present_inode == inode) unlink(path);
}
