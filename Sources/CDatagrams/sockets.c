// Datagram sockets: making them, their options and multicast.

#if defined(__linux__) && !defined(_GNU_SOURCE)
#define _GNU_SOURCE
#endif
#if defined(__APPLE__)
#define __APPLE_USE_RFC_3542
#endif
#include "CDatagrams.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <net/if.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#if defined(__linux__)
#ifndef SO_PASSRIGHTS
#define SO_PASSRIGHTS 83
#endif
#define NEW_SOCKET_FLAGS (SOCK_NONBLOCK | SOCK_CLOEXEC)
static int prepare(int descriptor) { return descriptor < 0 ? -1 : 0; }
// The kernel closes descriptors that a peer has sent and nobody takes, in the call that receives, and a close may block as long as the peer likes
// (SO_LINGER). Kernels before 6.16 cannot refuse them.
static void refuse_descriptors(int descriptor) {
    int off = 0;
    (void)setsockopt(descriptor, SOL_SOCKET, SO_PASSRIGHTS, &off, sizeof(off));
}
#else
#define NEW_SOCKET_FLAGS 0
static void refuse_descriptors(int descriptor) { (void)descriptor; }
static int prepare(int descriptor) {
    int one = 1;
    if (fcntl(descriptor, F_SETFL, O_NONBLOCK) < 0 || fcntl(descriptor, F_SETFD, FD_CLOEXEC) < 0) return -1;
    return setsockopt(descriptor, SOL_SOCKET, SO_NOSIGPIPE, &one, sizeof(one));
}
#endif

static int set(int descriptor, int level, int option, int64_t value) {
    int number = value > INT_MAX ? INT_MAX : value < INT_MIN ? INT_MIN : (int)value;
    return setsockopt(descriptor, level, option, &number, sizeof(number));
}

static const char *configure_multicast(int descriptor, int kind, const struct cdatagrams_options *options) {
    unsigned index = 0;
    if (options->multicast_interface && (index = if_nametoindex(options->multicast_interface)) == 0) {
        return "if_nametoindex of multicastInterface";
    }
    if (kind == CPLATFORM_IPV4) {
        if (set(descriptor, IPPROTO_IP, IP_MULTICAST_TTL, options->multicast_hops) < 0) return "setsockopt(IP_MULTICAST_TTL)";
        if (set(descriptor, IPPROTO_IP, IP_MULTICAST_LOOP, options->multicast_loops) < 0) return "setsockopt(IP_MULTICAST_LOOP)";
        struct ip_mreqn request = {.imr_ifindex = (int)index};
        if (index && setsockopt(descriptor, IPPROTO_IP, IP_MULTICAST_IF, &request, sizeof(request)) < 0) return "setsockopt(IP_MULTICAST_IF)";
    } else {
        if (set(descriptor, IPPROTO_IPV6, IPV6_MULTICAST_HOPS, options->multicast_hops) < 0) return "setsockopt(IPV6_MULTICAST_HOPS)";
        if (set(descriptor, IPPROTO_IPV6, IPV6_MULTICAST_LOOP, options->multicast_loops) < 0) return "setsockopt(IPV6_MULTICAST_LOOP)";
        if (index && set(descriptor, IPPROTO_IPV6, IPV6_MULTICAST_IF, index) < 0) return "setsockopt(IPV6_MULTICAST_IF)";
    }
    return 0;
}

static const char *configure(int descriptor, int kind, const struct cdatagrams_options *options) {
    if (prepare(descriptor) < 0) return "fcntl of the socket";
    if (options->receive_buffer >= 0 && set(descriptor, SOL_SOCKET, SO_RCVBUF, options->receive_buffer) < 0) return "setsockopt(SO_RCVBUF)";
    if (options->send_buffer >= 0 && set(descriptor, SOL_SOCKET, SO_SNDBUF, options->send_buffer) < 0) return "setsockopt(SO_SNDBUF)";
    if (kind == CPLATFORM_UNIX) {
        refuse_descriptors(descriptor);
        return 0;
    }
    if (options->shares_port && set(descriptor, SOL_SOCKET, SO_REUSEPORT, 1) < 0) return "setsockopt(SO_REUSEPORT)";
    if (options->allows_broadcast && set(descriptor, SOL_SOCKET, SO_BROADCAST, 1) < 0) return "setsockopt(SO_BROADCAST)";
    // The system's setting (net.ipv6.bindv6only) may be either.
    if (kind == CPLATFORM_IPV6 && set(descriptor, IPPROTO_IPV6, IPV6_V6ONLY, options->ipv6_only) < 0) return "setsockopt(IPV6_V6ONLY)";
    return configure_multicast(descriptor, kind, options);
}

int cdatagrams_open(int kind, const struct cdatagrams_options *options, const char **operation) {
    int family = kind == CPLATFORM_IPV4 ? AF_INET : kind == CPLATFORM_IPV6 ? AF_INET6 : AF_UNIX;
    *operation = "socket";
    int descriptor = socket(family, SOCK_DGRAM | NEW_SOCKET_FLAGS, 0);
    if (descriptor < 0) return -errno;
    const char *failed = configure(descriptor, kind, options);
    if (!failed) return descriptor;
    int code = errno;
    *operation = failed;
    cplatform_close(descriptor);
    return -code;
}

int cdatagrams_bind(int descriptor, const struct cplatform_address *address) {
    return bind(descriptor, (const struct sockaddr *)address->bytes, address->length) < 0 ? errno : 0;
}

int cdatagrams_connect(int descriptor, const struct cplatform_address *peer) {
    int result, state = cplatform_hold_cancellation();
    do result = connect(descriptor, (const struct sockaddr *)peer->bytes, peer->length);
    while (result < 0 && errno == EINTR);
    cplatform_resume_cancellation(state);
    return result < 0 ? errno : 0;
}

int cdatagrams_member(int descriptor, const struct cplatform_address *group, const char *interface, bool joins) {
    unsigned index = 0;
    if (interface && (index = if_nametoindex(interface)) == 0) return errno ? errno : ENODEV;
    int result;
    if (cplatform_address_kind(group) == CPLATFORM_IPV4) {
        struct ip_mreqn request = {
            .imr_multiaddr = ((const struct sockaddr_in *)group->bytes)->sin_addr, .imr_ifindex = (int)index};
        result = setsockopt(descriptor, IPPROTO_IP, joins ? IP_ADD_MEMBERSHIP : IP_DROP_MEMBERSHIP, &request, sizeof(request));
    } else if (cplatform_address_kind(group) == CPLATFORM_IPV6) {
        const struct sockaddr_in6 *address = (const struct sockaddr_in6 *)group->bytes;
        struct ipv6_mreq request = {
            .ipv6mr_multiaddr = address->sin6_addr, .ipv6mr_interface = index ? index : address->sin6_scope_id};
        result = setsockopt(descriptor, IPPROTO_IPV6, joins ? IPV6_JOIN_GROUP : IPV6_LEAVE_GROUP, &request, sizeof(request));
    } else {
        return EAFNOSUPPORT;
    }
    return result < 0 ? errno : 0;
}

#if defined(__linux__) && defined(SO_MEMINFO)
int64_t cdatagrams_drops(int descriptor) {
    // The counter that SO_RXQ_OVFL attaches to the next datagram, readable without one. Of <linux/sock_diag.h>: SK_MEMINFO_DROPS, SK_MEMINFO_VARS.
    enum { drops = 8, count = 9 };
    uint32_t values[count] = {0};
    socklen_t length = sizeof(values);
    if (getsockopt(descriptor, SOL_SOCKET, SO_MEMINFO, values, &length) < 0 || length < sizeof(values)) return -1;
    return values[drops];
}
#else
int64_t cdatagrams_drops(int descriptor) {
    (void)descriptor;
    return -1;
}
#endif

bool cdatagrams_equal(const struct cplatform_address *first, const struct cplatform_address *second) {
    return first->length == second->length && memcmp(first->bytes, second->bytes, first->length) == 0;
}
