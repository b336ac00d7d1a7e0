#if defined(__linux__) && !defined(_GNU_SOURCE)
#define _GNU_SOURCE
#endif
#include "CPlatform.h"

#include <pthread.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#if defined(__linux__)
#include <sys/syscall.h>
#endif

_Thread_local struct cplatform_thread cplatform_thread_state;

int cplatform_recordings_in_progress;

#if defined(__linux__)
int32_t cplatform_thread_id(void) { return (int32_t)syscall(SYS_gettid); }
int32_t cplatform_main_thread_id(void) { return (int32_t)getpid(); }
#else
int32_t cplatform_thread_id(void) { return 0; }
int32_t cplatform_main_thread_id(void) { return 0; }
#endif

#if defined(__APPLE__)

bool cplatform_is_main_thread(void) { return pthread_main_np() != 0; }
void cplatform_name_this_thread(const char *name) { pthread_setname_np(name); }

#else

bool cplatform_is_main_thread(void) {
    // Threads without a loop ask whenever they use the main loop, so the answer is cached. A fork may change it.
    static _Thread_local int answer = -1, asked_after_forks = 0;
    if (answer < 0 || asked_after_forks != cplatform_forks) {
        answer = syscall(SYS_gettid) == getpid();
        asked_after_forks = cplatform_forks;
    }
    return answer;
}

void cplatform_name_this_thread(const char *name) {
    // pthread_setname_np(3): the name "is restricted to 16 characters, including the terminating null byte".
    char cut[16];
    size_t whole = strlen(name), length = whole;
    if (length > sizeof(cut) - 1) length = sizeof(cut) - 1;
    // Do not cut a UTF-8 sequence.
    while (length > 0 && length < whole && ((unsigned char)name[length] & 0xC0) == 0x80) length--;
    memcpy(cut, name, length);
    cut[length] = 0;
    pthread_setname_np(pthread_self(), cut);
}

#endif

uint64_t cplatform_nanoseconds(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (uint64_t)time.tv_sec * 1000000000u + (uint64_t)time.tv_nsec;
}
