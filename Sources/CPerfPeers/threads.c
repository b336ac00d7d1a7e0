// Threads, and producers that start together.
//
// Lifecycle of a gang: made by `perf_gang_start`, freed by `perf_gang_join`, both on the measuring thread.

#define _GNU_SOURCE
#include "CPerfPeers.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

struct start {
    pthread_t thread;
    void (*body)(void *);
    void *context;
};

static void *run_thread(void *argument) {
    struct start *start = argument;
    start->body(start->context);
    return NULL;
}

void *perf_thread_start(void (*body)(void *), void *context) {
    struct start *start = malloc(sizeof *start);
    start->body = body;
    start->context = context;
    if (pthread_create(&start->thread, NULL, run_thread, start) != 0) {
        fputs("eventloop-perf: the system gives no more threads\n", stderr);
        exit(1);
    }
    return start;
}

void perf_thread_join(void *handle) {
    struct start *start = handle;
    pthread_join(start->thread, NULL);
    free(start);
}

void perf_pin_this_thread(int processor) {
    cpu_set_t set;
    CPU_ZERO(&set);
    for (int index = 0; index < CPU_SETSIZE; index++)
        if (processor < 0 || index == processor) CPU_SET(index, &set);
    sched_setaffinity(0, sizeof set, &set);  // fails if the processor does not exist; then the thread stays where it was
}

struct perf_gang {
    int producers;
    long posts;
    void (*post)(void *, long);
    void *context;
    atomic_int ready;
    atomic_bool open;
    void *threads[16];
};

static void produce(void *argument) {
    struct perf_gang *gang = argument;
    atomic_fetch_add(&gang->ready, 1);
    while (!atomic_load(&gang->open)) sched_yield();
    gang->post(gang->context, gang->posts);
}

struct perf_gang *perf_gang_start(int producers, long posts, void (*post)(void *, long), void *context) {
    struct perf_gang *gang = calloc(1, sizeof *gang);
    gang->producers = producers;
    gang->posts = posts;
    gang->post = post;
    gang->context = context;
    for (int index = 0; index < producers; index++) gang->threads[index] = perf_thread_start(produce, gang);
    while (atomic_load(&gang->ready) < producers) sched_yield();
    return gang;
}

void perf_gang_open(struct perf_gang *gang) { atomic_store(&gang->open, true); }

void perf_gang_join(struct perf_gang *gang) {
    for (int index = 0; index < gang->producers; index++) perf_thread_join(gang->threads[index]);
    free(gang);
}
