// What the parts of a run share. Only the run's thread touches a run, except for `tasks` (other threads look tasks up), `inbox`, `stop`, `beat` and
// `thread`.
#pragma once
#include "include/CSimulation.h"

#ifdef CSIM_SUPPORTED
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

struct csim_task {
    void *task;
    uint32_t number, process;
    char *name;
    void *created_in;
    uint64_t priority;
    // Of the task's object, which is not the run's if it is that of an `async let`: it lies in its parent's memory.
    void *metadata;
    uint32_t id;
    bool is_ready, is_borrowed;
    // It was handed to an actor or a loop, so it may end in a step that is not its own.
    bool ends_elsewhere;
    // It goes on at a loop of another thread, which may be running it if the run allows escapes.
    bool has_left;
};

struct csim_entry {
    void *job;
    // Of a hop: where the task goes on.
    void *function;
    csim_executor to;
    struct csim_task *task;
    uint64_t event, order, since, priority;
    uint32_t process;
    int kind;
};

struct csim_timer {
    uint64_t at, order;
    struct csim_entry entry;
};

/// A job that another thread has made ready, and the task that it is for.
struct csim_arrival {
    void *job, *task;
    int kind;
};

struct csim_queue {
    struct csim_entry *entries;
    size_t head, count, capacity;
};

struct csim_run {
    csim_callbacks callbacks;
    uint64_t schedule_chance, program_chance, network_chance;
    // Of libc's `random`, from the first call on. As many bytes as glibc's own has.
    struct random_data random;
    int32_t random_memory[32];
    int strategy;
    uint64_t changes[16];
    int change_count, next_change;
    uint64_t step_limit, steps, now, digest, order;
    bool allows_escapes, is_checked, has_loop, loop_queued, records, traces, strict, misfit;
    // No task runs any more, nor one that is made from now on, by a `deinit` for example. And whether one is being made.
    bool is_over, is_making;
    csim_executor hop, main;
    // The identity of the world's loop, as an executor.
    void *loop;
    // In order of arrival. The main actor's queue is first in, first out.
    struct csim_queue ready, main_queue;
    struct csim_timer *timers;
    size_t timer_count, timer_capacity;
    // Open addressing, by address.
    struct csim_task **tasks;
    size_t task_capacity, task_count, elsewhere_count, sweep_at;
    // The step has made a task that the run has not seen enqueued.
    bool made_elsewhere;
    uint32_t next_number, process;
    // The runtime's number of the first task.
    uint32_t first_id;
    bool *crashed;
    size_t crashed_capacity;
    bool crashed_in_step, is_process_set;
    uint32_t set_process;
    const csim_choice *replay;
    csim_choice *owned_replay;
    size_t replay_count, replay_next;
    csim_choice *choices;
    size_t choice_count, choice_capacity;
    pthread_mutex_t lock;
    pthread_cond_t inbox_filled;
    struct csim_arrival *inbox;
    size_t inbox_count, inbox_capacity;
    atomic_bool stop;
    // Odd while a step is in progress. And the kernel's number of the run's thread.
    atomic_ulong beat;
    atomic_int thread;
    struct csim_run *next_run;
};

extern _Thread_local csim_run *csim_of_thread;

void csim_hooks_install(void);
void csim_run_entry(csim_run *run, const struct csim_entry *entry);
void csim_ready(csim_run *run, void *job, int kind, void *function, csim_executor to);
struct csim_task *csim_note_task(csim_run *run, void *task);
struct csim_task *csim_find_task(csim_run *run, void *task);
void csim_hand_over(csim_run *run, struct csim_task *record);
/// All records, in the order of their numbers: that of the table depends on addresses. The caller frees the list.
struct csim_task **csim_tasks_by_number(csim_run *run, size_t *count);
void csim_trace(csim_run *run, int what, int kind, uint32_t task, uint32_t other, void *function, csim_executor to);
bool csim_is_crashed(csim_run *run, uint32_t process);

/// What identifies a task, and nothing of its state.
csim_task_state csim_identity_of(const struct csim_task *record);
/// Whether a task goes on at a loop of another thread. The executor is one of the program.
bool csim_leaves(csim_run *run, csim_task_state task, csim_executor to);
/// Whether the running task may go on at an executor of the program. Asked before it is enqueued there: after that, another thread may run it.
bool csim_may_hop(csim_run *run, csim_executor to);

/// With bytes of the program's chance.
void csim_fill(csim_run *run, void *buffer, size_t count);

// The runtime's objects.
bool csim_job_is_task(void *job);
/// Whether it empties the queue of a default actor.
bool csim_job_is_of_actor(void *job);
/// The task that a job is for: itself, or one of the queue that it empties if it is an actor's. Null if that is not known.
void *csim_task_of(void *job);
/// Whether the task has ended; its object may be gone then.
bool csim_has_ended(const struct csim_task *record);
void csim_identify(struct csim_task *record);
/// The task never runs on, whatever thread resumes it.
void csim_poison(void *task);
void csim_set_nowhere(csim_executor nowhere);
void csim_retain(void *object);
void csim_release(void *object);
void *csim_running_task(void);
#endif
