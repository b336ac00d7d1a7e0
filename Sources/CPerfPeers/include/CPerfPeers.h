// The C part of eventloop-perf: measuring, counting, and the peers as a C programmer would write them on raw libevent.
// Linux only. No part of the library depends on it.

#ifndef EVENTLOOP_CPERFPEERS_H
#define EVENTLOOP_CPERFPEERS_H

#include <errno.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/socket.h>
#include <unistd.h>

// MARK: Measuring

// What happened between `perf_begin` and `perf_end`, summed over all such pairs.
struct perf_sample {
    int64_t wall_ns;
    int64_t cpu_ns;         // of the whole process
    int64_t thread_cpu_ns;  // of the calling thread
    int64_t allocations;    // allocating calls of all threads; 0 while counting is off
    int64_t allocated_bytes;
    int64_t live_bytes;     // the growth of the heap, including its bookkeeping
    int64_t switches;       // voluntary context switches of the calling thread: how often the kernel put it to sleep
    bool is_ignored;        // not measured, and not shown to a tracer
};

// Both on the same thread. Their own work is not counted: they read the clocks and counters in opposite orders, with the wall clock
// innermost.
void perf_begin(struct perf_sample *sample);
void perf_end(struct perf_sample *sample);

static inline int64_t perf_wall_ns(void);
int64_t perf_process_cpu_ns(void);
int64_t perf_thread_cpu_ns(void);

// MARK: Counting allocations

// False where the C library's allocator cannot be interposed (no glibc, or a sanitizer has its own).
bool perf_can_count_allocations(void);
// Off by default, because counting slows allocations down, and some peers allocate in every operation.
void perf_count_allocations(bool on);
int64_t perf_allocations(void);
int64_t perf_allocated_bytes(void);
int64_t perf_live_bytes(void);

// MARK: Counting system calls

enum { PERF_SYSCALL_NUMBERS = 512 };

struct perf_syscalls {
    int64_t by_thread;   // of the thread that called `perf_begin`
    int64_t by_process;  // of all threads
    int64_t numbers[PERF_SYSCALL_NUMBERS];  // of all threads, each by its number
};

// Makes `perf_begin` and `perf_end` visible to a tracer, by a system call that does not exist.
void perf_mark_for_tracer(bool on);
// Waits until an idle loop sleeps; longer under a tracer, where every step takes longer.
void perf_let_it_sleep(void);
// Runs a program under ptrace with its standard output connected to `output`, and counts its system calls between the marks.
// Returns 0 and the exit status of the program, or -errno if tracing is refused.
int perf_trace(char *const arguments[], int output, struct perf_syscalls *counts, int *status);
// Runs a program with its standard output connected to `output`. Returns 0 and its exit status, or -errno.
int perf_run(char *const arguments[], int output, int *status);
// "read", "epoll_wait"; NULL for a call that no event loop makes.
const char *perf_syscall_name(int number);

// MARK: Threads

// Calls `body(context)` on a new thread. Returns a handle for `perf_thread_join`.
void *perf_thread_start(void (*body)(void *), void *context);
void perf_thread_join(void *handle);
// Binds the calling thread to one processor; -1 unbinds it.
void perf_pin_this_thread(int processor);

// Producers that start together: each calls `post(context, posts)` once the gate is open.
struct perf_gang;
struct perf_gang *perf_gang_start(int producers, long posts, void (*post)(void *context, long posts), void *context);
void perf_gang_open(struct perf_gang *gang);
void perf_gang_join(struct perf_gang *gang);  // frees it

// MARK: The work of handlers, the same for every implementation

// W1. Pipes in a ring of `active` lanes; a message of 8 bytes circulates in each lane, so a pipe never contains two.
struct perf_ring {
    int pipes;
    int active;
    long remaining;
    int *reads, *writes;
    int size;  // the descriptors to read from
};
struct perf_ring *perf_ring_make(int pipes, int active);
void perf_ring_kick(struct perf_ring *ring);  // sends the first messages
// A ring of eventfds, which need half as many descriptors. None is ready until it is activated: then each of the first `active`, at most
// `size`, sends a message to itself.
struct perf_ring *perf_ring_make_of_events(int size);
void perf_ring_activate(struct perf_ring *ring, int active);
void perf_ring_free(struct perf_ring *ring);

// Sends the message to the next pipe. Returns true if this was the last requested delivery.
static inline bool perf_ring_pass(struct perf_ring *ring, int index) {
    int64_t message = 1;
    int next = index + ring->active;
    if (next >= ring->pipes) next -= ring->pipes;
    (void)!write(ring->writes[next], &message, sizeof message);
    return --ring->remaining == 0;
}
// Reads the message and sends it to the next pipe.
static inline bool perf_ring_step(struct perf_ring *ring, int index) {
    int64_t message;
    (void)!read(ring->reads[index], &message, sizeof message);
    return perf_ring_pass(ring, index);
}

// W2, W4, W6. A number of calls to wait for. The loop's thread counts; others may read how many are left.
struct perf_countdown { long remaining; };
struct perf_countdown *perf_countdown_make(long calls);
void perf_countdown_free(struct perf_countdown *countdown);
static inline bool perf_countdown_hit(struct perf_countdown *countdown) {
    long left = countdown->remaining - 1;
    __atomic_store_n(&countdown->remaining, left, __ATOMIC_RELEASE);  // a plain store on most processors
    return left == 0;
}
static inline long perf_countdown_left(struct perf_countdown *countdown) {
    return __atomic_load_n(&countdown->remaining, __ATOMIC_ACQUIRE);
}

// W3. Pseudo-random numbers, the same for every implementation.
static inline uint64_t perf_random(uint64_t *state) {
    *state += 0x9E3779B97F4A7C15u;
    uint64_t z = *state;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return z ^ (z >> 31);
}
// A deadline that will not come during a measurement: 1,000 to 2,000 seconds away, in nanoseconds.
static inline int64_t perf_random_delay(uint64_t *state) {
    return 1000000000000 + (int64_t)(perf_random(state) % 1000000000000);
}

// W3d. The delays of a run, 1 to 20 ms, each measured alone on an idle loop.
static inline int64_t perf_short_delay(uint64_t *state) { return 1000000 + (int64_t)(perf_random(state) % 19000000); }

// W6, W8. Descriptors that never become ready; if there are too few, the process ends with a message.
int perf_idle_descriptor(void);

// W7. A server's listening socket on the loopback, and a client that keeps `connections` open and sends the next request on each as soon as
// it has the answer. The client runs on its own thread, and reports its processor time.
enum { PERF_MESSAGE = 64, PERF_LARGE_MESSAGE = 65536 };
struct perf_client;
int perf_listen(int backlog, uint16_t *port);
// Several sockets may listen on the port (SO_REUSEPORT). A port of 0 is replaced by the one that the kernel chooses.
int perf_listen_shared(uint16_t *port);
int perf_accept(int listener);  // non-blocking, without Nagle's delay; -1 if no client waits
struct perf_client *perf_client_start(uint16_t port, int connections, long warmup, long requests);
// W14. The same client with requests of `size` bytes, at most PERF_LARGE_MESSAGE. An answer has as many.
struct perf_client *perf_message_client_start(uint16_t port, int connections, long size, long warmup, long requests);
// W11. The same client with HTTP requests.
struct perf_client *perf_http_client_start(uint16_t port, int connections, long warmup, long requests);
// W20. One request on a connection that the measuring thread drives itself, and its answer, which is small and arrives whole. False if there is
// none.
void perf_http_ask(int descriptor);
bool perf_http_take(int descriptor);
// Waits for the end. `cpu_ns` is the process's without the client's, `wall_ns` the client's; both exclude the warm-up.
void perf_client_join(struct perf_client *client, struct perf_sample *sample);
// Answers the requests that have arrived. Returns false if the client has disconnected or failed.
static inline bool perf_echo(int descriptor) {
    char bytes[4096];
    ssize_t count = read(descriptor, bytes, sizeof bytes);
    if (count > 0) count = send(descriptor, bytes, (size_t)count, MSG_NOSIGNAL);
    return count > 0 || (count < 0 && errno == EAGAIN);
}

// W14. The other end of a connection that the measuring thread drives itself: sends a message of 64 bytes, and takes one if it is there.
void perf_pair_make(int ends[2]);  // non-blocking Unix sockets
static inline void perf_pair_ask(int descriptor) {
    char message[PERF_MESSAGE] = {0};
    (void)!send(descriptor, message, sizeof message, MSG_NOSIGNAL);
}
// A message this small arrives whole. False if there is none.
static inline bool perf_pair_take(int descriptor) {
    char message[PERF_MESSAGE];
    return recv(descriptor, message, sizeof message, MSG_DONTWAIT) == (ssize_t)sizeof message;
}
// W22. The same end sends 16 messages together, and takes what has come of the answers: the number of bytes, which may be 0.
enum { PERF_PIPELINED = 16 };
static inline void perf_pair_ask_together(int descriptor) {
    char messages[PERF_PIPELINED * PERF_MESSAGE] = {0};
    (void)!send(descriptor, messages, sizeof messages, MSG_NOSIGNAL);
}
static inline long perf_pair_take_bytes(int descriptor) {
    char messages[PERF_PIPELINED * PERF_MESSAGE];
    ssize_t count = recv(descriptor, messages, sizeof messages, MSG_DONTWAIT);
    return count > 0 ? (long)count : 0;
}
// Connects to a loopback port; blocks. Ends the process if that fails.
int perf_connect(uint16_t port);

// W17. A client that opens `at_once` connections, and a new one for each that the server has closed after its answer of 64 bytes; exactly
// `warmup + connections` in all. As with `perf_client_join`, the sample excludes the client and the warm-up.
struct perf_short_client;
struct perf_short_client *perf_short_client_start(uint16_t port, int at_once, long warmup, long connections);
void perf_short_client_join(struct perf_short_client *client, struct perf_sample *sample);

// W21. A client that sends `at_once` datagrams of 64 bytes, waits for their answers, and goes on; at the end it sends one of a single byte. As with
// `perf_client_join`, the sample excludes the client and the warm-up. It ends the process if an answer is lost.
struct perf_datagram_client;
struct perf_datagram_client *perf_datagram_client_start(uint16_t port, int at_once, long warmup, long datagrams);
void perf_datagram_client_join(struct perf_datagram_client *client, struct perf_sample *sample);

// W11. libevent's HTTP server on a base, which answers every request with 64 bytes and calls `ended` when the last connection is closed.
struct event_base;
struct perf_http;
struct perf_http *perf_http_start(
    struct event_base *base, int connections, uint16_t *port, void (*ended)(void *context), void *context);
// W16. The same server on a shared port, until it is freed; and how many requests it has answered, for any thread.
struct perf_http *perf_http_serve(struct event_base *base, uint16_t *port);
long perf_http_answered(const struct perf_http *server);
void perf_http_free(struct perf_http *server);

// W8. Starts a program and waits for its end. Returns the time that both took, or -1 if it cannot be started or fails.
int64_t perf_start_and_wait_ns(const char *path);

// W10. A second process: this program again, with `arguments`, and one end of a socket pair as its descriptor 3. -1 on failure.
enum { PERF_PARTNER_SOCKET = 3 };
int perf_partner_start(char *const arguments[], int *process);
// Waits for the byte by which the partner reports that it is ready. Returns false if the partner has ended.
bool perf_partner_is_ready(int socket);
void perf_partner_say_ready(void);
// Closes the socket, which makes the partner end, and waits for that.
void perf_partner_end(int socket, int process);

// MARK: Growth

// What an operation costs beside `size` items: `make` sets up, `run` does `ops` operations and returns the nanoseconds that they took, or -1
// if it has no such operation, and `end` tears down. All on one thread. Without functions where a peer has nothing of the kind.
struct perf_growth {
    void *(*make)(long size);
    int64_t (*run)(void *rig, int cost, long ops);
    void (*end)(void *rig);
};
enum perf_growing { PERF_GROWING_SOURCES, PERF_GROWING_TIMERS, PERF_GROWING_LOOPS, PERF_GROWING_HOOKS };
// The kinds of operations, of each of these.
enum { PERF_GROWTH_IDLE, PERF_GROWTH_CHANGE, PERF_GROWTH_ACTIVE };
enum { PERF_GROWTH_ADD, PERF_GROWTH_CANCEL, PERF_GROWTH_REARM, PERF_GROWTH_FIRE, PERF_GROWTH_ASK };
enum { PERF_GROWTH_WAKE, PERF_GROWTH_MAKE };

// What is done between two passes: as many operations as there are items, but not so many that a cache is exceeded by them alone.
enum { PERF_GROWTH_BATCH = 500 };
static inline long perf_growth_batch(long size) { return size < PERF_GROWTH_BATCH ? size : PERF_GROWTH_BATCH; }

struct perf_growth peer_libevent_growth(enum perf_growing what);
// Connections that are bufferevents. Each request is that of another connection, this many further on.
enum { PERF_GROWTH_STRIDE = 7 };
struct perf_growth peer_libevent_growth_of_connections(void);

// MARK: Raw libevent. Bases have no lock, unless other threads post to them.

void peer_libevent_cascade(int pipes, int active, long warmup, long ops, struct perf_sample *sample);
// The same with one wait at a time and handlers called after it: the floor of a loop with steps between its waits.
void peer_libevent_cascade_in_passes(int pipes, int active, long warmup, long ops, struct perf_sample *sample);
enum perf_posting { PERF_POST_FREE, PERF_POST_HELD, PERF_DRAIN_HELD, PERF_POST_SLEEPING };
void peer_libevent_post(int producers, enum perf_posting how, long ops, struct perf_sample *sample);
void peer_libevent_ping_pong(int processor, long warmup, long ops, struct perf_sample *sample);
enum perf_timing { PERF_REARM, PERF_CANCEL, PERF_MAKE, PERF_MAKE_ADD, PERF_RELEASE, PERF_ADD_REMOVE, PERF_PUSH };
void peer_libevent_timers(enum perf_timing what, long timers, long ops, struct perf_sample *sample);
enum perf_ordered { PERF_ORDERED_ADD, PERF_ORDERED_REARM, PERF_ORDERED_CANCEL };
void peer_libevent_ordered_timers(enum perf_ordered what, long timers, long rounds, struct perf_sample *sample);
void peer_libevent_fires(long timers, int64_t span_ns, struct perf_sample *sample);
void peer_libevent_due(long timers, long warmup, long ops, struct perf_sample *sample);
void peer_libevent_pass(bool waits_only, long warmup, long ops, struct perf_sample *sample);
void peer_libevent_nested(long idle, long warmup, long ops, struct perf_sample *sample);
// W10: one end answers until the other is closed; the other sends and counts.
void peer_libevent_socket_answer(int socket);
void peer_libevent_socket_ask(int socket, long warmup, long ops, struct perf_sample *sample);
void peer_libevent_echo(int connections, long warmup, long ops, struct perf_sample *sample);
void peer_libevent_http(int connections, long warmup, long ops, struct perf_sample *sample);
// W16: the same server on a base of its own thread, which is bound to a processor.
struct peer_http_thread;
struct peer_http_thread *peer_libevent_http_thread_start(int processor, uint16_t *port);
long peer_libevent_http_thread_answered(const struct peer_http_thread *thread);
void peer_libevent_http_thread_stop(struct peer_http_thread *thread);
// W14: libevent's bufferevents; its evbuffers, read and written by the callbacks of plain events; these, read into space that is reserved
// in them; and plain events without a buffer, for small messages only. W22: bufferevents that answer each message of 64 bytes with a write of
// its own.
enum perf_streaming { PERF_BUFFEREVENT, PERF_EVBUFFER, PERF_EVBUFFER_RESERVED, PERF_NO_BUFFER, PERF_BUFFEREVENT_EACH };
void peer_libevent_stream_echo(
    enum perf_streaming how, int connections, long size, long warmup, long ops, struct perf_sample *sample);
void peer_libevent_stream_pair(enum perf_streaming how, long warmup, long ops, struct perf_sample *sample);
// W22: bufferevents on so many socket pairs; each round sends 16 messages on each, and ends when all answers have come.
void peer_libevent_pipelined_pairs(int connections, long warmup_rounds, long rounds, struct perf_sample *sample);
// W17: an evconnlistener whose connections are plain events, or bufferevents.
void peer_epoll_datagrams(int at_once, long warmup, long ops, struct perf_sample *sample);
void peer_libevent_short_connections(bool buffers, int at_once, long warmup, long ops, struct perf_sample *sample);
void peer_libevent_hold_streams(long count, struct perf_sample *sample);
void peer_libevent_hold_http(long count, struct perf_sample *sample);
void peer_libevent_hold_descriptors(long count, struct perf_sample *sample);
void peer_libevent_add_remove(int others, long ops, struct perf_sample *sample);
// Whole batches: a pass after each.
void peer_libevent_make_source(int batch, long ops, struct perf_sample *sample);
void peer_libevent_hold_timers(long count, struct perf_sample *sample);

// The floor of W3d: one timerfd and one epoll. Lateness of each timer, in nanoseconds.
void peer_timerfd_lateness(long count, int64_t *lateness);
// The floor of W5: calls of function pointers.
void peer_function_pointers(int hooks, long ops, struct perf_sample *sample);

// MARK: Inline

#include <time.h>

static inline int64_t perf_wall_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

#endif
