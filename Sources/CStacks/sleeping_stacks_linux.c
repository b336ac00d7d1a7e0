// The stack of a thread that sleeps in a system call, read from outside.
//
// The kernel reports the thread's stack pointer and program counter, but not its frame pointer. So the stack is copied and searched: for
// return addresses, which point behind a call instruction, and for the first frame record, from which the chain of frame pointers leads
// outwards. What is found before the second record may be a remainder of an earlier call, and is marked as uncertain.
//
// Lifecycle of the copy: allocated and freed in `cstacks_read_sleeping_stack`.

#if defined(__linux__) && (defined(__x86_64__) || defined(__aarch64__))
#define _GNU_SOURCE
#include "CStacks.h"
#include "unwinding.h"

#include <stdlib.h>

static bool still_sleeps(int32_t thread, const struct cstacks_thread_activity *then) {
    struct cstacks_thread_activity now;
    cstacks_thread_activity(thread, &now);
    return now.kind == then->kind && now.call == then->call && now.stack_pointer == then->stack_pointer &&
        now.program_counter == then->program_counter && now.first_argument == then->first_argument;
}

bool cstacks_read_sleeping_stack(
    int32_t thread, const struct cstacks_thread_activity *activity, struct cstacks_stack *stack) {
    stack->count = 0;
    if (activity->kind != CSTACKS_THREAD_IN_CALL || activity->stack_pointer % 8 != 0) return false;
    struct code_ranges *ranges = malloc(sizeof(*ranges));
    uint64_t *words = malloc(CSTACKS_MOST_BYTES);
    if (ranges && words) {
        cstacks_find_code(ranges);
        size_t size = cstacks_copy(words, activity->stack_pointer, CSTACKS_MOST_BYTES);
        // A thread that has gone on may have changed the stack while it was copied.
        if (still_sleeps(thread, activity)) {
            struct cstacks_piece piece = {words, size / 8, activity->stack_pointer, ranges};
            stack->frames[0] = activity->program_counter;
            stack->is_uncertain[0] = false;
            stack->count = 1;
            cstacks_search(&piece, 0, stack);
        }
    }
    free(ranges);
    free(words);
    return stack->count > 0;
}
#endif
