// Many datagrams in one system call.
//
// Lifecycle of the memory: each thread that receives or sends batches has one piece for each, made with its first batch, and freed when the
// thread ends; never freed if the process has no key left for it (PTHREAD_KEYS_MAX).

#if defined(__linux__) && !defined(_GNU_SOURCE)
#define _GNU_SOURCE
#endif
#include "CDatagrams.h"

#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>

// What a batch holds at most, unless it is one datagram.
enum { BATCH_BYTES = 256 << 10 };

// One of UDP has 65,535 bytes at most, and one of a Unix socket what the sender's buffer holds.
enum { LONGEST_DATAGRAM = 16 << 20 };

#if defined(__linux__)
typedef struct mmsghdr message;
#define SEND_FLAGS (MSG_DONTWAIT | MSG_NOSIGNAL)
static int receive_now(int descriptor, message *messages, unsigned count) {
    return recvmmsg(descriptor, messages, count, MSG_DONTWAIT, 0);
}
// "If an error occurs after at least one message has been sent, the call succeeds, and returns the number of messages sent. The error code is lost"
// (sendmmsg(2)). By then the socket has forgotten it, too: SO_ERROR is 0. Only the first message of a call hears why it was refused, and the message
// that was refused becomes the first one of the next call. A call for each message would say it, at the price of the batches.
static int send_now(int descriptor, message *messages, unsigned count) {
    return sendmmsg(descriptor, messages, count, SEND_FLAGS);
}
// Whether the kernel reports room of an internet socket.
static bool reports_room(int descriptor) {
    int domain = AF_UNIX;
    socklen_t length = sizeof(domain);
    if (getsockopt(descriptor, SOL_SOCKET, SO_DOMAIN, &domain, &length) < 0 || domain == AF_UNIX) return false;
    struct pollfd entry = {.fd = descriptor, .events = POLLOUT};
    int state = cplatform_hold_cancellation();
    int count = poll(&entry, 1, 0);
    cplatform_resume_cancellation(state);
    return count > 0 && (entry.revents & POLLOUT);
}
#else
typedef struct {
    struct msghdr msg_hdr;
    unsigned msg_len;
} message;
#define SEND_FLAGS MSG_DONTWAIT
static int receive_now(int descriptor, message *messages, unsigned count) {
    unsigned done = 0;
    while (done < count) {
        ssize_t size = recvmsg(descriptor, &messages[done].msg_hdr, MSG_DONTWAIT);
        if (size < 0) break;
        messages[done++].msg_len = (unsigned)size;
    }
    return done ? (int)done : -1;
}
static int send_now(int descriptor, message *messages, unsigned count) {
    unsigned done = 0;
    while (done < count && sendmsg(descriptor, &messages[done].msg_hdr, MSG_DONTWAIT) >= 0) done++;
    return done ? (int)done : -1;
}
static bool reports_room(int descriptor) {
    (void)descriptor;
    return false;
}
#endif

static int receive_messages(int descriptor, message *messages, unsigned count) {
    int state = cplatform_hold_cancellation();
    int result = receive_now(descriptor, messages, count);
    cplatform_resume_cancellation(state);
    return result;
}

static int send_messages(int descriptor, message *messages, unsigned count) {
    int state = cplatform_hold_cancellation();
    int result = send_now(descriptor, messages, count);
    cplatform_resume_cancellation(state);
    return result;
}

static ssize_t send_one(int descriptor, const void *bytes, size_t count, const struct cplatform_address *peer) {
    int state = cplatform_hold_cancellation();
    ssize_t result =
        sendto(descriptor, bytes, count, SEND_FLAGS, peer ? (const struct sockaddr *)peer->bytes : 0, peer ? peer->length : 0);
    cplatform_resume_cancellation(state);
    return result;
}

// Linux cuts one large message into datagrams of one size, which costs one walk through its network stack instead of many (udp(7), UDP_SEGMENT).
#if defined(__linux__)
#ifndef UDP_SEGMENT
#define UDP_SEGMENT 103
#endif
#define HAS_SEGMENTS 1
// UDP_MAX_SEGMENTS of the first kernels that have it, and a length that IPv4 and IPv6 carry.
enum { SEGMENTS = 64, SEGMENTED_BYTES = 65000 };
#else
#define HAS_SEGMENTS 0
enum { SEGMENTS = 1, SEGMENTED_BYTES = 0 };
#endif

struct batch {
    message messages[CDATAGRAMS_BATCH];
    struct iovec parts[CDATAGRAMS_BATCH];
    struct cplatform_address peers[CDATAGRAMS_BATCH];
    char *space;
    size_t size;
    /// Staged for sending.
    size_t used;
    unsigned count;
    /// Of each message that is staged: how many datagrams it has, and their size; the last one may be shorter.
    unsigned segments[CDATAGRAMS_BATCH];
    size_t sizes[CDATAGRAMS_BATCH];
};

struct batches {
    struct batch receiving, sending;
};

static __thread struct batches *own;
static pthread_key_t key;
static bool has_key;
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void free_batches(void *batches) {
    free(((struct batches *)batches)->receiving.space);
    free(((struct batches *)batches)->sending.space);
    free(batches);
    own = 0;
}

static void make_key(void) { has_key = pthread_key_create(&key, free_batches) == 0; }

static struct batches *batches(void) {
    if (own) return own;
    struct batches *made = calloc(1, sizeof(*made));
    if (!made) return 0;
    pthread_once(&once, make_key);
    // If the process has no key left, the memory outlives its thread. Without a value of its own, `key` would be another library's.
    if (has_key && pthread_setspecific(key, made) != 0) {
        free(made);
        return 0;
    }
    return own = made;
}

static bool reserve(struct batch *batch, size_t size) {
    if (batch->size >= size) return true;
    char *space = malloc(size);
    if (!space) return false;
    free(batch->space);
    batch->space = space;
    batch->size = size;
    return true;
}

int cdatagrams_receive(int descriptor, size_t maximum_size, void *context, cdatagrams_each *each) {
    struct batches *both = batches();
    if (!both) return -ENOMEM;
    struct batch *batch = &both->receiving;
    if (maximum_size > LONGEST_DATAGRAM) maximum_size = LONGEST_DATAGRAM;
    size_t room = BATCH_BYTES / maximum_size;
    unsigned count = room < 1 ? 1 : room > CDATAGRAMS_BATCH ? CDATAGRAMS_BATCH : (unsigned)room;
    if (!reserve(batch, count * maximum_size)) return -ENOMEM;
    for (unsigned index = 0; index < count; index++) {
        batch->parts[index] = (struct iovec){.iov_base = batch->space + index * maximum_size, .iov_len = maximum_size};
        batch->messages[index].msg_hdr = (struct msghdr){
            .msg_name = batch->peers[index].bytes, .msg_namelen = sizeof(batch->peers[index].bytes), .msg_iov = &batch->parts[index],
            .msg_iovlen = 1};
    }
    int received;
    do received = receive_messages(descriptor, batch->messages, count);
    while (received < 0 && errno == EINTR);
    if (received < 0) return -errno;
    for (int index = 0; index < received; index++) {
        const message *one = &batch->messages[index];
        batch->peers[index].length = one->msg_hdr.msg_namelen;
        size_t size = one->msg_len < maximum_size ? one->msg_len : maximum_size;
        each(context, batch->parts[index].iov_base, size, (one->msg_hdr.msg_flags & MSG_TRUNC) != 0, &batch->peers[index]);
    }
    return received;
}

// Whether a call that has failed to send is made again. A datagram of many fragments finds no space (ENOBUFS) while others fill the send buffer, or
// for good, because it needs more than all of it. In the second case the kernel reports room all the same, so waiting for room would never end.
static bool sends_again(int descriptor, bool *had_room) {
    int code = errno;
    if (code == EINTR) return true;
    if (code != ENOBUFS || *had_room) return false;
    *had_room = reports_room(descriptor);
    errno = code;
    return *had_room;
}

static int send_failure(bool had_room) { return errno == ENOBUFS && had_room ? EMSGSIZE : errno; }

int cdatagrams_send(int descriptor, const void *bytes, size_t count, const struct cplatform_address *peer) {
    ssize_t result;
    bool had_room = false;
    do {
        result = send_one(descriptor, count ? bytes : "", count, peer);
    } while (result < 0 && sends_again(descriptor, &had_room));
    return result < 0 ? send_failure(had_room) : 0;
}

// Whether a datagram can be the next one of the last message: the same peer, and no longer than those before it, which are of one size.
static bool extends_last(const struct batch *batch, size_t size, const struct cplatform_address *peer) {
    if (batch->count == 0) return false;
    unsigned last = batch->count - 1;
    size_t length = batch->parts[last].iov_len;
    const struct msghdr *header = &batch->messages[last].msg_hdr;
    if (size == 0 || size > batch->sizes[last] || batch->segments[last] == SEGMENTS || length + size > SEGMENTED_BYTES) return false;
    if (length != batch->segments[last] * batch->sizes[last]) return false;
    return peer ? header->msg_namelen == peer->length && memcmp(header->msg_name, peer->bytes, peer->length) == 0 : !header->msg_name;
}

bool cdatagrams_stage(const void *bytes, size_t count, const struct cplatform_address *peer, bool segments) {
    struct batches *both = batches();
    if (!both) return false;
    struct batch *batch = &both->sending;
    bool extends = segments && extends_last(batch, count, peer);
    if (batch->count == CDATAGRAMS_BATCH && !extends) return false;
    if (batch->count > 0 && batch->size - batch->used < count) return false;
    if (batch->count == 0) batch->used = 0;
    if (batch->count == 0 && !reserve(batch, count > BATCH_BYTES ? count : BATCH_BYTES)) return false;
    char *place = batch->space + batch->used;
    if (count) memcpy(place, bytes, count);
    batch->used += count;
    if (extends) {
        // Its bytes end where these begin.
        batch->parts[batch->count - 1].iov_len += count;
        batch->segments[batch->count - 1] += 1;
        return true;
    }
    unsigned index = batch->count++;
    batch->segments[index] = 1;
    batch->sizes[index] = count;
    batch->parts[index] = (struct iovec){.iov_base = place, .iov_len = count};
    struct msghdr *header = &batch->messages[index].msg_hdr;
    *header = (struct msghdr){.msg_iov = &batch->parts[index], .msg_iovlen = 1};
    if (peer) {
        batch->peers[index] = *peer;
        header->msg_name = batch->peers[index].bytes;
        header->msg_namelen = peer->length;
    }
    return true;
}

#if HAS_SEGMENTS
union control {
    char bytes[CMSG_SPACE(sizeof(uint16_t))];
    struct cmsghdr alignment;
};

static void set_segment_size(struct msghdr *header, union control *control, uint16_t size) {
    header->msg_control = control->bytes;
    header->msg_controllen = sizeof(control->bytes);
    struct cmsghdr *part = CMSG_FIRSTHDR(header);
    part->cmsg_level = IPPROTO_UDP;
    part->cmsg_type = UDP_SEGMENT;
    part->cmsg_len = CMSG_LEN(sizeof(size));
    memcpy(CMSG_DATA(part), &size, sizeof(size));
}

bool cdatagrams_has_segments(int descriptor) {
    int size;
    socklen_t length = sizeof(size);
    return getsockopt(descriptor, IPPROTO_UDP, UDP_SEGMENT, &size, &length) == 0;
}

// Of a message that only has too many segments: its length is one that a datagram cannot have, or the route cannot segment.
static bool refuses_segments(int code) { return code == EINVAL || code == EIO || code == EMSGSIZE || code == EOPNOTSUPP; }
#else
bool cdatagrams_has_segments(int descriptor) {
    (void)descriptor;
    return false;
}
static bool refuses_segments(int code) {
    (void)code;
    return false;
}
#endif

int cdatagrams_send_staged(int descriptor, bool *refuses) {
    *refuses = false;
    struct batches *both = batches();
    if (!both || both->sending.count == 0) return 0;
    struct batch *batch = &both->sending;
#if HAS_SEGMENTS
    union control controls[CDATAGRAMS_BATCH];
    memset(controls, 0, batch->count * sizeof(controls[0]));
    for (unsigned index = 0; index < batch->count; index++) {
        if (batch->segments[index] > 1) set_segment_size(&batch->messages[index].msg_hdr, &controls[index], (uint16_t)batch->sizes[index]);
    }
#endif
    int sent;
    bool had_room = false;
    do sent = send_messages(descriptor, batch->messages, batch->count);
    while (sent < 0 && sends_again(descriptor, &had_room));
    int code = send_failure(had_room);
    batch->count = 0;
    if (sent < 0) {
        *refuses = batch->segments[0] > 1 && refuses_segments(code);
        return -code;
    }
    unsigned datagrams = 0;
    for (int index = 0; index < sent; index++) datagrams += batch->segments[index];
    return (int)datagrams;
}
