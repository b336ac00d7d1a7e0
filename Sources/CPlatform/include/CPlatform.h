#ifndef EVENTLOOP_CPLATFORM_H
#define EVENTLOOP_CPLATFORM_H

#include <stdbool.h>
#include <stdint.h>
#include <pthread.h>

// What the calling thread's run loop is. Swift has no thread-local variables; a pthread key costs a library
// call where this is one load, on a path that every wake-up and every timer change takes.
struct cplatform_thread {
    uint64_t loop_id;   // 0: the thread has no loop (yet)
    void *loop;         // unretained; the thread's exit handler holds the reference
};
extern _Thread_local struct cplatform_thread cplatform_thread_state;

static inline uint64_t cplatform_current_loop_id(void) { return cplatform_thread_state.loop_id; }
static inline void *cplatform_current_loop(void) { return cplatform_thread_state.loop; }
static inline void cplatform_set_current_loop(uint64_t id, void *loop) {
    cplatform_thread_state.loop_id = id;
    cplatform_thread_state.loop = loop;
}

// Whether the caller is the process's first thread. After fork the child's only thread is.
bool cplatform_is_main_thread(void);

// Shows in `top -H` and in debuggers; cut to what the platform takes (15 bytes on Linux).
void cplatform_name_this_thread(const char *name);

// libdispatch's two entry points for run loops, weak: where Dispatch is not loaded they are absent.
// The handle is an eventfd on Linux; it must be read, and then the callback called, on the main thread.
bool cplatform_main_queue_available(void);
int cplatform_main_queue_descriptor(void);
void cplatform_main_queue_drain(void);

#endif
