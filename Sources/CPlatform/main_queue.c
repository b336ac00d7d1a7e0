#include "CPlatform.h"

#if defined(__linux__)

extern int _dispatch_get_main_queue_handle_4CF(void) __attribute__((weak));
extern void _dispatch_main_queue_callback_4CF(void *message) __attribute__((weak));

bool cplatform_main_queue_available(void) {
    return _dispatch_get_main_queue_handle_4CF != 0 && _dispatch_main_queue_callback_4CF != 0;
}
int cplatform_main_queue_descriptor(void) { return _dispatch_get_main_queue_handle_4CF(); }
void cplatform_main_queue_drain(void) { _dispatch_main_queue_callback_4CF(0); }

extern char _dispatch_main_q[] __attribute__((weak));
extern void dispatch_queue_set_specific(void *queue, const void *key, void *context, void (*destructor)(void *))
    __attribute__((weak));
extern void *dispatch_get_specific(const void *key) __attribute__((weak));
static char mark;

void cplatform_mark_main_queue(void) {
    if (dispatch_queue_set_specific && dispatch_get_specific && _dispatch_main_q)
        dispatch_queue_set_specific(_dispatch_main_q, &mark, &mark, 0);
}
bool cplatform_is_in_main_queue(void) { return dispatch_get_specific && dispatch_get_specific(&mark) != 0; }

#else

// Elsewhere the handle is a Mach port or a pair of pipes, which libevent cannot watch: the feature is absent.
bool cplatform_main_queue_available(void) { return false; }
int cplatform_main_queue_descriptor(void) { return -1; }
void cplatform_main_queue_drain(void) {}
void cplatform_mark_main_queue(void) {}
bool cplatform_is_in_main_queue(void) { return false; }

#endif
