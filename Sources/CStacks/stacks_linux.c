// Stacks of running threads: a signal to the thread, whose handler copies registers and stack. The thread that asked walks the copy.
//
// The signal is SIGURG. Its default action is to ignore it, so one that arrives late, or in a program that the process executes, does no
// harm; the C library does not use it, and debuggers pass it on. A thread that blocks it gets SIGPROF: Dispatch blocks all signals on its
// threads but SIGPROF and those that report a fault, and a thread that a task starts inherits that. A thread that blocks both gets none.
// The signal carries a value, by which the handler knows it among other code's.
//
// The handler is that of signals.c, which is installed for the time of one sample (`cplatform_hold_signal`), because a handler makes a system
// call that waits return early, which an ignored signal does not. If a signal has not arrived by the end of its sample, the handler stays until a
// later sample ends and finds none pending: SIGPROF without a handler would end the process, and other code's handler would see what is not its own.
//
// The handler takes no lock, reads nothing but its arguments, and needs a few hundred bytes of stack: what it makes is static. An unwinder
// in it would read what inexact tables lead to, and would lock where a program registers frames of its own (decision 38).
//
// Lifecycle of the sample: static. The handler owns it between TAKING and DONE, the thread that asked between DONE and FREE.

#if defined(__linux__) && (defined(__x86_64__) || defined(__aarch64__))
#define _GNU_SOURCE
#include "CStacks.h"
#include "CPlatform.h"
#include "unwinding.h"

#include <errno.h>
#include <linux/futex.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <time.h>
#include <ucontext.h>
#include <unistd.h>

enum { PAGE = 4096 };
enum { FREE, REQUESTED, TAKING, DONE };
// In the upper half of the signal's value.
#define MARK 0x57A11ED5u

// The state in the lower two bits, above them the number of the sample: a signal that arrives too late finds another number.
static _Atomic uint32_t word;
static struct {
    struct cstacks_registers registers;
    uint64_t begin;
    size_t size;
    uint64_t words[CSTACKS_MOST_BYTES / 8];
    struct iovec target, pages[CSTACKS_MOST_BYTES / PAGE + 1];
} sample;

// The threads to which SIGURG, or SIGPROF, was sent and had not arrived at the end of its sample. Touched by the thread whose turn it is. They
// are remembered, because a list of all threads may lack some while others end.
enum { MOST_LATE = 16 };
struct late { int32_t threads[MOST_LATE]; int count; };
static struct late late_signals[2];

static void wait_while(uint32_t seen, int64_t nanoseconds) {
    struct timespec time = {.tv_sec = nanoseconds / 1000000000, .tv_nsec = nanoseconds % 1000000000};
    syscall(SYS_futex, &word, FUTEX_WAIT_PRIVATE, seen, &time, 0, 0);
}

// MARK: In signal context, on the thread that is looked at. Registers, one copy by the kernel, and a futex: nothing else.

#if defined(__x86_64__)
// In the order of the numbers in unwind tables.
static const int registers_of_context[] = {
    REG_RAX, REG_RDX, REG_RCX, REG_RBX, REG_RSI, REG_RDI, REG_RBP, REG_RSP,
    REG_R8, REG_R9, REG_R10, REG_R11, REG_R12, REG_R13, REG_R14, REG_R15,
};
#endif

static uint64_t register_of(const ucontext_t *context, int number) {
#if defined(__x86_64__)
    return (uint64_t)context->uc_mcontext.gregs[registers_of_context[number]];
#else
    return number == CSTACKS_SP ? context->uc_mcontext.sp : context->uc_mcontext.regs[number];
#endif
}

static uint64_t program_counter_of(const ucontext_t *context) {
#if defined(__x86_64__)
    return (uint64_t)context->uc_mcontext.gregs[REG_RIP];
#else
    return context->uc_mcontext.pc;
#endif
}

// The C library puts the thread's control block on top of the stack that it makes, so the stack ends there. The stack of the first thread and
// those that a program changes to are elsewhere, and end where memory cannot be read.
static uint64_t end_of_stack(uint64_t sp) {
    uint64_t block = (uint64_t)(uintptr_t)pthread_self(), most = sp + CSTACKS_MOST_BYTES;
    return block > sp && block < most ? block : most;
}

// The kernel copies, and stops where the memory cannot be read. Where it refuses to, the piece is empty.
static void copy_stack(uint64_t sp) {
    uint64_t end = end_of_stack(sp), at = sp;
    unsigned long count = 0;
    while (at < end) {  // ends: a page further each turn
        uint64_t page_end = (at / PAGE + 1) * PAGE;
        if (page_end > end) page_end = end;
        sample.pages[count].iov_base = (void *)at;
        sample.pages[count++].iov_len = page_end - at;
        at = page_end;
    }
    sample.target.iov_base = sample.words;
    sample.target.iov_len = end - sp;
    long copied = syscall(SYS_process_vm_readv, getpid(), &sample.target, 1ul, sample.pages, count, 0ul);
    sample.size = copied < 0 ? 0 : (size_t)copied;
}

static void take_sample(const ucontext_t *context) {
    struct cstacks_registers *registers = &sample.registers;
    registers->known = 0;
    // The last one of both processors is no register of its own.
    for (int number = 0; number < CSTACKS_REGISTERS - 1; number++) {
        registers->values[number] = register_of(context, number);
        registers->known |= (uint64_t)1 << number;
    }
    registers->pc = program_counter_of(context);
    sample.begin = registers->values[CSTACKS_SP];
    copy_stack(sample.begin);
}

// Takes the signal if it is one of these.
static bool take_signal(const void *pointer, const void *context) {
    const siginfo_t *info = pointer;
    uint64_t value = (uint64_t)(uintptr_t)info->si_value.sival_ptr;
    if (info->si_code != SI_QUEUE || value >> 32 != MARK || info->si_pid != getpid()) return false;
    uint32_t mine = (uint32_t)value, request = mine;
    // Too late: the sample was given up.
    if (!atomic_compare_exchange_strong(&word, &request, (mine & ~3u) | TAKING)) return true;
    int saved = errno;
    take_sample(context);
    atomic_store(&word, (mine & ~3u) | DONE);
    syscall(SYS_futex, &word, FUTEX_WAKE_PRIVATE, 1, 0, 0, 0);
    errno = saved;
    return true;
}

// MARK: On the watchdog's thread

// The signal that the thread does not block; 0 if it blocks both.
static int deliverable_signal(int32_t thread) {
    if (!cplatform_thread_blocks_signal(thread, SIGURG)) return SIGURG;
    return cplatform_thread_blocks_signal(thread, SIGPROF) ? 0 : SIGPROF;
}

static int64_t now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (int64_t)time.tv_sec * 1000000000 + time.tv_nsec;
}

static bool send_request(int32_t thread, int signal, uint32_t request) {
    siginfo_t info;
    memset(&info, 0, sizeof(info));
    info.si_signo = signal;
    info.si_code = SI_QUEUE;
    info.si_pid = getpid();
    info.si_uid = getuid();
    info.si_value.sival_ptr = (void *)(uintptr_t)((uint64_t)MARK << 32 | request);
    return syscall(SYS_rt_tgsigqueueinfo, getpid(), thread, signal, &info) == 0;
}

static struct late *late_of(int signal) { return &late_signals[signal == SIGPROF]; }

// The kernel takes a signal from the pending ones together with the handler that it will call, so one that is not pending is safe.
static void forget_arrived(int signal) {
    struct late *late = late_of(signal);
    int left = 0;
    for (int index = 0; index < late->count; index++) {
        if (cplatform_is_signal_pending(late->threads[index], signal)) late->threads[left++] = late->threads[index];
    }
    late->count = left;
}

// The kernel keeps one signal of a kind for a thread: behind a late one, none arrives.
static bool may_send(int32_t thread, int signal) {
    const struct late *late = late_of(signal);
    forget_arrived(signal);
    for (int index = 0; index < late->count; index++) {
        if (late->threads[index] == thread) return false;
    }
    return late->count < MOST_LATE;
}

static void release(int32_t thread, int signal, bool has_arrived) {
    struct late *late = late_of(signal);
    if (!has_arrived) late->threads[late->count++] = thread;
    forget_arrived(signal);
    if (late->count == 0) cplatform_release_signal(signal);
}

static void unwind_sample(const struct code_ranges *ranges, struct cstacks_stack *stack) {
    struct cstacks_piece piece = {sample.words, sample.size / 8, sample.begin, ranges};
    cstacks_unwind(&piece, sample.registers, stack);
}

static bool take_stack(int32_t thread, int milliseconds, const struct code_ranges *ranges, struct cstacks_stack *stack) {
    uint32_t last = atomic_load(&word);
    // A handler that began long ago still walks: its thread gets no processor.
    if ((last & 3) == TAKING || thread == (int32_t)syscall(SYS_gettid)) return false;
    uint32_t number = (last & ~3u) + 4, request = number | REQUESTED;
    if (number == 0) request = (number = 4) | REQUESTED;
    int signal = deliverable_signal(thread);
    if (signal == 0 || !may_send(thread, signal) || !cplatform_hold_signal(signal, take_signal)) return false;
    atomic_store(&word, request);
    if (!send_request(thread, signal, request)) {
        atomic_store(&word, number | FREE);
        release(thread, signal, true);
        return false;
    }
    int64_t end = now() + (int64_t)milliseconds * 1000000;
    // A handler that has begun gets ten times as long.
    int64_t last_end = now() + (int64_t)milliseconds * 10000000;
    bool has_arrived;
    while (true) {  // ends: the handler is done, or the time is over
        uint32_t seen = atomic_load(&word);
        has_arrived = (seen & 3) != REQUESTED;
        if ((seen & 3) == DONE) {
            unwind_sample(ranges, stack);
            atomic_store(&word, number | FREE);
            break;
        }
        int64_t left = ((seen & 3) == TAKING ? last_end : end) - now();
        if (left > 0) {
            wait_while(seen, left);
        } else if ((seen & 3) == TAKING || atomic_compare_exchange_strong(&word, &seen, number | FREE)) {
            break;
        }
    }
    release(thread, signal, has_arrived);
    return stack->count > 0;
}

// The watchdog has one thread; tests have more.
static pthread_mutex_t turn = PTHREAD_MUTEX_INITIALIZER;

bool cstacks_interrupt_for_stack(int32_t thread, int milliseconds, struct cstacks_stack *stack) {
    stack->count = 0;
    // Made before the sample, so that none is taken in vain.
    struct code_ranges *ranges = malloc(sizeof(*ranges));
    if (ranges == 0) return false;
    cstacks_find_code(ranges);
    pthread_mutex_lock(&turn);
    bool is_taken = take_stack(thread, milliseconds, ranges, stack);
    pthread_mutex_unlock(&turn);
    free(ranges);
    return is_taken;
}

void cstacks_forget_stacks(void) {
    // Another thread may have held it.
    pthread_mutex_init(&turn, 0);
    uint32_t last = atomic_load(&word);
    // No sample was ever taken.
    if (last == 0) return;
    atomic_store(&word, (last & ~3u) | FREE);
    // fork(2): "The child's set of pending signals is initially empty". signals.c restores the earlier actions.
    late_signals[0].count = late_signals[1].count = 0;
}

#endif
