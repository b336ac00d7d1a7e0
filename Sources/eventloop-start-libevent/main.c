// The same on raw libevent.

#include <event2/event.h>

static void fired(evutil_socket_t descriptor, short what, void *base) {
    (void)descriptor, (void)what;
    event_base_loopbreak(base);
}

int main(void) {
    struct event_base *base = event_base_new();
    struct event *timer = evtimer_new(base, fired, base);
    struct timeval now = {0, 0};
    event_add(timer, &now);
    event_base_dispatch(base);
    event_free(timer);
    event_base_free(base);
    return 0;
}
