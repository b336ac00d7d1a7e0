// W11, W16: libevent's HTTP server, on a base that raw libevent or a run loop waits on. The server is the same for both.
//
// Lifecycle of a server: made by `perf_http_start` or `perf_http_serve`, freed by `perf_http_free`, all on the thread of its base.
// Lifecycle of a thread with a base and a server: made by `peer_libevent_http_thread_start`, joined and freed by `…_stop`.

#include "CPerfPeers.h"

#include <event2/buffer.h>
#include <event2/event.h>
#include <event2/http.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "libevent_base.h"

struct perf_http {
    struct evhttp *http;
    struct evbuffer *body;  // empty between requests: evhttp_send_reply takes its contents
    int open;               // connections not yet closed; the server ends with the last one
    void (*ended)(void *context);
    void *context;
    long answered;
};

static void closed(struct evhttp_connection *connection, void *argument) {
    (void)connection;
    struct perf_http *server = argument;
    if (--server->open == 0 && server->ended) server->ended(server->context);
}

static void answer(struct evhttp_request *request, void *argument) {
    static const char text[PERF_MESSAGE];
    struct perf_http *server = argument;
    evhttp_connection_set_closecb(evhttp_request_get_connection(request), closed, server);
    evbuffer_add(server->body, text, sizeof text);
    evhttp_add_header(evhttp_request_get_output_headers(request), "Content-Type", "text/plain");
    evhttp_send_reply(request, HTTP_OK, "OK", server->body);
    __atomic_store_n(&server->answered, server->answered + 1, __ATOMIC_RELAXED);  // only this thread writes it
}

static struct perf_http *make_server(struct event_base *base, int listener) {
    struct perf_http *server = calloc(1, sizeof *server);
    *server = (struct perf_http){.http = evhttp_new(base), .body = evbuffer_new()};
    evhttp_set_gencb(server->http, answer, server);
    if (evhttp_accept_socket(server->http, listener) != 0) {
        fprintf(stderr, "eventloop-perf: evhttp does not accept the listening socket\n");
        exit(1);
    }
    return server;
}

struct perf_http *perf_http_start(
    struct event_base *base, int connections, uint16_t *port, void (*ended)(void *context), void *context) {
    struct perf_http *server = make_server(base, perf_listen(connections, port));
    server->open = connections;
    server->ended = ended;
    server->context = context;
    return server;
}

struct perf_http *perf_http_serve(struct event_base *base, uint16_t *port) { return make_server(base, perf_listen_shared(port)); }

long perf_http_answered(const struct perf_http *server) { return __atomic_load_n(&server->answered, __ATOMIC_RELAXED); }

void perf_http_free(struct perf_http *server) {
    evhttp_free(server->http);
    evbuffer_free(server->body);
    free(server);
}

static void stop(void *base) { event_base_loopbreak(base); }

void peer_libevent_http(int connections, long warmup, long ops, struct perf_sample *sample) {
    perf_pin_this_thread(0);
    struct event_base *base = unlocked_base();
    uint16_t port;
    struct perf_http *server = perf_http_start(base, connections, &port, stop, base);
    struct perf_client *client = perf_http_client_start(port, connections, warmup, ops);
    event_base_loop(base, 0);
    perf_client_join(client, sample);
    perf_http_free(server);
    event_base_free(base);
}

void peer_libevent_hold_http(long count, struct perf_sample *sample) {
    struct event_base *base = unlocked_base();
    uint16_t port;
    struct perf_http *server = perf_http_start(base, (int)count, &port, NULL, NULL);
    int *peers = calloc((size_t)count, sizeof *peers);
    perf_begin(sample);
    for (long index = 0; index < count; index++) {
        perf_http_ask(peers[index] = perf_connect(port));
        for (int pass = 0; pass < 8; pass++) event_base_loop(base, EVLOOP_NONBLOCK);
        if (!perf_http_take(peers[index])) {
            fprintf(stderr, "eventloop-perf: evhttp has not answered\n");
            exit(1);
        }
    }
    perf_end(sample);
    for (long index = 0; index < count; index++) close(peers[index]);
    while (server->open > 0) event_base_loop(base, EVLOOP_ONCE);  // ends: each connection is closed
    free(peers);
    perf_http_free(server);
    event_base_free(base);
}

// MARK: Threads with a base each

struct peer_http_thread {
    struct event_base *base;
    struct perf_http *server;
    int processor, stopping;
    void *thread;
};

static void stop_thread(evutil_socket_t descriptor, short what, void *base) {
    (void)descriptor, (void)what;
    event_base_loopbreak(base);
}

static void run_server(void *argument) {
    struct peer_http_thread *thread = argument;
    perf_pin_this_thread(thread->processor);
    event_base_loop(thread->base, 0);
}

struct peer_http_thread *peer_libevent_http_thread_start(int processor, uint16_t *port) {
    struct peer_http_thread *thread = calloc(1, sizeof *thread);
    *thread = (struct peer_http_thread){.base = unlocked_base(), .processor = processor, .stopping = eventfd(0, EFD_CLOEXEC)};
    thread->server = perf_http_serve(thread->base, port);
    event_base_once(thread->base, thread->stopping, EV_READ, stop_thread, thread->base, NULL);
    thread->thread = perf_thread_start(run_server, thread);
    return thread;
}

long peer_libevent_http_thread_answered(const struct peer_http_thread *thread) { return perf_http_answered(thread->server); }

void peer_libevent_http_thread_stop(struct peer_http_thread *thread) {
    eventfd_write(thread->stopping, 1);
    perf_thread_join(thread->thread);
    perf_http_free(thread->server);
    event_base_free(thread->base);
    close(thread->stopping);
    free(thread);
}
