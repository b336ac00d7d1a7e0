#include "CPlatform.h"

#include <unistd.h>

#if defined(__linux__)

extern int _dispatch_get_main_queue_handle_4CF(void) __attribute__((weak));
extern void _dispatch_main_queue_callback_4CF(void *message) __attribute__((weak));

bool cplatform_main_queue_available(void) {
    return _dispatch_get_main_queue_handle_4CF != 0 && _dispatch_main_queue_callback_4CF != 0;
}
int cplatform_main_queue_descriptor(void) { return _dispatch_get_main_queue_handle_4CF(); }
void cplatform_main_queue_drain(void) { _dispatch_main_queue_callback_4CF(0); }

extern char _dispatch_main_q[] __attribute__((weak));
extern void dispatch_async_f(void *queue, void *context, void (*body)(void *)) __attribute__((weak));

// Only the main thread touches it.
static unsigned drains;
static void count_drain(void *context) {
    (void)context;
    drains++;
}

bool cplatform_main_queue_drain_unless_draining(void) {
    if (!dispatch_async_f || !_dispatch_main_q) {
        cplatform_main_queue_drain();
        return true;
    }
    unsigned before = drains;
    uint64_t count, one = 1;
    // A block for an empty queue makes the handle readable, so it is read after that. It never blocks.
    dispatch_async_f(_dispatch_main_q, 0, count_drain);
    (void)!read(cplatform_main_queue_descriptor(), &count, sizeof(count));
    cplatform_main_queue_drain();
    if (drains != before) return true;
    (void)!write(cplatform_main_queue_descriptor(), &one, sizeof(one));
    return false;
}

#else

// Elsewhere the handle is a Mach port or a pair of pipes, which libevent cannot watch: the feature is absent.
bool cplatform_main_queue_available(void) { return false; }
int cplatform_main_queue_descriptor(void) { return -1; }
void cplatform_main_queue_drain(void) {}
bool cplatform_main_queue_drain_unless_draining(void) { return false; }

#endif
