// W7: the server on raw libevent, and the client that drives every server, those of W11 and W14 too.
//
// Lifecycle of a client: made by `perf_client_start`, freed by `perf_client_join`. Its connections belong to its own thread.

#define _GNU_SOURCE
#include "CPerfPeers.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include "libevent_base.h"

static void need(bool condition, const char *what) {
    if (condition) return;
    fprintf(stderr, "eventloop-perf: %s: %s\n", what, strerror(errno));
    exit(1);
}

static void set_no_delay(int socket) {
    int one = 1;
    setsockopt(socket, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
}

static void hold_whole_messages(int socket) {
    int size = 4 * PERF_LARGE_MESSAGE;
    setsockopt(socket, SOL_SOCKET, SO_SNDBUF, &size, sizeof size);
    setsockopt(socket, SOL_SOCKET, SO_RCVBUF, &size, sizeof size);
}

static struct sockaddr_in loopback(uint16_t port) {
    return (struct sockaddr_in){.sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
}

static int listen_at(uint16_t *port, int backlog, int is_shared) {
    int listener = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    struct sockaddr_in address = loopback(*port);
    socklen_t length = sizeof address;
    need(listener >= 0 && setsockopt(listener, SOL_SOCKET, SO_REUSEPORT, &is_shared, sizeof is_shared) == 0 &&
             bind(listener, (struct sockaddr *)&address, sizeof address) == 0 && listen(listener, backlog) == 0 &&
             getsockname(listener, (struct sockaddr *)&address, &length) == 0,
         "listening on the loopback");
    *port = ntohs(address.sin_port);
    return listener;
}

int perf_listen(int backlog, uint16_t *port) {
    *port = 0;
    return listen_at(port, backlog, false);
}

int perf_listen_shared(uint16_t *port) { return listen_at(port, 1024, true); }

int perf_accept(int listener) {
    int connection = accept4(listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (connection >= 0) set_no_delay(connection);
    return connection;
}

int perf_connect(uint16_t port) {
    int connection = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    struct sockaddr_in address = loopback(port);
    need(connection >= 0 && connect(connection, (struct sockaddr *)&address, sizeof address) == 0, "connecting to the server");
    set_no_delay(connection);
    return connection;
}

void perf_pair_make(int ends[2]) {
    need(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends) == 0, "making a pair of sockets");
}

// MARK: The client

struct perf_client {
    const char *request;
    size_t request_size;
    size_t least_answer;  // an answer has at least so many bytes
    uint16_t port;
    int connections;
    long warmup, requests;
    void *thread;
    int64_t wall_ns, cpu_ns;
};

static void send_request(const struct perf_client *client, int connection) {
    need(write(connection, client->request, client->request_size) == (ssize_t)client->request_size, "sending a request");
}

struct client_connection {
    int descriptor;
    size_t received;  // of the answer
};

// Continues until `answers` have come, and leaves one request in flight on each connection.
static void drive(const struct perf_client *client, int poller, int64_t answers) {
    static char answer[PERF_LARGE_MESSAGE];  // its contents do not matter
    struct epoll_event ready[256];
    while (answers > 0) {
        int count = epoll_wait(poller, ready, 256, -1);
        for (int index = 0; index < count; index++) {
            struct client_connection *connection = ready[index].data.ptr;
            ssize_t received = read(connection->descriptor, answer, sizeof answer);
            need(received > 0, "reading an answer");
            // A small message arrives whole on the loopback.
            if ((connection->received += (size_t)received) < client->least_answer) continue;
            connection->received = 0;
            send_request(client, connection->descriptor);
            answers--;
        }
    }
}

static void run_client(void *argument) {
    struct perf_client *client = argument;
    perf_pin_this_thread(1);  // the server has processor 0
    int poller = epoll_create1(EPOLL_CLOEXEC);
    struct client_connection *connections = calloc((size_t)client->connections, sizeof *connections);
    for (int index = 0; index < client->connections; index++) {
        int connection = perf_connect(client->port);
        // A client that blocks in the middle of a large request might wait for a server that waits for this client to read.
        if (client->request_size == PERF_LARGE_MESSAGE) hold_whole_messages(connection);
        struct epoll_event interest = {.events = EPOLLIN, .data.ptr = &connections[index]};
        epoll_ctl(poller, EPOLL_CTL_ADD, connection, &interest);
        connections[index].descriptor = connection;
        send_request(client, connection);
    }
    drive(client, poller, client->warmup);
    int64_t wall = perf_wall_ns(), cpu = perf_process_cpu_ns() - perf_thread_cpu_ns();
    drive(client, poller, client->requests);
    client->wall_ns = perf_wall_ns() - wall;
    client->cpu_ns = perf_process_cpu_ns() - perf_thread_cpu_ns() - cpu;
    for (int index = 0; index < client->connections; index++) close(connections[index].descriptor);
    free(connections);
    close(poller);
}

static struct perf_client *start(struct perf_client description) {
    struct perf_client *client = calloc(1, sizeof *client);
    *client = description;
    client->thread = perf_thread_start(run_client, client);
    return client;
}

struct perf_client *perf_client_start(uint16_t port, int connections, long warmup, long requests) {
    return perf_message_client_start(port, connections, PERF_MESSAGE, warmup, requests);
}

struct perf_client *perf_message_client_start(uint16_t port, int connections, long size, long warmup, long requests) {
    static const char request[PERF_LARGE_MESSAGE];
    return start((struct perf_client){
        .request = request, .request_size = (size_t)size, .least_answer = (size_t)size,
        .port = port, .connections = connections, .warmup = warmup, .requests = requests});
}

static const char http_request[] = "GET /hello HTTP/1.1\r\nHost: 127.0.0.1\r\nUser-Agent: eventloop-perf\r\nAccept: */*\r\n\r\n";

void perf_http_ask(int descriptor) { (void)!send(descriptor, http_request, sizeof http_request - 1, MSG_NOSIGNAL); }

bool perf_http_take(int descriptor) {
    char answer[1024];
    return recv(descriptor, answer, sizeof answer, MSG_DONTWAIT) > PERF_MESSAGE;
}

struct perf_client *perf_http_client_start(uint16_t port, int connections, long warmup, long requests) {
    return start((struct perf_client){
        .request = http_request, .request_size = sizeof http_request - 1, .least_answer = PERF_MESSAGE + sizeof "HTTP/1.1 200 OK\r\n",
        .port = port, .connections = connections, .warmup = warmup, .requests = requests});
}

void perf_client_join(struct perf_client *client, struct perf_sample *sample) {
    perf_thread_join(client->thread);
    sample->wall_ns += client->wall_ns;
    sample->cpu_ns += client->cpu_ns;
    free(client);
}

// MARK: The server

struct server {
    struct event_base *base;
    int open;  // connections not yet closed; the server ends with the last one
};

struct connection {
    struct server *server;
    struct event *event;
};

static void readable(evutil_socket_t descriptor, short what, void *argument) {
    (void)what;
    struct connection *connection = argument;
    if (perf_echo(descriptor)) return;
    event_free(connection->event);
    close(descriptor);
    if (--connection->server->open == 0) event_base_loopbreak(connection->server->base);
    free(connection);
}

static void acceptable(evutil_socket_t listener, short what, void *argument) {
    (void)what;
    struct server *server = argument;
    for (int descriptor; (descriptor = perf_accept(listener)) >= 0;) {
        struct connection *connection = malloc(sizeof *connection);
        connection->server = server;
        connection->event = event_new(server->base, descriptor, EV_READ | EV_PERSIST, readable, connection);
        event_add(connection->event, NULL);
    }
}

void peer_libevent_echo(int connections, long warmup, long ops, struct perf_sample *sample) {
    perf_pin_this_thread(0);
    uint16_t port;
    int listener = perf_listen(connections, &port);
    struct server server = {.base = unlocked_base(), .open = connections};
    struct event *accepting = event_new(server.base, listener, EV_READ | EV_PERSIST, acceptable, &server);
    event_add(accepting, NULL);
    struct perf_client *client = perf_client_start(port, connections, warmup, ops);
    event_base_loop(server.base, 0);
    perf_client_join(client, sample);
    event_free(accepting);
    event_base_free(server.base);
    close(listener);
}
