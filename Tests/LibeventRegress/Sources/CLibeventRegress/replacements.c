// The C half of the replacements that names.h lists: the ones that only lead to another one.

#include "CLibeventRegress.h"

#include <event2/event.h>
#include <pthread.h>

// The base of the functions without a parameter (event_compat.h: "the current base"). libevent exports it for its tests.
extern struct event_base *event_global_current_base_;

// MARK: Bases

static struct event_base *with_three_priorities(struct event_base *base) {
    if (base) event_base_priority_init(base, 3);
    eventloop_prepare();
    return base;
}

struct event_base *eventloop_base_new(void) { return with_three_priorities(event_base_new()); }

struct event_base *eventloop_base_new_with_config(const struct event_config *config) {
    return with_three_priorities(event_base_new_with_config(config));
}

struct event_base *event_init(void);
struct event_base *eventloop_init(void) { return with_three_priorities(event_init()); }

// MARK: Runs

int eventloop_base_dispatch(struct event_base *base) { return eventloop_base_loop(base, 0); }
int eventloop_loop(int flags) { return eventloop_base_loop(event_global_current_base_, flags); }
int eventloop_dispatch(void) { return eventloop_base_loop(event_global_current_base_, 0); }

// MARK: Broken runs

enum { most_bases = 256 };
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct event_base *broken[most_bases];

static int place_of(struct event_base *base) {
    for (int i = 0; i < most_bases; i++) {
        if (broken[i] == base) return i;
    }
    return -1;
}

void eventloop_set_broken(struct event_base *base, bool is_broken) {
    pthread_mutex_lock(&lock);
    int place = place_of(base);
    if (is_broken && place < 0 && (place = place_of(NULL)) >= 0) broken[place] = base;
    if (!is_broken && place >= 0) broken[place] = NULL;
    pthread_mutex_unlock(&lock);
}

int eventloop_base_got_break(struct event_base *base) {
    pthread_mutex_lock(&lock);
    int place = base ? place_of(base) : -1;
    pthread_mutex_unlock(&lock);
    return place >= 0;
}

int eventloop_base_loopbreak(struct event_base *base) {
    if (base) eventloop_set_broken(base, true);
    return event_base_loopbreak(base);
}

int eventloop_loopbreak(void) { return eventloop_base_loopbreak(event_global_current_base_); }
