// W14: echo with libevent's buffers, as bufferevents and by hand, and without a buffer, over connections and over a socket pair.
//
// Lifecycle of a connection: made for an accepted descriptor or for one end of a pair, freed when the peer has closed the other end.

#include "CPerfPeers.h"

#include <event2/buffer.h>
#include <event2/bufferevent.h>
#include <event2/event.h>
#include <signal.h>
#include <stdlib.h>

#include "libevent_base.h"

struct server {
    struct event_base *base;
    enum perf_streaming how;
    int open;  // connections not yet closed; the server ends with the last one
};

struct connection {
    struct server *server;
    struct bufferevent *stream;
    // For evbuffers.
    struct evbuffer *bytes;
    struct event *reading, *writing;
};

static void free_connection(struct connection *connection) {
    struct server *server = connection->server;
    if (connection->stream) {
        bufferevent_free(connection->stream);
    } else {
        int descriptor = event_get_fd(connection->reading);
        event_free(connection->reading);
        event_free(connection->writing);
        evbuffer_free(connection->bytes);
        close(descriptor);
    }
    free(connection);
    if (--server->open == 0) event_base_loopbreak(server->base);
}

// MARK: Bufferevents

static void stream_received(struct bufferevent *stream, void *argument) {
    (void)argument;
    // Moves the chains, and copies nothing.
    bufferevent_write_buffer(stream, bufferevent_get_input(stream));
}

static void stream_ended(struct bufferevent *stream, short what, void *argument) {
    (void)stream;
    if (what & (BEV_EVENT_EOF | BEV_EVENT_ERROR)) free_connection(argument);
}

static struct bufferevent *open_stream(struct event_base *base, int descriptor, void *argument) {
    struct bufferevent *stream = bufferevent_socket_new(base, descriptor, BEV_OPT_CLOSE_ON_FREE);
    bufferevent_setcb(stream, stream_received, NULL, stream_ended, argument);
    bufferevent_enable(stream, EV_READ | EV_WRITE);
    return stream;
}

// MARK: Evbuffers by hand

// Reads on when all is written.
static void send_waiting(struct connection *connection) {
    if (evbuffer_get_length(connection->bytes) == 0) return;
    if (evbuffer_write(connection->bytes, event_get_fd(connection->reading)) < 0 && errno != EAGAIN) return free_connection(connection);
    bool is_waiting = evbuffer_get_length(connection->bytes) > 0;
    if (is_waiting == (bool)event_pending(connection->writing, EV_WRITE, NULL)) return;
    if (is_waiting) {
        event_del(connection->reading);
        event_add(connection->writing, NULL);
    } else {
        event_del(connection->writing);
        event_add(connection->reading, NULL);
    }
}

// Without the ioctl and the limit of 4 KiB of evbuffer_read.
static ssize_t read_reserved(struct evbuffer *bytes, int descriptor) {
    struct evbuffer_iovec space;
    if (evbuffer_reserve_space(bytes, PERF_LARGE_MESSAGE, &space, 1) != 1) return -1;
    ssize_t count = read(descriptor, space.iov_base, space.iov_len);
    space.iov_len = count > 0 ? (size_t)count : 0;
    evbuffer_commit_space(bytes, &space, 1);
    return count;
}

static void readable(evutil_socket_t descriptor, short what, void *argument) {
    (void)what;
    struct connection *connection = argument;
    if (connection->server->how == PERF_NO_BUFFER) {
        if (!perf_echo(descriptor)) free_connection(connection);
        return;
    }
    ssize_t count = connection->server->how == PERF_EVBUFFER
                        ? evbuffer_read(connection->bytes, descriptor, PERF_LARGE_MESSAGE)
                        : read_reserved(connection->bytes, descriptor);
    if (count == 0 || (count < 0 && errno != EAGAIN)) return free_connection(connection);
    send_waiting(connection);
}

static void writable(evutil_socket_t descriptor, short what, void *argument) {
    (void)descriptor, (void)what;
    send_waiting(argument);
}

// MARK: Both

static void open_connection(struct server *server, int descriptor) {
    struct connection *connection = calloc(1, sizeof *connection);
    connection->server = server;
    if (server->how == PERF_BUFFEREVENT) {
        connection->stream = open_stream(server->base, descriptor, connection);
        return;
    }
    connection->bytes = evbuffer_new();
    connection->reading = event_new(server->base, descriptor, EV_READ | EV_PERSIST, readable, connection);
    connection->writing = event_new(server->base, descriptor, EV_WRITE | EV_PERSIST, writable, connection);
    event_add(connection->reading, NULL);
}

static void acceptable(evutil_socket_t listener, short what, void *argument) {
    (void)what;
    for (int descriptor; (descriptor = perf_accept(listener)) >= 0;) open_connection(argument, descriptor);
}

void peer_libevent_stream_echo(
    enum perf_streaming how, int connections, long size, long warmup, long ops, struct perf_sample *sample) {
    perf_pin_this_thread(0);
    signal(SIGPIPE, SIG_IGN);  // libevent writes with writev, and the client leaves with requests in flight
    uint16_t port;
    int listener = perf_listen(connections, &port);
    struct server server = {.base = unlocked_base(), .how = how, .open = connections};
    struct event *accepting = event_new(server.base, listener, EV_READ | EV_PERSIST, acceptable, &server);
    event_add(accepting, NULL);
    struct perf_client *client = perf_message_client_start(port, connections, size, warmup, ops);
    event_base_loop(server.base, 0);
    perf_client_join(client, sample);
    event_free(accepting);
    event_base_free(server.base);
    close(listener);
}

// Bufferevents write when the loop has come round to it, so one answer may take two rounds.
static void ask(struct event_base *base, int descriptor, long times) {
    for (long index = 0; index < times; index++) {
        perf_pair_ask(descriptor);
        do event_base_loop(base, EVLOOP_ONCE);
        while (!perf_pair_take(descriptor));  // ends: the other end answers
    }
}

void peer_libevent_stream_pair(enum perf_streaming how, long warmup, long ops, struct perf_sample *sample) {
    int ends[2];
    perf_pair_make(ends);
    struct server server = {.base = unlocked_base(), .how = how, .open = 1};
    open_connection(&server, ends[0]);
    ask(server.base, ends[1], warmup);
    perf_begin(sample);
    ask(server.base, ends[1], ops);
    perf_end(sample);
    close(ends[1]);
    event_base_loop(server.base, 0);
    event_base_free(server.base);
}

// MARK: Memory

void peer_libevent_hold_streams(long count, struct perf_sample *sample) {
    struct event_base *base = unlocked_base();
    int (*ends)[2] = calloc((size_t)count, sizeof *ends);
    struct bufferevent **streams = calloc((size_t)count, sizeof *streams);
    for (long index = 0; index < count; index++) perf_pair_make(ends[index]);
    perf_begin(sample);
    for (long index = 0; index < count; index++) streams[index] = open_stream(base, ends[index][0], NULL);
    event_base_loop(base, EVLOOP_NONBLOCK);
    perf_end(sample);
    for (long index = 0; index < count; index++) {
        bufferevent_free(streams[index]);
        close(ends[index][1]);
    }
    free(streams);
    free(ends);
    event_base_free(base);
}
