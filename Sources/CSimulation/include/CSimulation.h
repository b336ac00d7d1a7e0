// The scheduler of a simulation, and the functions of the Swift runtime and of libc that it replaces. Linux only; elsewhere every function
// exists, `csim_is_supported` returns false, and the others must not be called.
//
// Lifecycle of a run: `csim_run_create` makes it, one thread enters it with `csim_enter`, drives it with `csim_advance` and leaves it;
// `csim_run_finish` ends it. Other threads only call into it through the hooks of the runtime, which take its lock.
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#if defined(__has_feature)
#if __has_feature(thread_sanitizer) || __has_feature(address_sanitizer) || __has_feature(memory_sanitizer)
#define CSIM_SANITIZED 1
#endif
#endif
// Other libraries for Linux have no `random_r`. <stdint.h> says which one this is.
#if defined(__linux__) && defined(__GLIBC__) && defined(__LP64__) && !defined(CSIM_SANITIZED)
#define CSIM_SUPPORTED 1
#endif

typedef struct csim_run csim_run;

typedef struct csim_executor {
    void *identity;
    void *implementation;
} csim_executor;

/// What an entry of the list of ready work is.
enum csim_kind { CSIM_POOL = 0, CSIM_MAIN = 1, CSIM_HOP = 2, CSIM_LOOP = 3, CSIM_EVENT = 4 };

enum csim_strategy { CSIM_FIRST_COME = 0, CSIM_RANDOM = 1, CSIM_PRIORITIES = 2 };

/// Why `csim_advance` returned: somebody asked it to, nothing is ready and no timer is set, the limit of steps, or a schedule that does not
/// fit.
enum csim_result { CSIM_STOPPED = 0, CSIM_IDLE = 1, CSIM_LIMIT = 2, CSIM_MISFIT = 3 };

/// A choice other than the first ready entry. `ready` entries were there; 0: not known.
typedef struct csim_choice {
    uint32_t step, choice, ready;
} csim_choice;

/// What a task does, for the trace.
enum csim_event {
    CSIM_BEGINS = 1,     // of a step
    CSIM_ENDS = 2,       // of a step
    CSIM_CREATES = 3,    // a task
    CSIM_RESUMES = 4,    // a task or an actor's queue becomes ready
    CSIM_HOPS = 5,       // to another executor
    CSIM_SLEEPS = 6,
    CSIM_FINISHES = 7,   // the task
};

typedef struct csim_trace_event {
    int what;
    int kind;
    uint32_t task, other;
    void *function;
    uint64_t time;
    csim_executor executor;
} csim_trace_event;

typedef struct csim_task_state {
    uint32_t number, process;
    const char *name;
    void *created_in;
    /// 0 nothing known, 1 another task's value, 2 a continuation, 3 a task group, 4 it is ready, 5 a loop of another thread.
    int waits_for;
    uint32_t other;
    /// The functions that it returns through, innermost first; null after the last.
    void *frames[16];
} csim_task_state;

/// What a run asks of its owner. All are called on the run's thread.
typedef struct csim_callbacks {
    void *context;
    /// After each step, if `csim_set_checked`.
    void (*after_step)(void *context);
    void (*run_event)(void *context, uint64_t event);
    void (*run_loop)(void *context);
    bool (*loop_has_work)(void *context);
    uint64_t (*loop_next)(void *context);
    void (*time_moved)(void *context, uint64_t now);
    /// A call that leaves the simulation. Does not return if the thread must not go on.
    void (*escape)(void *context, const char *call, void *const *callers, int count, bool blocks);
    /// Whether an executor of the program, at which the task goes on, is a loop of another thread. If the run does not allow that escape, the task
    /// never runs on. Of the task, only what identifies it is set.
    bool (*leaves)(void *context, const csim_task_state *task, csim_executor to);
    void (*trace)(void *context, const csim_trace_event *event);
} csim_callbacks;

bool csim_is_supported(void);
/// Whether the records in which the runtime keeps what a task waits for are known.
bool csim_knows_layout(void);

csim_run *csim_run_create(const csim_callbacks *callbacks, uint64_t seed, int strategy, int changes, uint64_t step_limit, bool allows_escapes);
void csim_set_context(csim_run *run, void *context);
void csim_run_free(csim_run *run);
/// Choices to follow in place of the strategy; the first ready entry at every other step. With `strict`, a choice that is not possible ends the run.
void csim_follow(csim_run *run, const csim_choice *choices, size_t count, bool strict);
void csim_set_recording(csim_run *run, bool records, bool traces);
void csim_set_checked(csim_run *run, bool is_checked);
/// `identity`: of the loop, as an executor.
void csim_set_has_loop(csim_run *run, void *identity);
/// The executor of hops, that of the main actor, and one that drops what it gets. They are the process's, so all runs have the same.
void csim_set_executors(csim_run *run, csim_executor hop, csim_executor main, csim_executor nowhere);

/// The calling thread belongs to the run; null: to none.
void csim_enter(csim_run *run);
/// The run of the calling thread, or null.
csim_run *csim_current(void);
int csim_advance(csim_run *run);
/// Has `csim_advance` return after the present step. Any thread.
void csim_stop(csim_run *run);
/// Counts beginnings and ends of steps: odd while one is in progress. Any thread.
uint64_t csim_beat(csim_run *run);
/// The kernel's number of the run's thread; 0 if there is none yet. Any thread.
int32_t csim_thread(csim_run *run);
/// Nothing of the run's tasks ever runs again. On a thread that is still in the run, neither do tasks that are made from now on, and calls that leave
/// the simulation are made.
void csim_run_finish(csim_run *run);
/// Waits in real time until another thread has resumed a task of the run, queued something on its loop, or stopped it; false after
/// `milliseconds`.
bool csim_wait_for_others(csim_run *run, int milliseconds);

uint64_t csim_now(csim_run *run);
uint64_t csim_steps(csim_run *run);
uint64_t csim_digest(csim_run *run);
/// Follows the schedule to its end, or to the end of the run.
bool csim_followed_all(csim_run *run);
size_t csim_choices(csim_run *run, const csim_choice **choices);

/// From the stream of the program, or that of the network.
uint64_t csim_draw_program(csim_run *run);
uint64_t csim_draw_network(csim_run *run);

/// `run_event` is called with the number when the time has come.
void csim_add_event(csim_run *run, uint64_t at, uint64_t event);
void csim_enqueue_job(csim_run *run, void *job, int kind);
void csim_add_timer(csim_run *run, void *job, uint64_t at);
/// A job that a thread of no run has made ready: true if it is for a task of a run, which gets it.
bool csim_take_from_other_thread(void *job, int kind);
/// Called by the hop executor's `enqueue`.
void csim_enqueue_hop(void *job);

/// What is created on the run's thread between the two belongs to the process. Not nested.
void csim_begin_process(csim_run *run, uint32_t process);
void csim_end_process(csim_run *run);
uint32_t csim_current_process(csim_run *run);
void csim_crash(csim_run *run, uint32_t process);
size_t csim_live_tasks(csim_run *run, uint32_t process);

/// Number of the running task; 0 if none.
uint32_t csim_current_task(csim_run *run);

/// The state of the tasks that have not ended, in order of their numbers. Returns how many there are.
size_t csim_tasks(csim_run *run, csim_task_state *states, size_t capacity);
bool csim_describe_task(csim_run *run, uint32_t number, csim_task_state *state);

/// Starts a detached thread. Returns an errno.
int csim_start_thread(void (*body)(void *), void *context);
/// The calling thread does nothing any more.
void csim_park(void);

/// Strong references to an object of Swift.
size_t csim_reference_count(void *object);
/// Releases an object until `count` references are left. The others must be those of tasks that never run on.
void csim_release_references(void *object, size_t count);
