// W17: short connections: the server on raw libevent, by hand and with bufferevents, and the client that drives every server.
//
// Lifecycle of a client: made by `perf_short_client_start`, freed by `perf_short_client_join`. Its connections belong to its own thread.
// Lifecycle of a connection of the server: made when it is accepted, freed when its answer is written.

#include "CPerfPeers.h"

#include <event2/buffer.h>
#include <event2/bufferevent.h>
#include <event2/event.h>
#include <event2/listener.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>

#include "libevent_base.h"

// MARK: The client

struct perf_short_client {
    uint16_t port;
    int at_once;
    long warmup, connections;
    void *thread;
    int64_t wall_ns, cpu_ns;
};

// Its end resets it, so that no pair of ports stays occupied. The server has closed its end by then.
static void open_short(const struct perf_short_client *client, int poller) {
    static const char request[PERF_MESSAGE];
    int connection = perf_connect(client->port);
    struct linger reset = {.l_onoff = 1, .l_linger = 0};
    setsockopt(connection, SOL_SOCKET, SO_LINGER, &reset, sizeof reset);
    struct epoll_event interest = {.events = EPOLLIN, .data.fd = connection};
    epoll_ctl(poller, EPOLL_CTL_ADD, connection, &interest);
    (void)!write(connection, request, sizeof request);
}

// True when the server has closed its end.
static bool read_short(int connection) {
    char answer[PERF_MESSAGE];
    ssize_t received = read(connection, answer, sizeof answer);
    if (received > 0) return false;
    if (received < 0) {
        perror("eventloop-perf: reading the answer of a short connection");
        exit(1);
    }
    close(connection);
    return true;
}

static void run_short_client(void *argument) {
    struct perf_short_client *client = argument;
    perf_pin_this_thread(1);  // the server has processor 0
    int poller = epoll_create1(EPOLL_CLOEXEC);
    long total = client->warmup + client->connections, opened = 0, ended = 0;
    int64_t wall = 0, cpu = 0;
    for (; opened < client->at_once && opened < total; opened++) open_short(client, poller);
    while (ended < total) {
        struct epoll_event ready[256];
        int count = epoll_wait(poller, ready, 256, -1);
        for (int index = 0; index < count; index++) {
            if (!read_short(ready[index].data.fd)) continue;
            if (++ended == client->warmup) {
                wall = perf_wall_ns();
                cpu = perf_process_cpu_ns() - perf_thread_cpu_ns();
            }
            if (opened < total) {
                open_short(client, poller);
                opened++;
            }
        }
    }
    client->wall_ns = perf_wall_ns() - wall;
    client->cpu_ns = perf_process_cpu_ns() - perf_thread_cpu_ns() - cpu;
    close(poller);
}

struct perf_short_client *perf_short_client_start(uint16_t port, int at_once, long warmup, long connections) {
    struct perf_short_client *client = calloc(1, sizeof *client);
    *client = (struct perf_short_client){.port = port, .at_once = at_once, .warmup = warmup, .connections = connections};
    client->thread = perf_thread_start(run_short_client, client);
    return client;
}

void perf_short_client_join(struct perf_short_client *client, struct perf_sample *sample) {
    perf_thread_join(client->thread);
    sample->wall_ns += client->wall_ns;
    sample->cpu_ns += client->cpu_ns;
    free(client);
}

// MARK: The server

struct short_server {
    struct event_base *base;
    bool buffers;
    long remaining;  // connections not yet closed; the server ends with the last one
};

struct short_connection {
    struct short_server *server;
    struct event *event;
    struct bufferevent *stream;
};

static void free_short(struct short_connection *connection) {
    struct short_server *server = connection->server;
    if (connection->stream) {
        bufferevent_free(connection->stream);
    } else {
        int descriptor = event_get_fd(connection->event);
        event_free(connection->event);
        close(descriptor);
    }
    free(connection);
    if (--server->remaining == 0) event_base_loopbreak(server->base);
}

static void short_readable(evutil_socket_t descriptor, short what, void *argument) {
    (void)what;
    perf_echo(descriptor);
    free_short(argument);
}

static void short_written(struct bufferevent *stream, void *argument) {
    (void)stream;
    free_short(argument);
}

static void short_received(struct bufferevent *stream, void *argument) {
    // libevent calls `short_written` when all is sent.
    bufferevent_setcb(stream, NULL, short_written, NULL, argument);
    bufferevent_write_buffer(stream, bufferevent_get_input(stream));
}

static void short_ended(struct bufferevent *stream, short what, void *argument) {
    (void)stream, (void)what;
    free_short(argument);
}

static void short_accepted(
    struct evconnlistener *listener, evutil_socket_t descriptor, struct sockaddr *address, int length, void *argument) {
    (void)listener, (void)address, (void)length;
    struct short_connection *connection = calloc(1, sizeof *connection);
    connection->server = argument;
    struct event_base *base = connection->server->base;
    if (connection->server->buffers) {
        connection->stream = bufferevent_socket_new(base, descriptor, BEV_OPT_CLOSE_ON_FREE);
        bufferevent_setcb(connection->stream, short_received, NULL, short_ended, connection);
        bufferevent_enable(connection->stream, EV_READ | EV_WRITE);
    } else {
        connection->event = event_new(base, descriptor, EV_READ | EV_PERSIST, short_readable, connection);
        event_add(connection->event, NULL);
    }
}

void peer_libevent_short_connections(bool buffers, int at_once, long warmup, long ops, struct perf_sample *sample) {
    perf_pin_this_thread(0);
    signal(SIGPIPE, SIG_IGN);  // libevent writes with writev
    uint16_t port;
    struct short_server server = {.base = unlocked_base(), .buffers = buffers, .remaining = warmup + ops};
    // A backlog of 0 means that the socket listens already.
    struct evconnlistener *listener = evconnlistener_new(
        server.base, short_accepted, &server, LEV_OPT_CLOSE_ON_FREE | LEV_OPT_CLOSE_ON_EXEC, 0, perf_listen(1024, &port));
    struct perf_short_client *client = perf_short_client_start(port, at_once, warmup, ops);
    event_base_loop(server.base, 0);
    event_base_loop(server.base, EVLOOP_NONBLOCK);  // a bufferevent closes its socket in the round after it was freed
    perf_short_client_join(client, sample);
    evconnlistener_free(listener);
    event_base_free(server.base);
}
