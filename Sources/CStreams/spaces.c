// Memory into which bytes are read before somebody sees them: a few pieces for each thread, shared by all of its streams.
//
// Lifecycle: a piece is allocated when a thread asks for one and has none free. Two are kept when they are given back, and freed when the thread
// ends. Nothing is shared by threads.

#include "CStreams.h"

#include <pthread.h>
#include <stdlib.h>

enum { KEPT = 2 };

static _Thread_local struct {
    void *free[KEPT];
    int count;
} spaces;

static pthread_key_t end_of_thread;
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void free_spaces(void *unused) {
    (void)unused;
    while (spaces.count > 0) free(spaces.free[--spaces.count]);
}

// Without a key the pieces of a thread that ends are lost, which is the lesser evil.
static void make_key(void) { (void)pthread_key_create(&end_of_thread, free_spaces); }

__attribute__((noinline)) static void *new_space(void) {
    pthread_once(&once, make_key);
    // A value that is not null has the destructor called.
    pthread_setspecific(end_of_thread, &spaces);
    return malloc(CSTREAMS_SPACE_SIZE);
}

void *cstreams_take_space(void) { return spaces.count > 0 ? spaces.free[--spaces.count] : new_space(); }

void cstreams_give_back_space(void *space) {
    if (spaces.count < KEPT) spaces.free[spaces.count++] = space; else free(space);
}
