// Platforms on which one thread cannot look at another: no stacks.

#include "CPlatform.h"

#include <stdio.h>

#if !defined(__linux__)
int32_t cplatform_thread_id(void) { return 0; }
int32_t cplatform_main_thread_id(void) { return 0; }

int64_t cplatform_processor_time(int32_t thread) {
    (void)thread;
    return -1;
}

void cplatform_thread_activity(int32_t thread, struct cplatform_thread_activity *activity) {
    (void)thread;
    *activity = (struct cplatform_thread_activity){.kind = CPLATFORM_THREAD_UNKNOWN};
}

void cplatform_describe_call(const struct cplatform_thread_activity *activity, char *text, size_t size) {
    snprintf(text, size, "system call %ld", activity->call);
}

void cplatform_symbolize(const uint64_t *addresses, int count, struct cplatform_symbol *symbols) {
    for (int index = 0; index < count; index++) symbols[index] = (struct cplatform_symbol){.address = addresses[index]};
}
#endif

#if !defined(__linux__) || !(defined(__x86_64__) || defined(__aarch64__))
bool cplatform_handle_stack_signal(const void *info, const void *context) {
    (void)info;
    (void)context;
    return false;
}

bool cplatform_interrupt_for_stack(int32_t thread, int milliseconds, struct cplatform_stack *stack) {
    (void)thread;
    (void)milliseconds;
    stack->count = 0;
    return false;
}

bool cplatform_read_sleeping_stack(
    int32_t thread, const struct cplatform_thread_activity *activity, struct cplatform_stack *stack) {
    (void)thread;
    (void)activity;
    stack->count = 0;
    return false;
}

void cplatform_forget_stacks_after_fork(void) {}
#endif
