#ifndef EVENTLOOP_CPLATFORM_STACKS_H
#define EVENTLOOP_CPLATFORM_STACKS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

// What the watchdog needs to know about a thread that another thread looks at: what it does, how much processor time it has used, and its
// stack. Threads are named by the kernel's id, 0 for none. On platforms other than Linux the answers are "unknown", and stacks are empty.

// The kernel's ids of the calling thread and of the process's first thread; 0 if the platform has none.
int32_t cplatform_thread_id(void);
int32_t cplatform_main_thread_id(void);

// The processor time that a thread of this process has used, in nanoseconds; -1 if it has ended, or if the platform does not report it.
int64_t cplatform_processor_time(int32_t thread);

// MARK: What a thread does

enum {
    CPLATFORM_THREAD_UNKNOWN,  // it has ended, or the platform does not report it
    CPLATFORM_THREAD_RUNNING,  // it runs, or would if it had a processor
    CPLATFORM_THREAD_IN_CALL,  // it sleeps in a system call
};
struct cplatform_thread_activity {
    int kind;
    // In a call: its number, its first argument, and the thread's registers.
    long call;
    uint64_t first_argument;
    uint64_t stack_pointer, program_counter;
};
// Opens a file, so it needs a free descriptor.
void cplatform_thread_activity(int32_t thread, struct cplatform_thread_activity *activity);
// Writes the call as `read(3, …)` or `nanosleep(…)`, with a zero byte at its end.
void cplatform_describe_call(const struct cplatform_thread_activity *activity, char *text, size_t size);

// MARK: Stacks

enum { CPLATFORM_MOST_FRAMES = 128 };
struct cplatform_stack {
    int count;
    // Code addresses, innermost first.
    uint64_t frames[CPLATFORM_MOST_FRAMES];
    // The frame was found by searching the stack: it may be a remainder of an earlier call.
    bool is_uncertain[CPLATFORM_MOST_FRAMES];
};
// Swift cannot index a C array.
static inline uint64_t cplatform_stack_frame(const struct cplatform_stack *stack, int index) { return stack->frames[index]; }
static inline bool cplatform_stack_is_uncertain(const struct cplatform_stack *stack, int index) { return stack->is_uncertain[index]; }
// Interrupts a running thread of this process with a signal, whose handler walks the stack. Returns false with an empty stack if the
// handler has not run within `milliseconds`, or if the platform has no way. Not on the thread itself; one caller waits for another.
//
// The signal is SIGURG, or SIGPROF if the thread blocks SIGURG, with a value by which the handler knows it; other code's handler does not
// see it. The handler is installed for the time of the call only. A system call that the thread enters at this moment may return early.
bool cplatform_interrupt_for_stack(int32_t thread, int milliseconds, struct cplatform_stack *stack);
// Reads the stack of a thread that sleeps in the call that `activity` describes, and does not disturb it. False if the thread has gone on.
bool cplatform_read_sleeping_stack(int32_t thread, const struct cplatform_thread_activity *activity, struct cplatform_stack *stack);
// For other handlers of this library: takes the signal if it is one of these. `info` is a siginfo_t. Async-signal-safe.
bool cplatform_handle_stack_signal(const void *info, const void *context);
// In a child of fork: nobody takes a stack.
void cplatform_forget_stacks_after_fork(void);

// MARK: Symbols

struct cplatform_symbol {
    // Allocated; null if no symbol covers the address.
    char *name;
    uint64_t offset;
    // Allocated: the file's last component; null if no file is loaded there.
    char *image;
    // The address as the file counts it.
    uint64_t address;
};
// Looks up `count` addresses, reading the loaded files' symbol tables. Free each result with `cplatform_free_symbol`. Any thread; takes the
// loader's lock for the list of files only, never for a file's constructors.
void cplatform_symbolize(const uint64_t *addresses, int count, struct cplatform_symbol *symbols);
void cplatform_free_symbol(struct cplatform_symbol *symbol);
// The demangled name, allocated; null if it is not mangled, or if the process has no demangler for it.
char *cplatform_demangle(const char *name);
void cplatform_free_text(char *text);

// MARK: An alarm bell, on which one thread waits

// Wakes the waiting thread, or has the next wait return at once. Any thread; async-signal-safe; preserves errno. One system call at most.
void cplatform_ring_alarm(void);
// Waits until the bell rings, at most for `nanoseconds`; negative waits forever. It may return early.
void cplatform_wait_for_alarm(int64_t nanoseconds);

#endif
