// W14: echo with libevent's buffers, as bufferevents and by hand, and without a buffer, over connections and over a socket pair. W22: with
// bufferevents that answer each of the messages that have come together.
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

// Answers each whole message by itself.
static void stream_received_messages(struct bufferevent *stream, void *argument) {
    (void)argument;
    struct evbuffer *input = bufferevent_get_input(stream);
    char message[PERF_MESSAGE];
    while (evbuffer_get_length(input) >= sizeof message) {
        evbuffer_remove(input, message, sizeof message);
        bufferevent_write(stream, message, sizeof message);
    }
}

static void stream_ended(struct bufferevent *stream, short what, void *argument) {
    (void)stream;
    if (what & (BEV_EVENT_EOF | BEV_EVENT_ERROR)) free_connection(argument);
}

static struct bufferevent *open_stream(
    struct event_base *base, int descriptor, bufferevent_data_cb received, void *argument) {
    struct bufferevent *stream = bufferevent_socket_new(base, descriptor, BEV_OPT_CLOSE_ON_FREE);
    bufferevent_setcb(stream, received, NULL, stream_ended, argument);
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
    if (server->how == PERF_BUFFEREVENT || server->how == PERF_BUFFEREVENT_EACH) {
        bufferevent_data_cb received = server->how == PERF_BUFFEREVENT ? stream_received : stream_received_messages;
        connection->stream = open_stream(server->base, descriptor, received, connection);
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

static void exchange(struct event_base *base, int (*ends)[2], int connections, struct perf_sample *sample) {
    for (int index = 0; index < connections; index++) perf_pair_ask_together(ends[index][1]);
    long missing = (long)connections * PERF_PIPELINED * PERF_MESSAGE;
    while (missing > 0) {  // ends: the server answers everything
        perf_begin(sample);
        event_base_loop(base, ONE_PASS);
        perf_end(sample);
        for (int index = 0; index < connections; index++) missing -= perf_pair_take_bytes(ends[index][1]);
    }
}

void peer_libevent_pipelined_pairs(int connections, long warmup_rounds, long rounds, struct perf_sample *sample) {
    struct server server = {.base = unlocked_base(), .how = PERF_BUFFEREVENT_EACH, .open = connections};
    int (*ends)[2] = calloc((size_t)connections, sizeof *ends);
    for (int index = 0; index < connections; index++) {
        perf_pair_make(ends[index]);
        open_connection(&server, ends[index][0]);
    }
    struct perf_sample ignored = {.is_ignored = true};
    for (long round = 0; round < warmup_rounds; round++) exchange(server.base, ends, connections, &ignored);
    for (long round = 0; round < rounds; round++) exchange(server.base, ends, connections, sample);
    for (int index = 0; index < connections; index++) close(ends[index][1]);
    event_base_loop(server.base, 0);
    free(ends);
    event_base_free(server.base);
}

// MARK: Growth

struct connections {
    struct server server;
    int (*ends)[2];
    long size, next;
};

static void *make_connections(long size) {
    struct connections *rig = calloc(1, sizeof *rig);
    *rig = (struct connections){
        .server = {.base = unlocked_base(), .how = PERF_BUFFEREVENT, .open = (int)size},
        .ends = calloc((size_t)size, sizeof *rig->ends), .size = size};
    for (long index = 0; index < size; index++) {
        perf_pair_make(rig->ends[index]);
        open_connection(&rig->server, rig->ends[index][0]);
    }
    return rig;
}

static int64_t ask_connections(void *argument, int cost, long ops) {
    (void)cost;
    struct connections *rig = argument;
    int64_t start = perf_wall_ns();
    for (long op = 0; op < ops; op++) {
        ask(rig->server.base, rig->ends[rig->next][1], 1);
        rig->next = (rig->next + PERF_GROWTH_STRIDE) % rig->size;
    }
    return perf_wall_ns() - start;
}

static void end_connections(void *argument) {
    struct connections *rig = argument;
    for (long index = 0; index < rig->size; index++) close(rig->ends[index][1]);
    event_base_loop(rig->server.base, 0);
    event_base_free(rig->server.base);
    free(rig->ends);
    free(rig);
}

struct perf_growth peer_libevent_growth_of_connections(void) {
    return (struct perf_growth){.make = make_connections, .run = ask_connections, .end = end_connections};
}

// MARK: Memory

void peer_libevent_hold_streams(long count, struct perf_sample *sample) {
    struct event_base *base = unlocked_base();
    int (*ends)[2] = calloc((size_t)count, sizeof *ends);
    struct bufferevent **streams = calloc((size_t)count, sizeof *streams);
    for (long index = 0; index < count; index++) perf_pair_make(ends[index]);
    perf_begin(sample);
    for (long index = 0; index < count; index++) streams[index] = open_stream(base, ends[index][0], stream_received, NULL);
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
