// Stacks of running threads: a signal to the thread, whose handler walks its own stack.
//
// The signal is SIGURG. Its default action is to ignore it, so one that arrives late, or in a program that the process executes, does no
// harm; the C library does not use it, and debuggers pass it on. A thread that blocks it gets SIGPROF: Dispatch blocks all signals on its
// threads but SIGPROF and those that report a fault, and a thread that a task starts inherits that. A thread that blocks both gets none.
// The signal carries a value, by which the handler knows it among other code's.
//
// The handler is installed for the time of one sample, because a handler makes a system call that waits return early, which an ignored
// signal does not. A SIGPROF without a handler would end the process, so its handler stays if one was sent that has not arrived. It calls nothing that takes a lock: with glibc since 2.35 the unwinder finds its tables through `_dl_find_object`,
// which is async-signal-safe ("This function is async-signal-safe", glibc's manual, Dynamic Linker Introspection). Elsewhere, and where a
// function has no unwind table, it follows frame pointers, which Swift code always has, and checks each page before it reads from it.
//
// Lifecycle of the sample: static. The handler owns it between TAKING and DONE.

#if defined(__linux__) && (defined(__x86_64__) || defined(__aarch64__))
#define _GNU_SOURCE
#include "CPlatform.h"
#include "code_addresses.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <ucontext.h>
#include <unistd.h>
#include <unwind.h>

// Absent with an old C library or another unwinder.
struct dl_find_object;
extern int _dl_find_object(void *address, struct dl_find_object *result) __attribute__((weak));
extern _Unwind_Reason_Code _Unwind_Backtrace(_Unwind_Trace_Fn body, void *context) __attribute__((weak));

enum { FREE, REQUESTED, TAKING, DONE };
// In the upper half of the signal's value.
#define MARK 0x57A11ED5u

// The state in the lower two bits, above them the number of the sample: a signal that arrives too late finds another number.
static _Atomic uint32_t word;
static struct cplatform_stack sample;
// What was installed before ours, for SIGURG and SIGPROF.
static struct sigaction earlier[2];

// SIGPROFs that were sent, and those that have arrived. Fewer arrive if one was sent to a thread that had not taken the one before.
static _Atomic uint32_t sent, arrived;

static struct sigaction *before(int signal) { return &earlier[signal == SIGPROF]; }

static void wait_while(uint32_t seen, int64_t nanoseconds) {
    struct timespec time = {.tv_sec = nanoseconds / 1000000000, .tv_nsec = nanoseconds % 1000000000};
    syscall(SYS_futex, &word, FUTEX_WAIT_PRIVATE, seen, &time, 0, 0);
}

// MARK: In signal context, on the thread that is looked at

struct registers { uint64_t pc, sp, fp; };

static struct registers registers_of(const void *context) {
    const ucontext_t *user = context;
#if defined(__x86_64__)
    const greg_t *values = user->uc_mcontext.gregs;
    return (struct registers){(uint64_t)values[REG_RIP], (uint64_t)values[REG_RSP], (uint64_t)values[REG_RBP]};
#else
    return (struct registers){user->uc_mcontext.pc, user->uc_mcontext.sp, user->uc_mcontext.regs[29]};
#endif
}

// Whether the eight bytes at an aligned address can be read. "EFAULT: The set or oldset argument points outside the process's allocated
// address space" (sigprocmask(2)); the kernel reads the set before it finds that there is no such operation (EINVAL).
static bool is_readable(uint64_t address) {
    return syscall(SYS_rt_sigprocmask, -1, (const void *)address, (void *)0, (size_t)8) < 0 && errno != EFAULT;
}

static void add_frame(struct cplatform_stack *stack, uint64_t pc) {
    if (stack->count == CPLATFORM_MOST_FRAMES) return;
    stack->is_uncertain[stack->count] = false;
    stack->frames[stack->count++] = pc;
}

// A frame record is the caller's frame pointer and the return address.
__attribute__((no_sanitize("address", "thread", "undefined")))
static void follow_frame_pointers(struct cplatform_stack *stack, uint64_t fp, uint64_t above) {
    uint64_t known_page = 0;
    // Ends: each record is above the one before it.
    while (stack->count < CPLATFORM_MOST_FRAMES && fp > above && fp % 8 == 0) {
        for (uint64_t address = fp; address <= fp + 8; address += 8) {
            if (address >> 12 == known_page) continue;
            if (!is_readable(address)) return;
            known_page = address >> 12;
        }
        const volatile uint64_t *record = (const volatile uint64_t *)fp;
        uint64_t pc = plain_code_address(record[1]);
        if (pc < 4096) return;
        add_frame(stack, pc);
        above = fp;
        fp = record[0];
    }
}

struct walk {
    struct cplatform_stack *stack;
    uint64_t interrupted;
    bool has_begun;
    // Of the last frame.
    uint64_t pc, fp, cfa;
};

static _Unwind_Reason_Code visit(struct _Unwind_Context *context, void *pointer) {
    struct walk *walk = pointer;
    int is_exact = 0;
    walk->pc = plain_code_address(_Unwind_GetIPInfo(context, &is_exact));
    // Frames of the handler, and the trampoline that called it.
    if (!walk->has_begun && walk->pc != walk->interrupted) return _URC_NO_REASON;
    walk->has_begun = true;
    if (walk->pc == 0) return _URC_NO_REASON;
#if defined(__x86_64__)
    walk->fp = _Unwind_GetGR(context, 6);
#else
    walk->fp = _Unwind_GetGR(context, 29);
#endif
    walk->cfa = _Unwind_GetCFA(context);
    add_frame(walk->stack, walk->pc);
    return walk->stack->count == CPLATFORM_MOST_FRAMES ? _URC_NORMAL_STOP : _URC_NO_REASON;
}

static void walk_stack(struct cplatform_stack *stack, const void *context) {
    struct registers registers = registers_of(context);
    stack->count = 0;
    struct walk walk = {.stack = stack, .interrupted = registers.pc};
    if (_dl_find_object && _Unwind_Backtrace) {
        _Unwind_Backtrace(visit, &walk);
        // The outermost frame has no caller: its address is zero. Otherwise the last frame has no table.
        if (walk.has_begun && (walk.pc == 0 || stack->count == CPLATFORM_MOST_FRAMES)) return;
    }
    if (!walk.has_begun) {
        add_frame(stack, registers.pc);
        walk = (struct walk){.fp = registers.fp, .cfa = registers.sp};
    }
    follow_frame_pointers(stack, walk.fp, walk.cfa - 8);
}

static void call_other_handler(int signal, siginfo_t *info, void *context) {
    // Other code may have put ours under its own, and call it from there.
    static _Thread_local bool is_calling;
    if (is_calling) return;
    is_calling = true;
    struct sigaction other = *before(signal);
    if (other.sa_flags & SA_SIGINFO) {
        other.sa_sigaction(signal, info, context);
    } else if (other.sa_handler != SIG_DFL && other.sa_handler != SIG_IGN) {
        other.sa_handler(signal);
    }
    is_calling = false;
}

bool cplatform_handle_stack_signal(const void *pointer, const void *context) {
    const siginfo_t *info = pointer;
    uint64_t value = (uint64_t)(uintptr_t)info->si_value.sival_ptr;
    if (info->si_code != SI_QUEUE || value >> 32 != MARK || info->si_pid != getpid()) return false;
    uint32_t mine = (uint32_t)value, request = mine;
    if (info->si_signo == SIGPROF) atomic_fetch_add(&arrived, 1);
    // Too late: the sample was given up.
    if (!atomic_compare_exchange_strong(&word, &request, (mine & ~3u) | TAKING)) return true;
    int saved = errno;
    walk_stack(&sample, context);
    atomic_store(&word, (mine & ~3u) | DONE);
    syscall(SYS_futex, &word, FUTEX_WAKE_PRIVATE, 1, 0, 0, 0);
    errno = saved;
    return true;
}

static void handle(int signal, siginfo_t *info, void *context) {
    if (!cplatform_handle_stack_signal(info, context)) call_other_handler(signal, info, context);
}

// MARK: On the watchdog's thread

static _Unwind_Reason_Code visit_nothing(struct _Unwind_Context *context, void *pointer) {
    (void)context;
    (void)pointer;
    return _URC_NORMAL_STOP;
}

static bool is_ours(const struct sigaction *action) { return (action->sa_flags & SA_SIGINFO) && action->sa_sigaction == handle; }

static bool install(int signal) {
    // Binds the unwinder's functions, so that the handler does not call the dynamic linker.
    if (_dl_find_object && _Unwind_Backtrace) _Unwind_Backtrace(visit_nothing, 0);
    struct sigaction ours, present;
    if (sigaction(signal, 0, &present) < 0) return false;
    // Ours was left because a signal did not arrive, or other code has restored it, which found it during an earlier sample.
    if (is_ours(&present)) return true;
    *before(signal) = present;
    memset(&ours, 0, sizeof(ours));
    ours.sa_mask = present.sa_mask;
    ours.sa_sigaction = handle;
    ours.sa_flags = SA_SIGINFO | SA_RESTART | SA_ONSTACK;
    if (sigaction(signal, &ours, &present) < 0) return false;
    *before(signal) = present;
    return true;
}

static void uninstall(int signal) {
    struct sigaction replaced;
    if (signal == SIGPROF && atomic_load(&sent) != atomic_load(&arrived)) return;
    if (sigaction(signal, before(signal), &replaced) == 0 && !is_ours(&replaced)) sigaction(signal, &replaced, 0);
}

// The signal that the thread does not block; 0 if it blocks both.
static int deliverable_signal(int32_t thread) {
    char path[64], text[4096];
    snprintf(path, sizeof(path), "/proc/self/task/%d/status", (int)thread);
    int file = open(path, O_RDONLY | O_CLOEXEC);
    if (file < 0) return 0;
    ssize_t length = read(file, text, sizeof(text) - 1);
    close(file);
    text[length < 0 ? 0 : length] = 0;
    // proc(5): "SigBlk: ... Mask (expressed in hexadecimal) indicating signals being blocked".
    const char *line = strstr(text, "\nSigBlk:");
    if (line == 0) return 0;
    uint64_t blocked = strtoull(line + 8, 0, 16);
    if (!(blocked >> (SIGURG - 1) & 1)) return SIGURG;
    return blocked >> (SIGPROF - 1) & 1 ? 0 : SIGPROF;
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
    if (signal == SIGPROF) atomic_fetch_add(&sent, 1);
    if (syscall(SYS_rt_tgsigqueueinfo, getpid(), thread, signal, &info) == 0) return true;
    if (signal == SIGPROF) atomic_fetch_sub(&sent, 1);
    return false;
}

static bool take_stack(int32_t thread, int milliseconds, struct cplatform_stack *stack) {
    uint32_t last = atomic_load(&word);
    // A handler that began long ago still walks: its thread gets no processor.
    if ((last & 3) == TAKING || thread == cplatform_thread_id()) return false;
    uint32_t number = (last & ~3u) + 4, request = number | REQUESTED;
    if (number == 0) request = (number = 4) | REQUESTED;
    int signal = deliverable_signal(thread);
    if (signal == 0 || !install(signal)) return false;
    atomic_store(&word, request);
    if (!send_request(thread, signal, request)) {
        atomic_store(&word, number | FREE);
        uninstall(signal);
        return false;
    }
    int64_t end = now() + (int64_t)milliseconds * 1000000;
    // A handler that has begun gets ten times as long.
    int64_t last_end = now() + (int64_t)milliseconds * 10000000;
    while (true) {  // ends: the handler is done, or the time is over
        uint32_t seen = atomic_load(&word);
        if ((seen & 3) == DONE) {
            *stack = sample;
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
    uninstall(signal);
    return stack->count > 0;
}

// The watchdog has one thread; tests have more.
static pthread_mutex_t turn = PTHREAD_MUTEX_INITIALIZER;

bool cplatform_interrupt_for_stack(int32_t thread, int milliseconds, struct cplatform_stack *stack) {
    stack->count = 0;
    pthread_mutex_lock(&turn);
    bool is_taken = take_stack(thread, milliseconds, stack);
    pthread_mutex_unlock(&turn);
    return is_taken;
}

void cplatform_forget_stacks_after_fork(void) {
    // Another thread may have held it.
    pthread_mutex_init(&turn, 0);
    uint32_t last = atomic_load(&word);
    // No sample was ever taken.
    if (last == 0) return;
    atomic_store(&word, (last & ~3u) | FREE);
    // fork(2): "The child's set of pending signals is initially empty".
    atomic_store(&sent, atomic_load(&arrived));
    static const int signals[] = {SIGURG, SIGPROF};
    for (int index = 0; index < 2; index++) {
        struct sigaction present;
        if (sigaction(signals[index], 0, &present) == 0 && is_ours(&present)) sigaction(signals[index], before(signals[index]), 0);
    }
}

#endif
