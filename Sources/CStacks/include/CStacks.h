#ifndef EVENTLOOP_CSTACKS_H
#define EVENTLOOP_CSTACKS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

// What the watchdog needs to know about a thread that another thread looks at: what it does, how much processor time it has used, and its
// stack. Threads are named by the kernel's id, 0 for none. On platforms other than Linux the answers are "unknown", and stacks are empty.

// The processor time that a thread of this process has used, in nanoseconds; -1 if it has ended, or if the platform does not report it.
int64_t cstacks_processor_time(int32_t thread);

// MARK: What a thread does

enum {
    CSTACKS_THREAD_UNKNOWN,  // it has ended, or the platform does not report it
    CSTACKS_THREAD_RUNNING,  // it runs, or would if it had a processor
    CSTACKS_THREAD_IN_CALL,  // it sleeps in a system call
};
struct cstacks_thread_activity {
    int kind;
    // In a call: its number, its first argument, and the thread's registers.
    long call;
    uint64_t first_argument;
    uint64_t stack_pointer, program_counter;
};
// Opens a file, so it needs a free descriptor.
void cstacks_thread_activity(int32_t thread, struct cstacks_thread_activity *activity);
// Writes the call as `read(3, …)` or `nanosleep(…)`, with a zero byte at its end.
void cstacks_describe_call(const struct cstacks_thread_activity *activity, char *text, size_t size);

// MARK: Stacks

enum { CSTACKS_MOST_FRAMES = 128 };
struct cstacks_stack {
    int count;
    // Code addresses, innermost first.
    uint64_t frames[CSTACKS_MOST_FRAMES];
    // The frame was found by searching the stack: it may be a remainder of an earlier call.
    bool is_uncertain[CSTACKS_MOST_FRAMES];
};
// Swift cannot index a C array.
static inline uint64_t cstacks_stack_frame(const struct cstacks_stack *stack, int index) { return stack->frames[index]; }
static inline bool cstacks_stack_is_uncertain(const struct cstacks_stack *stack, int index) { return stack->is_uncertain[index]; }
// Interrupts a running thread of this process with a signal, whose handler walks the stack. Returns false with an empty stack if the
// handler has not run within `milliseconds`, or if the platform has no way. Not on the thread itself; one caller waits for another.
//
// The signal is SIGURG, or SIGPROF if the thread blocks SIGURG, with a value by which the handler knows it; other code's handler does not
// see it. The handler is installed for the time of the call, and longer only if the signal has not arrived by then. A system call that the
// thread enters at this moment may return early.
bool cstacks_interrupt_for_stack(int32_t thread, int milliseconds, struct cstacks_stack *stack);
// Reads the stack of a thread that sleeps in the call that `activity` describes, and does not disturb it. False if the thread has gone on.
bool cstacks_read_sleeping_stack(int32_t thread, const struct cstacks_thread_activity *activity, struct cstacks_stack *stack);
// In a child, where nobody takes a stack.
void cstacks_forget_stacks(void);

// MARK: Symbols

struct cstacks_symbol {
    // Allocated; null if no symbol covers the address.
    char *name;
    uint64_t offset;
    // Allocated: the file's last component; null if no file is loaded there.
    char *image;
    // The address as the file counts it.
    uint64_t address;
};
// Looks up `count` addresses, reading the loaded files' symbol tables. Free each result with `cstacks_free_symbol`. Any thread; takes the
// loader's lock for the list of files only, never for a file's constructors.
void cstacks_symbolize(const uint64_t *addresses, int count, struct cstacks_symbol *symbols);
void cstacks_free_symbol(struct cstacks_symbol *symbol);
// The demangled name, allocated; null if it is not mangled, or if the process has no demangler for it.
char *cstacks_demangle(const char *name);
void cstacks_free_text(char *text);

#endif
