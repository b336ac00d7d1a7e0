// W10: a message of 64 bytes to another process and back, over a Unix-domain socket and raw libevent at both ends.

#include "CPerfPeers.h"

#include <event2/event.h>
#include <stdlib.h>
#include <string.h>

#include "libevent_base.h"

struct end {
    struct event_base *base;
    long remaining;
    bool asks;
};

static void readable(evutil_socket_t socket, short what, void *argument) {
    (void)what;
    struct end *end = argument;
    char message[PERF_MESSAGE];
    // A message this small arrives whole.
    if (read(socket, message, sizeof message) != sizeof message) {
        event_base_loopbreak(end->base);
        return;
    }
    if (end->asks && --end->remaining == 0) {
        event_base_loopbreak(end->base);
        return;
    }
    (void)!send(socket, message, sizeof message, MSG_NOSIGNAL);
}

static void ask(struct end *end, int socket, long times) {
    char message[PERF_MESSAGE];
    memset(message, 0, sizeof message);
    end->remaining = times;
    (void)!send(socket, message, sizeof message, MSG_NOSIGNAL);
    event_base_loop(end->base, 0);
}

void peer_libevent_socket_answer(int socket) {
    struct end end = {.base = unlocked_base()};
    evutil_make_socket_nonblocking(socket);
    struct event *event = event_new(end.base, socket, EV_READ | EV_PERSIST, readable, &end);
    event_add(event, NULL);
    event_base_loop(end.base, 0);
    event_free(event);
    event_base_free(end.base);
}

void peer_libevent_socket_ask(int socket, long warmup, long ops, struct perf_sample *sample) {
    struct end end = {.base = unlocked_base(), .asks = true};
    evutil_make_socket_nonblocking(socket);
    struct event *event = event_new(end.base, socket, EV_READ | EV_PERSIST, readable, &end);
    event_add(event, NULL);
    ask(&end, socket, warmup);
    perf_begin(sample);
    ask(&end, socket, ops);
    perf_end(sample);
    event_free(event);
    event_base_free(end.base);
}
