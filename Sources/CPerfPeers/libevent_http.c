// W11: libevent's HTTP server, on a base that raw libevent or a run loop waits on. The server is the same for both.
//
// Lifecycle of a server: made by `perf_http_start`, freed by `perf_http_free`, both on the thread of its base.

#include "CPerfPeers.h"

#include <event2/buffer.h>
#include <event2/event.h>
#include <event2/http.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "libevent_base.h"

struct perf_http {
    struct evhttp *http;
    struct evbuffer *body;  // empty between requests: evhttp_send_reply takes its contents
    int open;               // connections not yet closed; the server ends with the last one
    void (*ended)(void *context);
    void *context;
};

static void closed(struct evhttp_connection *connection, void *argument) {
    (void)connection;
    struct perf_http *server = argument;
    if (--server->open == 0) server->ended(server->context);
}

static void answer(struct evhttp_request *request, void *argument) {
    static const char text[PERF_MESSAGE];
    struct perf_http *server = argument;
    evhttp_connection_set_closecb(evhttp_request_get_connection(request), closed, server);
    evbuffer_add(server->body, text, sizeof text);
    evhttp_add_header(evhttp_request_get_output_headers(request), "Content-Type", "text/plain");
    evhttp_send_reply(request, HTTP_OK, "OK", server->body);
}

struct perf_http *perf_http_start(
    struct event_base *base, int connections, uint16_t *port, void (*ended)(void *context), void *context) {
    struct perf_http *server = calloc(1, sizeof *server);
    *server = (struct perf_http){
        .http = evhttp_new(base), .body = evbuffer_new(), .open = connections, .ended = ended, .context = context};
    evhttp_set_gencb(server->http, answer, server);
    if (evhttp_accept_socket(server->http, perf_listen(connections, port)) != 0) {
        fprintf(stderr, "eventloop-perf: evhttp does not accept the listening socket\n");
        exit(1);
    }
    return server;
}

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
