// The stack of a thread that sleeps in a system call, read from outside.
//
// The kernel reports the thread's stack pointer and program counter, but not its frame pointer. So the stack is copied and searched: for
// return addresses, which point behind a call instruction, and for the first frame record, from which the chain of frame pointers leads
// outwards. What is found before the second record may be a remainder of an earlier call, and is marked as uncertain.
//
// Lifecycle of the copy: allocated and freed in `cplatform_read_sleeping_stack`.

#if defined(__linux__) && (defined(__x86_64__) || defined(__aarch64__))
#define _GNU_SOURCE
#include "CPlatform.h"
#include "code_addresses.h"

#include <link.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

enum { PAGE = 4096, MOST_PAGES = 64, MOST_RANGES = 512, MOST_UNCERTAIN = 6 };

struct range { uint64_t begin, end; };
struct ranges {
    int count;
    struct range all[MOST_RANGES];
};

static int add_code_of(struct dl_phdr_info *info, size_t size, void *context) {
    (void)size;
    struct ranges *ranges = context;
    for (int index = 0; index < info->dlpi_phnum && ranges->count < MOST_RANGES; index++) {
        const ElfW(Phdr) *header = &info->dlpi_phdr[index];
        if (header->p_type != PT_LOAD || (header->p_flags & (PF_X | PF_R)) != (PF_X | PF_R)) continue;
        uint64_t begin = info->dlpi_addr + header->p_vaddr;
        ranges->all[ranges->count++] = (struct range){begin, begin + header->p_memsz};
    }
    return 0;
}

// Copies memory of this process that another thread may be changing or unmapping. Returns the number of bytes up to the first that cannot
// be read.
static size_t copy_safely(void *to, uint64_t from, size_t size) {
    struct iovec local = {to, size}, remote[MOST_PAGES + 1];
    unsigned long count = 0;
    // "partial transfers apply at the granularity of iovec elements" (process_vm_readv(2)).
    for (uint64_t at = from; at < from + size; count++) {
        uint64_t end = (at / PAGE + 1) * PAGE;
        if (end > from + size) end = from + size;
        remote[count] = (struct iovec){(void *)at, end - at};
        at = end;
    }
    ssize_t copied = process_vm_readv(getpid(), &local, 1, remote, count, 0);
    return copied < 0 ? 0 : (size_t)copied;
}

static bool is_behind_call(const struct ranges *ranges, uint64_t address) {
    for (int index = 0; index < ranges->count; index++) {
        if (address < ranges->all[index].begin + 8 || address >= ranges->all[index].end) continue;
        unsigned char code[8];
        if (copy_safely(code, address - 8, 8) < 8) return false;
#if defined(__x86_64__)
        // CALL rel32, or CALL through a register or memory (FF /2) in its lengths.
        if (code[3] == 0xE8) return true;
        for (int length = 2; length <= 7; length++) {
            if (length != 4 && code[8 - length] == 0xFF && (code[9 - length] & 0x38) == 0x10) return true;
        }
        return code[4] == 0xFF && (code[5] & 0x38) == 0x10;
#else
        uint32_t instruction;
        memcpy(&instruction, code + 4, 4);
        return (instruction & 0xFC000000) == 0x94000000 || (instruction & 0xFFFFF000) == 0xD63F0000;
#endif
    }
    return false;
}

struct copy {
    const uint64_t *words;
    size_t count;
    uint64_t begin;
    const struct ranges *ranges;
};

// Where a frame record's pointer leads in the copy; 0 if it does not lead upwards in it.
static size_t index_above(const struct copy *copy, size_t index, uint64_t pointer) {
    if (pointer % 8 != 0 || pointer <= copy->begin + index * 8) return 0;
    size_t above = (pointer - copy->begin) / 8;
    return above + 1 < copy->count ? above : 0;
}

// A record, whose caller's record is one, too.
static bool is_chain(const struct copy *copy, size_t index) {
    for (int level = 0; level < 2; level++) {
        if (index + 1 >= copy->count) return false;
        if (!is_behind_call(copy->ranges, plain_code_address(copy->words[index + 1]))) return false;
        index = index_above(copy, index, copy->words[index]);
        if (index == 0) return false;
    }
    return true;
}

static void add(struct cplatform_stack *stack, uint64_t pc, bool is_uncertain) {
    if (stack->count == CPLATFORM_MOST_FRAMES) return;
    stack->is_uncertain[stack->count] = is_uncertain;
    stack->frames[stack->count++] = pc;
}

// Return addresses between two places of the stack.
static void add_uncertain(const struct copy *copy, size_t index, size_t end, struct cplatform_stack *stack) {
    for (int found = 0; index < end && found < MOST_UNCERTAIN; index++) {
        uint64_t pc = plain_code_address(copy->words[index]);
        if (!is_behind_call(copy->ranges, pc)) continue;
        add(stack, pc, true);
        found++;
    }
}

static void search(const struct copy *copy, struct cplatform_stack *stack) {
    size_t index = 0;
    while (index + 1 < copy->count && !is_chain(copy, index)) index++;
    add_uncertain(copy, 0, index, stack);
    // Ends: the chain leads upwards. The first record may be an earlier call's, which leads into the chain, too.
    bool is_first = true;
    while (index + 1 < copy->count) {
        uint64_t pc = plain_code_address(copy->words[index + 1]);
        if (!is_behind_call(copy->ranges, pc)) break;
        add(stack, pc, is_first);
        size_t above = index_above(copy, index, copy->words[index]);
        if (above == 0) break;
        // C functions without frame pointers, and the function that has called them, have no record.
        if (is_first) add_uncertain(copy, index + 2, above, stack);
        is_first = false;
        index = above;
    }
}

static bool still_sleeps(int32_t thread, const struct cplatform_thread_activity *then) {
    struct cplatform_thread_activity now;
    cplatform_thread_activity(thread, &now);
    return now.kind == then->kind && now.call == then->call && now.stack_pointer == then->stack_pointer &&
        now.program_counter == then->program_counter && now.first_argument == then->first_argument;
}

bool cplatform_read_sleeping_stack(
    int32_t thread, const struct cplatform_thread_activity *activity, struct cplatform_stack *stack) {
    stack->count = 0;
    if (activity->kind != CPLATFORM_THREAD_IN_CALL || activity->stack_pointer % 8 != 0) return false;
    struct ranges *ranges = calloc(1, sizeof(*ranges));
    uint64_t *words = malloc(MOST_PAGES * PAGE);
    if (ranges && words) {
        dl_iterate_phdr(add_code_of, ranges);
        size_t size = copy_safely(words, activity->stack_pointer, MOST_PAGES * PAGE);
        // A thread that has gone on may have changed the stack while it was copied.
        if (still_sleeps(thread, activity)) {
            struct copy copy = {words, size / 8, activity->stack_pointer, ranges};
            add(stack, activity->program_counter, false);
            search(&copy, stack);
        }
    }
    free(ranges);
    free(words);
    return stack->count > 0;
}
#endif
