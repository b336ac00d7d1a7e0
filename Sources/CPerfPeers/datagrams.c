// W21: a datagram echo by hand, with epoll and the same batches, and the client that drives every server.
//
// Lifecycle of a client: made by `perf_datagram_client_start`, freed by `perf_datagram_client_join`. Its socket belongs to its own thread.

#define _GNU_SOURCE
#include "CPerfPeers.h"

#include <errno.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>

enum { BATCH = 64 };

static void need(bool condition, const char *what) {
    if (condition) return;
    fprintf(stderr, "eventloop-perf: %s: %s\n", what, strerror(errno));
    exit(1);
}

/// Datagrams for one system call.
struct batch {
    struct mmsghdr messages[BATCH];
    struct iovec parts[BATCH];
    struct sockaddr_in peers[BATCH];
    char bytes[BATCH][2048];
};

static void prepare(struct batch *batch, size_t size, bool has_peers) {
    for (int index = 0; index < BATCH; index++) {
        batch->parts[index] = (struct iovec){.iov_base = batch->bytes[index], .iov_len = size};
        batch->messages[index].msg_hdr = (struct msghdr){.msg_iov = &batch->parts[index], .msg_iovlen = 1};
        if (!has_peers) continue;
        batch->messages[index].msg_hdr.msg_name = &batch->peers[index];
        batch->messages[index].msg_hdr.msg_namelen = sizeof batch->peers[index];
    }
}

// MARK: The client

struct perf_datagram_client {
    uint16_t port;
    int at_once;
    long warmup, datagrams;
    void *thread;
    int64_t wall_ns, cpu_ns;
};

static void exchange(int descriptor, struct batch *batch, int at_once, long datagrams) {
    while (datagrams > 0) {
        unsigned count = (unsigned)(datagrams < at_once ? datagrams : at_once);
        for (unsigned index = 0; index < count; index++) batch->parts[index].iov_len = PERF_MESSAGE;
        need(sendmmsg(descriptor, batch->messages, count, 0) == (int)count, "sending datagrams");
        for (unsigned received = 0; received < count;) {
            int more = recvmmsg(descriptor, batch->messages, count - received, MSG_WAITFORONE, 0);
            need(more > 0, "an answer was lost");
            received += (unsigned)more;
        }
        datagrams -= count;
    }
}

static void run_client(void *argument) {
    struct perf_datagram_client *client = argument;
    perf_pin_this_thread(1);  // the server has processor 0
    struct sockaddr_in server = {
        .sin_family = AF_INET, .sin_port = htons(client->port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int descriptor = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    struct timeval patience = {.tv_sec = 60};
    need(descriptor >= 0 && connect(descriptor, (struct sockaddr *)&server, sizeof server) == 0 &&
             setsockopt(descriptor, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience) == 0,
         "connecting to the server");
    struct batch *batch = calloc(1, sizeof *batch);
    prepare(batch, PERF_MESSAGE, false);
    exchange(descriptor, batch, client->at_once, client->warmup);
    int64_t wall = perf_wall_ns(), cpu = perf_process_cpu_ns() - perf_thread_cpu_ns();
    exchange(descriptor, batch, client->at_once, client->datagrams);
    client->wall_ns = perf_wall_ns() - wall;
    client->cpu_ns = perf_process_cpu_ns() - perf_thread_cpu_ns() - cpu;
    need(send(descriptor, "", 1, 0) == 1, "ending the server");
    free(batch);
    close(descriptor);
}

struct perf_datagram_client *perf_datagram_client_start(uint16_t port, int at_once, long warmup, long datagrams) {
    struct perf_datagram_client *client = calloc(1, sizeof *client);
    *client = (struct perf_datagram_client){.port = port, .at_once = at_once, .warmup = warmup, .datagrams = datagrams};
    client->thread = perf_thread_start(run_client, client);
    return client;
}

void perf_datagram_client_join(struct perf_datagram_client *client, struct perf_sample *sample) {
    perf_thread_join(client->thread);
    sample->wall_ns += client->wall_ns;
    sample->cpu_ns += client->cpu_ns;
    free(client);
}

// MARK: The server

// Sends back what waits. False after the last datagram.
static bool answer(int descriptor, struct batch *batch) {
    prepare(batch, sizeof batch->bytes[0], true);
    int received = recvmmsg(descriptor, batch->messages, BATCH, MSG_DONTWAIT, 0);
    if (received < 0) return errno == EAGAIN || errno == EINTR;
    if (batch->messages[received - 1].msg_len == 1) return false;
    for (int index = 0; index < received; index++) batch->parts[index].iov_len = batch->messages[index].msg_len;
    return sendmmsg(descriptor, batch->messages, (unsigned)received, MSG_DONTWAIT) == received;
}

void peer_epoll_datagrams(int at_once, long warmup, long ops, struct perf_sample *sample) {
    perf_pin_this_thread(0);
    int descriptor = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0), poller = epoll_create1(EPOLL_CLOEXEC);
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t length = sizeof address;
    struct epoll_event interest = {.events = EPOLLIN}, ready;
    need(descriptor >= 0 && bind(descriptor, (struct sockaddr *)&address, sizeof address) == 0 &&
             getsockname(descriptor, (struct sockaddr *)&address, &length) == 0 &&
             epoll_ctl(poller, EPOLL_CTL_ADD, descriptor, &interest) == 0,
         "binding a datagram socket");
    struct batch *batch = calloc(1, sizeof *batch);
    struct perf_datagram_client *client = perf_datagram_client_start(ntohs(address.sin_port), at_once, warmup, ops);
    do epoll_wait(poller, &ready, 1, -1);
    while (answer(descriptor, batch));
    perf_datagram_client_join(client, sample);
    free(batch);
    close(poller);
    close(descriptor);
}
