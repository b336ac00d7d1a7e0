// The lookup of names: overlaid structures of C, a thread without signals, and the pool of threads.

#if defined(__linux__) && !defined(_GNU_SOURCE)
#define _GNU_SOURCE
#endif
#include "CStreamsNames.h"

#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

// MARK: Lookups

int cstreams_look_up(const char *host, bool only_numeric, int *system_error, void *context, cstreams_each_address *each) {
    struct addrinfo hints, *found = 0;
    memset(&hints, 0, sizeof(hints));
    hints.ai_family = AF_UNSPEC;
    hints.ai_socktype = SOCK_STREAM;
    hints.ai_flags = only_numeric ? AI_NUMERICHOST : 0;
    errno = 0;
    int code = getaddrinfo(host, 0, &hints, &found);
    *system_error = code == EAI_SYSTEM ? errno : 0;
    if (code != 0) return code;
    for (struct addrinfo *one = found; one; one = one->ai_next) {  // ends: the list does
        if (one->ai_family != AF_INET && one->ai_family != AF_INET6) continue;
        char text[CSTREAMS_HOST_SIZE];
        if (getnameinfo(one->ai_addr, one->ai_addrlen, text, sizeof(text), 0, 0, NI_NUMERICHOST) != 0) continue;
        each(context, one->ai_family == AF_INET6, text);
    }
    freeaddrinfo(found);
    return 0;
}

void cstreams_lookup_error(int code, int system_error, char *text, int size) {
    if (code == EAI_SYSTEM && system_error != 0) {
        cstreams_error_text(system_error, text, size);
    } else {
        snprintf(text, (size_t)size, "%s", gai_strerror(code));
    }
}

bool cstreams_says_no_such_host(int code) {
    switch (code) {
    case EAI_NONAME:
#if defined(EAI_NODATA) && EAI_NODATA != EAI_NONAME
    case EAI_NODATA:
#endif
#if defined(EAI_ADDRFAMILY) && EAI_ADDRFAMILY != EAI_NONAME
    case EAI_ADDRFAMILY:
#endif
        return true;
    default: return false;
    }
}

bool cstreams_is_no_numeric_host(int code) { return code == EAI_NONAME; }

void cstreams_error_text(int code, char *text, int size) {
    text[0] = 0;
#if defined(__GLIBC__)
    const char *words = strerror_r(code, text, (size_t)size);  // GNU's form
    if (words != text) snprintf(text, (size_t)size, "%s", words);
#else
    strerror_r(code, text, (size_t)size);
#endif
}

// MARK: Threads

struct start {
    void (*body)(void *context);
    void *context;
    char name[16];
};

static void *run(void *argument) {
    struct start start = *(struct start *)argument;
    free(argument);
#if defined(__APPLE__)
    pthread_setname_np(start.name);
#else
    pthread_setname_np(pthread_self(), start.name);
#endif
    start.body(start.context);
    return 0;
}

int cstreams_start_thread(const char *name, void (*body)(void *context), void *context) {
    struct start *start = malloc(sizeof(*start));
    if (!start) return ENOMEM;
    start->body = body;
    start->context = context;
    snprintf(start->name, sizeof(start->name), "%s", name);
    pthread_attr_t attributes;
    int code = pthread_attr_init(&attributes);
    if (code == 0) {
        pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
        // The new thread inherits the mask. Signals by which a thread reports a fault of its own are let through: if one is blocked, the kernel ends
        // the process without the program's handler.
        static const int faults[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGABRT, SIGSYS};
        sigset_t blocked, old;
        sigfillset(&blocked);
        for (size_t index = 0; index < sizeof(faults) / sizeof(*faults); index++) sigdelset(&blocked, faults[index]);
        pthread_sigmask(SIG_SETMASK, &blocked, &old);
        pthread_t thread;
        code = pthread_create(&thread, &attributes, run, start);
        pthread_sigmask(SIG_SETMASK, &old, 0);
        pthread_attr_destroy(&attributes);
    }
    if (code != 0) free(start);
    return code;
}

// MARK: The pool

static _Atomic(void *) lookup_pool;

void *cstreams_lookup_pool(void) { return atomic_load(&lookup_pool); }

bool cstreams_replace_lookup_pool(void *old, void *pool) { return atomic_compare_exchange_strong(&lookup_pool, &old, pool); }

// MARK: Options of sockets

int cstreams_share_port(int descriptor) {
    int on = 1;
    return setsockopt(descriptor, SOL_SOCKET, SO_REUSEPORT, &on, sizeof(on)) == 0 ? 0 : errno;
}

#if defined(__linux__)
#ifndef SO_PASSRIGHTS
#define SO_PASSRIGHTS 83
#endif
void cstreams_refuse_descriptors(int listener) {
    int off = 0;
    (void)setsockopt(listener, SOL_SOCKET, SO_PASSRIGHTS, &off, sizeof(off));
}
#else
void cstreams_refuse_descriptors(int listener) { (void)listener; }
#endif
