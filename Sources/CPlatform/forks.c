// Forks: state that the whole process shares is at rest over a fork, so that no child inherits it locked or half changed (decision 24).
//
// fork(2): "The child process is created with a single thread—the one that called fork()." A lock that another thread held at that moment
// stays locked in the child forever. pthread_atfork(3) has a handler before the fork and one after it in each process.

#include "CPlatform.h"

#include <pthread.h>
#include <stdatomic.h>

// Written only in the child of fork, which has one thread.
int cplatform_forks;

static struct part {
    atomic_bool has_begun;
    void (*hold)(void);
    void (*let_go)(bool in_child);
} parts[CPLATFORM_GLOBALS_PARTS];

// Held while a part is being set up, and over every fork: a child never finds a part half set up.
static pthread_mutex_t beginning = PTHREAD_MUTEX_INITIALIZER;

static void before_fork(void) {
    pthread_mutex_lock(&beginning);
    for (int part = 0; part < CPLATFORM_GLOBALS_PARTS; part++) {
        if (atomic_load(&parts[part].has_begun)) parts[part].hold();
    }
}

static void let_go(bool in_child) {
    for (int part = CPLATFORM_GLOBALS_PARTS - 1; part >= 0; part--) {
        if (atomic_load(&parts[part].has_begun)) parts[part].let_go(in_child);
    }
    pthread_mutex_unlock(&beginning);
}

static void after_fork(void) { let_go(false); }

static void begin_as_child(void) {
    cplatform_forks++;
    // The thread's loop is the parent's, so nothing that an owner may do is done here. `cplatform_current_loop` remains, for the message.
    cplatform_thread_state.loop_id = 0;
    let_go(true);
}

// Runs when the program is loaded, because a fork may come in the middle of the first use. The program's own handlers are installed later,
// so they run outside ours and may use the library: "the prepare handlers are called in reverse order of registration" (pthread_atfork(3)).
__attribute__((constructor)) static void install(void) { pthread_atfork(before_fork, after_fork, begin_as_child); }

void cplatform_hold_globals(int part, void (*hold)(void), void (*release)(bool in_child)) {
    if (atomic_load_explicit(&parts[part].has_begun, memory_order_acquire)) return;
    pthread_mutex_lock(&beginning);
    if (!atomic_load(&parts[part].has_begun)) {
        parts[part].hold = hold;
        parts[part].let_go = release;
        // Initializes what Swift makes at its first use: values, and the types that the code names. A child cannot do that: another thread
        // of the parent may have held the runtime's locks at the fork. So the child's path runs once as well; there is nothing yet that it
        // could clear.
        hold();
        release(true);
        hold();
        release(false);
        atomic_store(&parts[part].has_begun, true);
    }
    pthread_mutex_unlock(&beginning);
}

static _Atomic(void *) main_loop;

void *cplatform_main_loop(void) { return atomic_load_explicit(&main_loop, memory_order_acquire); }

void cplatform_set_main_loop(void *loop) { atomic_store_explicit(&main_loop, loop, memory_order_release); }
