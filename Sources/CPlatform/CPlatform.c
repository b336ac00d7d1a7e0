#if defined(__linux__) && !defined(_GNU_SOURCE)
#define _GNU_SOURCE
#endif
#include "CPlatform.h"

#include <string.h>
#include <unistd.h>

#if defined(__linux__)
#include <sys/syscall.h>
#endif

_Thread_local struct cplatform_thread cplatform_thread_state;

bool cplatform_is_main_thread(void) {
#if defined(__APPLE__)
    return pthread_main_np() != 0;
#else
    return syscall(SYS_gettid) == getpid();
#endif
}

void cplatform_name_this_thread(const char *name) {
#if defined(__APPLE__)
    pthread_setname_np(name);
#else
    char cut[16];  // pthread_setname_np(3): "The thread name is a meaningful C language string, whose length is restricted to 16 characters"
    size_t length = strlen(name);
    if (length > sizeof(cut) - 1) length = sizeof(cut) - 1;
    // Not in the middle of a UTF-8 sequence.
    while (length > 0 && length < strlen(name) && ((unsigned char)name[length] & 0xC0) == 0x80) length--;
    memcpy(cut, name, length);
    cut[length] = 0;
    pthread_setname_np(pthread_self(), cut);
#endif
}

#if defined(__linux__)

extern int _dispatch_get_main_queue_handle_4CF(void) __attribute__((weak));
extern void _dispatch_main_queue_callback_4CF(void *message) __attribute__((weak));

bool cplatform_main_queue_available(void) {
    return _dispatch_get_main_queue_handle_4CF != 0 && _dispatch_main_queue_callback_4CF != 0;
}
int cplatform_main_queue_descriptor(void) { return _dispatch_get_main_queue_handle_4CF(); }
void cplatform_main_queue_drain(void) { _dispatch_main_queue_callback_4CF(0); }

#else

// Elsewhere the handle is a Mach port or a pair of pipes, which libevent cannot watch: the feature is absent.
bool cplatform_main_queue_available(void) { return false; }
int cplatform_main_queue_descriptor(void) { return -1; }
void cplatform_main_queue_drain(void) {}

#endif
