// When a thread of another event loop sleeps: the calls of epoll_wait that one loaded object makes. Linux with glibc.
#pragma once

#include <stdbool.h>

typedef struct {
    /// Called before a wait on `set`, and after it, on the thread that waits. `errno` is kept.
    void (*_Nonnull will_wait)(void *_Nonnull context);
    void (*_Nonnull did_wait)(void *_Nonnull context);
    void *_Nonnull context;
    int set;
} CHostPassesReader;

// Has the object (the program, or a shared library) that contains `address` call epoll_wait through this module from now on. Changes one word
// of the object's table of imported functions, for the rest of the process. False if the object imports no such function, or if its table
// cannot be changed. Thread-safe.
bool chost_passes_prepare(const void *_Nonnull address);

// The reader of the calling thread, which is not copied; NULL for none.
void chost_passes_set_reader(const CHostPassesReader *_Nullable reader);
