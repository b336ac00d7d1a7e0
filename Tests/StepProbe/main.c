// Takes a backtrace of a thread at every instruction: eventloop-step-probe [--long]
//
// A child process has two threads. One runs code whose unwind tables are exact, missing or wrong; this process steps through it with ptrace. At
// each instruction the other thread takes the first one's backtrace, as the watchdog does: it sends the signal, whose handler runs at this
// instruction. The child must not end, every backtrace must be taken in time, and no frame may come from outside the stack, where a chain of
// frame records waits. Where tables are exact, the backtrace must be whole.
//
// Worlds: with and without an alternate stack of 2 KiB, which is smaller than the kernel's part of a signal may be; after
// `__register_frame`, as code that is made at run time calls it; and with the bytes of this program's own tables changed at random.
//
// The status is 0, 1 if something was found, or 77 if this system has no such processor, does not allow ptrace, or delays signals (ThreadSanitizer).

#define _GNU_SOURCE
#include "CStacks.h"

#include <stdio.h>

#if defined(__has_feature)
#if __has_feature(thread_sanitizer)
// It delivers signals later, at places of its own.
#define DELAYS_SIGNALS
#endif
#endif

#if defined(__linux__) && defined(__x86_64__) && !defined(DELAYS_SIGNALS)
#include <errno.h>
#include <link.h>
#include <linux/futex.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define ROUTINES(X)                                                                                                                    \
    X(epilogue) X(rax) X(rcx) X(rdx) X(skip) X(deref) X(far) X(empty) X(short) X(pick) X(unknown) X(restore) X(undefined) X(remember)   \
    X(itself) X(unframed)
#define DECLARE(name) long step_##name(long);
ROUTINES(DECLARE)
long step_exact(long), step_missing(long), step_wrong(long);
extern char never_called[], never_returned[];
extern void __register_frame(void *) __attribute__((weak));

enum { STACK = 256 * 1024, PAGE = 4096, SMALL_STACK = 2048, PATIENCE = 60 };

// What both processes see.
static struct shared {
    _Atomic uint32_t asked, answered;
    _Atomic int thread;
    bool is_taken;
    struct cstacks_stack stack;
    unsigned seed;
    bool spoils;
} *shared;

static int failures;
static long total;

// MARK: The child's stepped thread

static int compare(const void *one, const void *other) { return *(const int *)one - *(const int *)other; }

static long use_library(long count) {
    int numbers[8] = {5, 3, 8, 1, 7, 2, 6, 4};
    char text[100], copy[100];
    memset(text, 'a', sizeof(text));
    text[count % 90 + 5] = 0;
    memcpy(copy, text, sizeof(copy));
    qsort(numbers, 4, sizeof(int), compare);
    return (long)strlen(copy) + memcmp(text, copy, 50) + numbers[0] + (strchr(copy, 'b') != 0);
}

static long run_others(long count) {
    long sum = 0;
#define CALL(name) sum += step_##name(count);
    ROUTINES(CALL)
    return sum;
}

__attribute__((noinline)) static long drive(long (*body)(long), long count) {
    __asm__ volatile("int3");
    long result = body(count);
    __asm__ volatile("int3");
    return result;
}

struct world {
    const char *name;
    long (*body)(long);
    long count;
    bool has_small_stack, registers_frame, spoils, is_whole;
};

static void *step_through(void *context) {
    const struct world *world = context;
    if (world->has_small_stack) {
        static char room[SMALL_STACK] __attribute__((aligned(16)));
        stack_t small = {.ss_sp = room, .ss_size = sizeof(room)};
        if (sigaltstack(&small, 0) < 0) _exit(77);
    }
    if (world->registers_frame && __register_frame) {
        // A common entry, an entry for a function that is nowhere, and the end.
        static uint32_t frames[] = {12, 0, 0x01000001, 0x10, 0, 16, 20, 0x1000, 0, 0x10, 0, 0};
        __register_frame(frames);
    }
    atomic_store(&shared->thread, (int)syscall(SYS_gettid));
    // Until this process is attached.
    while (atomic_load(&shared->asked) == 0) {}
    drive(world->body, world->count);
    return 0;
}

// MARK: The child's other thread: the watchdog

static struct { uint8_t *begin; size_t size; uint8_t *saved; } tables;

// The tables of this program: from the header to the end of their segment.
static int find_tables(struct dl_phdr_info *info, size_t size, void *context) {
    (void)size, (void)context;
    for (int index = 0; index < info->dlpi_phnum; index++) {
        const ElfW(Phdr) *header = &info->dlpi_phdr[index], *part = info->dlpi_phdr;
        if (header->p_type != PT_GNU_EH_FRAME) continue;
        while (part->p_type != PT_LOAD || header->p_vaddr - part->p_vaddr >= part->p_memsz) part++;
        tables.begin = (uint8_t *)info->dlpi_addr + header->p_vaddr;
        tables.size = part->p_vaddr + part->p_memsz - header->p_vaddr;
    }
    return 1;
}

static void spoil_tables(void) {
    if (tables.begin == 0) {
        dl_iterate_phdr(find_tables, 0);
        uintptr_t first = (uintptr_t)tables.begin / PAGE * PAGE, end = ((uintptr_t)tables.begin + tables.size + PAGE - 1) / PAGE * PAGE;
        tables.saved = malloc(tables.size);
        if (mprotect((void *)first, end - first, PROT_READ | PROT_WRITE) < 0 || tables.saved == 0) _exit(3);
        memcpy(tables.saved, tables.begin, tables.size);
    }
    if (rand_r(&shared->seed) % 8 == 0) memcpy(tables.begin, tables.saved, tables.size);
    for (int count = rand_r(&shared->seed) % 64; count > 0; count--) {
        size_t place = (size_t)rand_r(&shared->seed) % (rand_r(&shared->seed) % 4 ? tables.size : 16);
        tables.begin[place] = (uint8_t)rand_r(&shared->seed);
    }
}

static void wait_at(_Atomic uint32_t *word, uint32_t seen) {
    struct timespec time = {.tv_sec = PATIENCE};
    syscall(SYS_futex, word, FUTEX_WAIT, seen, &time, 0, 0);
}

static void answer_requests(const struct world *world) {
    uint32_t answered = 1;
    while (true) {  // ends: the process is killed
        for (uint32_t seen; (seen = atomic_load(&shared->asked)) <= answered;) wait_at(&shared->asked, seen);
        answered++;
        if (world->spoils) spoil_tables();
        shared->is_taken = cstacks_interrupt_for_stack(atomic_load(&shared->thread), PATIENCE * 1000, &shared->stack);
        atomic_store(&shared->answered, answered);
        syscall(SYS_futex, &shared->answered, FUTEX_WAKE, 1, 0, 0, 0);
    }
}

static void be_child(const struct world *world) {
    // Above the stack: records that lead to each other, with return addresses.
    char *memory = mmap(0, STACK + 2 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    mprotect(memory, PAGE, PROT_NONE);
    uint64_t *above = (uint64_t *)(memory + PAGE + STACK);
    for (int index = 0; index < PAGE / 8; index += 2) {
        above[index] = (uint64_t)&above[index + 2 < PAGE / 8 ? index + 2 : 0];
        above[index + 1] = (uint64_t)never_returned;
    }
    pthread_attr_t attributes;
    pthread_t thread;
    pthread_attr_init(&attributes);
    pthread_attr_setstack(&attributes, memory + PAGE, STACK);
    if (pthread_create(&thread, &attributes, step_through, (void *)world) != 0) _exit(3);
    answer_requests(world);
}

// MARK: The stepping process

static void report(const struct world *world, uint64_t pc, const char *what) {
    failures++;
    printf("%s, at 0x%llx: %s\n", world->name, (unsigned long long)(pc - (uint64_t)never_called), what);
    for (int index = 0; index < shared->stack.count; index++) {
        printf("  #%d 0x%llx%s\n", index, (unsigned long long)(shared->stack.frames[index] - (uint64_t)never_called),
               shared->stack.is_uncertain[index] ? " ?" : "");
    }
}

// The stepped thread's next stop. False if the child has ended.
static bool wait_for_stop(int thread, int *status) { return waitpid(thread, status, __WALL) == thread && WIFSTOPPED(*status); }

static bool is_pending(int child, int thread, int signal) {
    char path[64], text[4096];
    snprintf(path, sizeof(path), "/proc/%d/task/%d/status", child, thread);
    FILE *file = fopen(path, "r");
    if (file == 0) return false;
    size_t length = fread(text, 1, sizeof(text) - 1, file);
    fclose(file);
    text[length] = 0;
    const char *line = strstr(text, "\nSigPnd:");
    return line && (strtoull(line + 8, 0, 16) >> (signal - 1) & 1);
}

// Runs the handler at this instruction. False if the thread did not come back to it.
static bool run_handler(const struct world *world, int thread, const struct user_regs_struct *before) {
    int status, signal = 0;
    bool returns = false;
    for (int stops = 0; stops < 200; stops++) {
        if (ptrace(PTRACE_SYSCALL, thread, 0, signal) < 0 || !wait_for_stop(thread, &status)) break;
        signal = WSTOPSIG(status);
        if (signal != (SIGTRAP | 0x80)) {
            if (signal == SIGURG || signal == SIGPROF) continue;
            report(world, before->rip, strsignal(signal));
            return false;
        }
        signal = 0;
        struct user_regs_struct now;
        ptrace(PTRACE_GETREGS, thread, 0, &now);
        if (returns) {
            if (now.rip == before->rip && now.rsp == before->rsp && now.rbp == before->rbp && now.rax == before->rax) return true;
            report(world, before->rip, "the handler changed registers");
            return false;
        }
        returns = now.orig_rax == SYS_rt_sigreturn;
    }
    report(world, before->rip, "the thread has ended");
    return false;
}

static bool contains(uint64_t from, uint64_t size, bool only_certain) {
    for (int index = 0; index < shared->stack.count; index++) {
        if (shared->stack.is_uncertain[index] && only_certain) continue;
        if (shared->stack.frames[index] >= from && shared->stack.frames[index] < from + size) return true;
    }
    return false;
}

static bool take_backtrace(const struct world *world, int child, int thread, const struct user_regs_struct *registers) {
    uint32_t request = atomic_fetch_add(&shared->asked, 1) + 1;
    syscall(SYS_futex, &shared->asked, FUTEX_WAKE, 1, 0, 0, 0);
    while (!is_pending(child, thread, SIGURG)) {  // ends: the signal is sent, or the child has ended
        if (atomic_load(&shared->answered) == request || waitpid(child, 0, WNOHANG) != 0) {
            report(world, registers->rip, "no signal was sent");
            return false;
        }
    }
    if (!run_handler(world, thread, registers)) return false;
    while (atomic_load(&shared->answered) != request) wait_at(&shared->answered, request - 1);
    if (!shared->is_taken || shared->stack.count == 0 || shared->stack.frames[0] != registers->rip) {
        report(world, registers->rip, "no backtrace, or one of another instruction");
    } else if (contains((uint64_t)never_returned, 1, false)) {
        report(world, registers->rip, "a frame from outside the stack");
    } else if (world->is_whole && !contains((uint64_t)drive, 256, true)) {
        report(world, registers->rip, "the backtrace ends too early");
    }
    return true;
}

static void step(const struct world *world, int child, int thread, long most) {
    int status;
    if (ptrace(PTRACE_SEIZE, thread, 0, PTRACE_O_TRACESYSGOOD | PTRACE_O_EXITKILL) < 0) {
        printf("ptrace: %s\n", strerror(errno));
        exit(77);
    }
    atomic_store(&shared->asked, 1);
    if (!wait_for_stop(thread, &status)) return report(world, 0, "the thread has ended");
    for (long count = 0; count < most; count++) {
        if (ptrace(PTRACE_SINGLESTEP, thread, 0, 0) < 0 || !wait_for_stop(thread, &status)) {
            return report(world, 0, "the thread has ended");
        }
        struct user_regs_struct registers;
        ptrace(PTRACE_GETREGS, thread, 0, &registers);
        if (WSTOPSIG(status) != SIGTRAP) return report(world, registers.rip, strsignal(WSTOPSIG(status)));
        // The second breakpoint.
        if ((ptrace(PTRACE_PEEKTEXT, thread, (void *)(registers.rip - 1), 0) & 0xFF) == 0xCC && count > 8 &&
            registers.rip - (uint64_t)drive < 256) return;
        total++;
        if (!take_backtrace(world, child, thread, &registers)) return;
    }
}

static void run(const struct world *world, long most) {
    unsigned seed = shared->seed;
    memset(shared, 0, sizeof(*shared));
    shared->seed = seed;
    fflush(stdout);
    int child = fork();
    if (child == 0) {
        be_child(world);
        _exit(0);
    }
    int thread;
    while ((thread = atomic_load(&shared->thread)) == 0) {  // ends: the thread has begun, or the child has ended
        int status;
        if (waitpid(child, &status, WNOHANG) == child) exit(WIFEXITED(status) ? WEXITSTATUS(status) : 1);
    }
    alarm(PATIENCE * 10);
    step(world, child, thread, most);
    kill(child, SIGKILL);
    while (waitpid(-1, 0, __WALL) > 0 || errno == EINTR) {}  // ends: ECHILD
}

int main(int argc, char **argv) {
    bool is_long = argc > 1 && strcmp(argv[1], "--long") == 0;
    long factor = is_long ? 20 : 1;
    // Whoever starts this may block signals, as threads of Dispatch do.
    sigset_t none;
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, 0);
    shared = mmap(0, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    shared->seed = is_long ? (unsigned)time(0) : 1;
    printf("seed %u\n", shared->seed);
    const struct world bodies[] = {
        {.name = "exact", .body = step_exact, .count = factor, .is_whole = true},
        {.name = "missing", .body = step_missing, .count = factor},
        {.name = "wrong", .body = step_wrong, .count = factor},
        {.name = "hand-written", .body = run_others, .count = 1},
        {.name = "library", .body = use_library, .count = factor},
        {.name = "spoiled", .body = step_exact, .count = factor * 4, .spoils = true},
    };
    for (size_t index = 0; index < sizeof(bodies) / sizeof(*bodies); index++) {
        for (int setting = 0; setting < (is_long ? 4 : 2); setting++) {
            struct world world = bodies[index];
            char name[64];
            // The short form has both in one.
            world.has_small_stack = setting & 1;
            world.registers_frame = is_long ? setting & 2 : setting & 1;
            snprintf(name, sizeof(name), "%s%s%s", world.name, world.has_small_stack ? ", small alternate stack" : "",
                     world.registers_frame ? ", registered frame" : "");
            world.name = name;
            run(&world, is_long ? 1000000 : 400);
        }
    }
    printf("%ld backtraces, %d failures\n", total, failures);
    return failures > 0;
}

#else
int main(void) {
    printf("not here\n");
    return 77;
}
#endif
