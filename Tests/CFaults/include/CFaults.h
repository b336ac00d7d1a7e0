// Faults of the C library, made to order: the nth call of a function fails with an errno, without having been made.
//
// The definitions here stand in front of the C library's: in the program, because they are its own, and in libevent, because a shared
// library's references are resolved in the program first. Only calls from the program and from libevent count and fail; Dispatch and the
// Swift runtime end the process when some of theirs fail, which is not what is tried here.

#ifndef CFAULTS_H
#define CFAULTS_H

#include <stdbool.h>
#include <stdint.h>

// False under a sanitizer, whose own definitions must not be hidden.
bool faults_are_available(void);

// The functions that can fail. The last one stands for all that make a descriptor.
int faults_function_count(void);
const char *faults_function_name(int function);
// What its manual page says it can fail with, ended by a zero.
const int *faults_errnos(int function);
bool faults_is_group(int function);

// Memory that the program shares with the children it forks: what is found out in a child is read by its parent.
struct faults_report {
    // What is to fail: calls number `first` to `first + length - 1` of `function`, counted from arming on; none if `function` is negative.
    int function, code;
    uint32_t first, length;
    bool is_armed;
    // How often each was called since then, how many calls failed, and how many came after the first that did.
    uint32_t calls[64];
    uint32_t failed, calls_after, calls_at_all;
    // How long the scenario took with the fault.
    uint32_t milliseconds;
    int outcome;
    char text[1000];
};
struct faults_report *faults_report(void);
void faults_arm(int function, uint32_t first, uint32_t length, int code);
void faults_disarm(void);

// Calls that a scenario makes itself: they neither count nor fail.
long faults_own_read(int descriptor, void *bytes, unsigned long count);
long faults_own_write(int descriptor, const void *bytes, unsigned long count);

void faults_own_unlink(const char *path);

// A file without a name, in memory.
int faults_make_file(void);

#endif
