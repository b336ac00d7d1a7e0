// Platforms on which one thread cannot look at another: no stacks.

#include "CStacks.h"

#include <stdio.h>

#if !defined(__linux__)
int64_t cstacks_processor_time(int32_t thread) {
    (void)thread;
    return -1;
}

void cstacks_thread_activity(int32_t thread, struct cstacks_thread_activity *activity) {
    (void)thread;
    *activity = (struct cstacks_thread_activity){.kind = CSTACKS_THREAD_UNKNOWN};
}

void cstacks_describe_call(const struct cstacks_thread_activity *activity, char *text, size_t size) {
    snprintf(text, size, "system call %ld", activity->call);
}

void cstacks_symbolize(const uint64_t *addresses, int count, struct cstacks_symbol *symbols) {
    for (int index = 0; index < count; index++) symbols[index] = (struct cstacks_symbol){.address = addresses[index]};
}
#endif

#if !defined(__linux__) || !(defined(__x86_64__) || defined(__aarch64__))
bool cstacks_interrupt_for_stack(int32_t thread, int milliseconds, struct cstacks_stack *stack) {
    (void)thread;
    (void)milliseconds;
    stack->count = 0;
    return false;
}

bool cstacks_read_sleeping_stack(
    int32_t thread, const struct cstacks_thread_activity *activity, struct cstacks_stack *stack) {
    (void)thread;
    (void)activity;
    stack->count = 0;
    return false;
}

void cstacks_forget_stacks(void) {}
#endif
