// Many datagrams in one system call.
//
// Lifecycle of the memory: each thread that receives or sends batches has one piece for each, made with its first batch, and freed when the
// thread ends.

#if defined(__linux__) && !defined(_GNU_SOURCE)
#define _GNU_SOURCE
#endif
#include "CDatagrams.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>

// What a batch holds at most, unless it is one datagram.
enum { BATCH_BYTES = 256 << 10 };

#if defined(__linux__)
typedef struct mmsghdr message;
static int receive_messages(int descriptor, message *messages, unsigned count) { return recvmmsg(descriptor, messages, count, MSG_DONTWAIT, 0); }
static int send_messages(int descriptor, message *messages, unsigned count) {
    return sendmmsg(descriptor, messages, count, MSG_DONTWAIT | MSG_NOSIGNAL);
}
#define SEND_FLAGS (MSG_DONTWAIT | MSG_NOSIGNAL)
#else
typedef struct {
    struct msghdr msg_hdr;
    unsigned msg_len;
} message;
static int receive_messages(int descriptor, message *messages, unsigned count) {
    unsigned done = 0;
    while (done < count) {
        ssize_t size = recvmsg(descriptor, &messages[done].msg_hdr, MSG_DONTWAIT);
        if (size < 0) break;
        messages[done++].msg_len = (unsigned)size;
    }
    return done ? (int)done : -1;
}
static int send_messages(int descriptor, message *messages, unsigned count) {
    unsigned done = 0;
    while (done < count && sendmsg(descriptor, &messages[done].msg_hdr, MSG_DONTWAIT) >= 0) done++;
    return done ? (int)done : -1;
}
#define SEND_FLAGS MSG_DONTWAIT
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
};

struct batches {
    struct batch receiving, sending;
};

static __thread struct batches *own;
static pthread_key_t key;
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void free_batches(void *batches) {
    free(((struct batches *)batches)->receiving.space);
    free(((struct batches *)batches)->sending.space);
    free(batches);
    own = 0;
}

static void make_key(void) { (void)pthread_key_create(&key, free_batches); }

static struct batches *batches(void) {
    if (own) return own;
    struct batches *made = calloc(1, sizeof(*made));
    if (!made) return 0;
    pthread_once(&once, make_key);
    if (pthread_setspecific(key, made) != 0) {
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

int cdatagrams_send(int descriptor, const void *bytes, size_t count, const struct cplatform_address *peer) {
    ssize_t result;
    do {
        result = sendto(
            descriptor, count ? bytes : "", count, SEND_FLAGS, peer ? (const struct sockaddr *)peer->bytes : 0, peer ? peer->length : 0);
    } while (result < 0 && errno == EINTR);
    return result < 0 ? errno : 0;
}

bool cdatagrams_stage(const void *bytes, size_t count, const struct cplatform_address *peer) {
    struct batches *both = batches();
    if (!both) return false;
    struct batch *batch = &both->sending;
    if (batch->count == CDATAGRAMS_BATCH || (batch->count > 0 && batch->size - batch->used < count)) return false;
    if (batch->count == 0) batch->used = 0;
    if (batch->count == 0 && !reserve(batch, count > BATCH_BYTES ? count : BATCH_BYTES)) return false;
    char *place = batch->space + batch->used;
    if (count) memcpy(place, bytes, count);
    batch->used += count;
    unsigned index = batch->count++;
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

int cdatagrams_send_staged(int descriptor) {
    struct batches *both = batches();
    if (!both || both->sending.count == 0) return 0;
    struct batch *batch = &both->sending;
    int sent;
    do sent = send_messages(descriptor, batch->messages, batch->count);
    while (sent < 0 && errno == EINTR);
    int code = errno;
    batch->count = 0;
    return sent < 0 ? -code : sent;
}
