// One simulated program: its ready work, its timers, its tasks, its time and its chance.

#define _GNU_SOURCE
#include "scheduler.h"

#ifdef CSIM_SUPPORTED
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static const uint64_t beginning = 1000000000000u;

_Thread_local csim_run *csim_of_thread;

// Every run that has not finished, for threads that are not theirs.
static pthread_mutex_t runs_lock = PTHREAD_MUTEX_INITIALIZER;
static csim_run *runs;
static atomic_int run_count;

static void *grown(void *memory, size_t count, size_t *capacity, size_t size) {
    if (count < *capacity) return memory;
    *capacity = *capacity ? *capacity * 2 : 16;
    memory = realloc(memory, *capacity * size);
    if (!memory) abort();
    return memory;
}

// MARK: Chance

// SplitMix64.
static uint64_t draw(uint64_t *state) {
    *state += 0x9E3779B97F4A7C15u;
    uint64_t mixed = *state;
    mixed = (mixed ^ (mixed >> 30)) * 0xBF58476D1CE4E5B9u;
    mixed = (mixed ^ (mixed >> 27)) * 0x94D049BB133111EBu;
    return mixed ^ (mixed >> 31);
}

static uint64_t stream(uint64_t seed, uint64_t which) {
    uint64_t state = seed * 0x9E3779B97F4A7C15u + which * 0xD1B54A32D192ED03u;
    return draw(&state);
}

static void mix(csim_run *run, uint64_t value) { run->digest = (run->digest ^ value) * 0x100000001b3u; }

uint64_t csim_draw_program(csim_run *run) {
    mix(run, 7);
    return draw(&run->program_chance);
}
uint64_t csim_draw_network(csim_run *run) { return draw(&run->network_chance); }

// MARK: Beginning and end

csim_run *csim_run_create(const csim_callbacks *callbacks, uint64_t seed, int strategy, int changes, uint64_t step_limit, bool allows_escapes) {
    csim_hooks_install();
    csim_run *run = calloc(1, sizeof *run);
    if (!run) abort();
    run->callbacks = *callbacks;
    run->schedule_chance = stream(seed, 1);
    run->program_chance = stream(seed, 2);
    run->network_chance = stream(seed, 3);
    run->strategy = strategy;
    run->step_limit = step_limit;
    run->allows_escapes = allows_escapes;
    run->now = beginning;
    run->digest = 0xcbf29ce484222325u;
    run->sweep_at = 256;
    if (strategy == CSIM_PRIORITIES) {
        // How long the program is, nobody knows: the seed draws a length between 16 and 2,048 steps.
        uint64_t length = 16u << (draw(&run->schedule_chance) % 8);
        run->change_count = changes < 0 ? 0 : changes > 16 ? 16 : changes;
        for (int i = 0; i < run->change_count; i++) {
            uint64_t point = draw(&run->schedule_chance) % length;
            int at = i;
            for (; at > 0 && run->changes[at - 1] > point; at--) run->changes[at] = run->changes[at - 1];
            run->changes[at] = point;
        }
    }
    pthread_mutex_init(&run->lock, NULL);
    pthread_cond_init(&run->inbox_filled, NULL);
    pthread_mutex_lock(&runs_lock);
    run->next_run = runs;
    runs = run;
    atomic_fetch_add(&run_count, 1);
    pthread_mutex_unlock(&runs_lock);
    return run;
}

void csim_set_context(csim_run *run, void *context) { run->callbacks.context = context; }

void csim_follow(csim_run *run, const csim_choice *choices, size_t count, bool strict) {
    run->owned_replay = malloc((count + 1) * sizeof *choices);
    if (!run->owned_replay) abort();
    if (count) memcpy(run->owned_replay, choices, count * sizeof *choices);
    run->replay = run->owned_replay;
    run->replay_count = count;
    run->strict = strict;
}

void csim_run_free(csim_run *run) {
    free(run->ready.entries);
    free(run->main_queue.entries);
    free(run->timers);
    free(run->tasks);
    free(run->crashed);
    free(run->owned_replay);
    free(run->choices);
    free(run->inbox);
    pthread_mutex_destroy(&run->lock);
    pthread_cond_destroy(&run->inbox_filled);
    free(run);
}

void csim_set_recording(csim_run *run, bool records, bool traces) {
    run->records = records;
    run->traces = traces;
}
void csim_set_checked(csim_run *run, bool is_checked) { run->is_checked = is_checked; }
void csim_set_has_loop(csim_run *run, void *identity) {
    run->has_loop = true;
    run->loop = identity;
}
void csim_set_executors(csim_run *run, csim_executor hop, csim_executor main, csim_executor nowhere) {
    run->hop = hop;
    run->main = main;
    csim_set_nowhere(nowhere);
}
void csim_enter(csim_run *run) { csim_of_thread = run; }
csim_run *csim_current(void) { return csim_of_thread; }
void csim_stop(csim_run *run) { atomic_store(&run->stop, true); }
uint64_t csim_now(csim_run *run) { return run->now; }
uint64_t csim_steps(csim_run *run) { return run->steps; }
uint64_t csim_digest(csim_run *run) { return run->digest; }
bool csim_followed_all(csim_run *run) { return run->replay_next == run->replay_count; }
size_t csim_choices(csim_run *run, const csim_choice **choices) {
    *choices = run->choices;
    return run->choice_count;
}

// MARK: Queues

static void append(csim_run *run, struct csim_queue *queue, struct csim_entry entry) {
    if (queue->head > 0 && queue->head + queue->count == queue->capacity) {
        memmove(queue->entries, queue->entries + queue->head, queue->count * sizeof entry);
        queue->head = 0;
    }
    queue->entries = grown(queue->entries, queue->head + queue->count, &queue->capacity, sizeof entry);
    entry.order = run->order++;
    entry.since = run->steps;
    queue->entries[queue->head + queue->count++] = entry;
}

static struct csim_entry take(struct csim_queue *queue, size_t index) {
    struct csim_entry *first = queue->entries + queue->head;
    struct csim_entry entry = first[index];
    if (index < queue->count / 2) {
        memmove(first + 1, first, index * sizeof entry);
        queue->head++;
    } else {
        memmove(first + index, first + index + 1, (queue->count - index - 1) * sizeof entry);
    }
    if (--queue->count == 0) queue->head = 0;
    return entry;
}

static size_t candidates(csim_run *run) { return run->ready.count + (run->main_queue.count > 0); }

/// The place of the main actor's first job among the others, by arrival.
static size_t main_place(csim_run *run) {
    if (!run->main_queue.count) return SIZE_MAX;
    uint64_t order = run->main_queue.entries[run->main_queue.head].order;
    size_t low = 0, high = run->ready.count;
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (run->ready.entries[run->ready.head + middle].order < order) low = middle + 1; else high = middle;
    }
    return low;
}

static struct csim_entry *candidate(csim_run *run, size_t index, size_t main) {
    if (index == main) return run->main_queue.entries + run->main_queue.head;
    return run->ready.entries + run->ready.head + index - (main < index ? 1 : 0);
}

// MARK: Tasks

static size_t slot(csim_run *run, void *task) {
    return ((uintptr_t)task >> 4) * 0x9E3779B97F4A7C15u >> 20 & (run->task_capacity - 1);
}

struct csim_task *csim_find_task(csim_run *run, void *task) {
    if (!run->task_capacity) return NULL;
    for (size_t i = slot(run, task); run->tasks[i]; i = (i + 1) & (run->task_capacity - 1))
        if (run->tasks[i]->task == task) return run->tasks[i];
    return NULL;
}

static void insert(csim_run *run, struct csim_task *record) {
    size_t i = slot(run, record->task);
    while (run->tasks[i]) i = (i + 1) & (run->task_capacity - 1);
    run->tasks[i] = record;
}

/// Under the lock.
static void resize(csim_run *run, size_t capacity) {
    struct csim_task **old = run->tasks;
    size_t old_capacity = run->task_capacity;
    run->tasks = calloc(capacity, sizeof *run->tasks);
    if (!run->tasks) abort();
    run->task_capacity = capacity;
    for (size_t i = 0; i < old_capacity; i++) if (old[i]) insert(run, old[i]);
    free(old);
}

static int by_number(const void *one, const void *other) {
    uint32_t a = (*(struct csim_task *const *)one)->number, b = (*(struct csim_task *const *)other)->number;
    return a < b ? -1 : a > b;
}

struct csim_task **csim_tasks_by_number(csim_run *run, size_t *count) {
    struct csim_task **tasks = malloc((run->task_count + 1) * sizeof *tasks);
    if (!tasks) abort();
    *count = 0;
    for (size_t i = 0; i < run->task_capacity; i++)
        if (run->tasks[i]) tasks[(*count)++] = run->tasks[i];
    qsort(tasks, *count, sizeof *tasks, by_number);
    return tasks;
}

void csim_hand_over(csim_run *run, struct csim_task *record) {
    run->elsewhere_count += !record->ends_elsewhere;
    record->ends_elsewhere = true;
}

/// The record is no longer found. `discard` frees it.
static void take_out(csim_run *run, struct csim_task *record) {
    csim_trace(run, CSIM_FINISHES, 0, record->number, 0, NULL, (csim_executor){0});
    pthread_mutex_lock(&run->lock);
    size_t mask = run->task_capacity - 1, hole = slot(run, record->task);
    while (run->tasks[hole] != record) hole = (hole + 1) & mask;
    // Move back what was pushed on by this one.
    for (size_t i = (hole + 1) & mask; run->tasks[i]; i = (i + 1) & mask) {
        size_t home = slot(run, run->tasks[i]->task);
        if (((i - home) & mask) >= ((i - hole) & mask)) {
            run->tasks[hole] = run->tasks[i];
            hole = i;
        }
    }
    run->tasks[hole] = NULL;
    run->task_count--;
    run->elsewhere_count -= record->ends_elsewhere;
    pthread_mutex_unlock(&run->lock);
}

/// Releases what the task has returned, so it may call user code: a `deinit`, which may make tasks.
static void discard(struct csim_task *record) { /* DOES CALLOUT */
    void *task = record->is_borrowed ? NULL : record->task;
    free(record->name);
    free(record);
    if (task) csim_release(task);
}

static void forget(csim_run *run, struct csim_task *record) { /* DOES CALLOUT */
    take_out(run, record);
    discard(record);
}

/// An actor that outlives the run, a global one for example, enqueues nothing while it waits for its job. The tasks in its queue never run on.
static void empty_actors(csim_run *run) { /* DOES CALLOUT */
    for (size_t i = 0; i < run->ready.count; i++) {
        struct csim_entry *entry = run->ready.entries + run->ready.head + i;
        if (entry->job && csim_job_is_of_actor(entry->job)) csim_run_entry(run, entry);
    }
    for (size_t i = 0; i < run->inbox_count; i++) {
        struct csim_entry entry = {.job = run->inbox[i].job, .kind = run->inbox[i].kind};
        if (csim_job_is_of_actor(entry.job)) csim_run_entry(run, &entry);
    }
}

void csim_run_finish(csim_run *run) { /* DOES CALLOUT */
    run->is_over = true;
    pthread_mutex_lock(&runs_lock);
    for (csim_run **at = &runs; *at; at = &(*at)->next_run) {
        if (*at == run) {
            *at = run->next_run;
            break;
        }
    }
    atomic_fetch_sub(&run_count, 1);
    pthread_mutex_unlock(&runs_lock);
    size_t count;
    struct csim_task **tasks = csim_tasks_by_number(run, &count);
    if (run->tasks) memset(run->tasks, 0, run->task_capacity * sizeof *run->tasks);
    run->task_count = 0;
    // What other threads still resume runs into the poison.
    for (size_t i = 0; i < count; i++)
        if (!csim_has_ended(tasks[i])) csim_poison(tasks[i]->task);
    empty_actors(run);
    for (size_t i = 0; i < count; i++) discard(tasks[i]);
    free(tasks);
}

/// Forgets the tasks that have ended, in the order of their numbers: that of the table depends on addresses.
static void sweep(csim_run *run, bool only_elsewhere) { /* DOES CALLOUT */
    size_t count = 0, capacity = 0;
    struct csim_task **ended = NULL;
    for (size_t i = 0; i < run->task_capacity; i++) {
        struct csim_task *record = run->tasks[i];
        if (!record || (only_elsewhere && !record->ends_elsewhere) || record->is_ready || !csim_has_ended(record)) continue;
        ended = grown(ended, count, &capacity, sizeof *ended);
        ended[count++] = record;
    }
    if (count) qsort(ended, count, sizeof *ended, by_number);
    // All are taken out before the first is discarded: its `deinit` may make tasks, which are inserted.
    for (size_t i = 0; i < count; i++) take_out(run, ended[i]);
    if (!only_elsewhere) run->sweep_at = run->task_count * 2 < 256 ? 256 : run->task_count * 2;
    for (size_t i = 0; i < count; i++) discard(ended[i]);
    free(ended);
}

/// Between steps only. The program may hold a lock while it makes a task, and the task of the step may have ended.
static void sweep_after_step(csim_run *run, bool is_of_task) { /* DOES CALLOUT */
    // A task's own step runs another task only if it has made that one: `Task.immediate`.
    bool ran_others = !is_of_task || run->made_elsewhere;
    run->made_elsewhere = false;
    if (run->task_count >= run->sweep_at) sweep(run, false);
    else if (ran_others && run->elsewhere_count) sweep(run, true);
}

struct csim_task *csim_note_task(csim_run *run, void *task) {
    struct csim_task *record = csim_find_task(run, task);
    // A new task may have the place of an `async let` that has ended.
    if (record && record->is_borrowed && csim_has_ended(record)) {
        forget(run, record);
        record = NULL;
    }
    if (record) return record;
    record = calloc(1, sizeof *record);
    if (!record) abort();
    record->task = task;
    record->number = ++run->next_number;
    record->process = csim_current_process(run);
    if (run->strategy == CSIM_PRIORITIES) record->priority = draw(&run->schedule_chance) >> 1 | 1ull << 62;
    csim_identify(record);
    if (record->number == 1) run->first_id = record->id;
    if (record->is_borrowed) csim_hand_over(run, record); else csim_retain(task);
    pthread_mutex_lock(&run->lock);
    if (run->task_count * 2 >= run->task_capacity) resize(run, run->task_capacity ? run->task_capacity * 2 : 64);
    insert(run, record);
    run->task_count++;
    pthread_mutex_unlock(&run->lock);
    return record;
}

uint32_t csim_current_process(csim_run *run) {
    if (run->is_process_set) return run->set_process;
    void *task = csim_running_task();
    struct csim_task *record = task ? csim_find_task(run, task) : NULL;
    return record ? record->process : run->process;
}

void csim_begin_process(csim_run *run, uint32_t process) {
    run->is_process_set = true;
    run->set_process = process;
}
void csim_end_process(csim_run *run) { run->is_process_set = false; }

uint32_t csim_current_task(csim_run *run) {
    void *task = csim_running_task();
    struct csim_task *record = task ? csim_find_task(run, task) : NULL;
    return record ? record->number : 0;
}

bool csim_is_crashed(csim_run *run, uint32_t process) { return process < run->crashed_capacity && run->crashed[process]; }

static void poison_crashed(csim_run *run) {
    for (size_t i = 0; i < run->task_capacity; i++) {
        struct csim_task *record = run->tasks[i];
        if (record && csim_is_crashed(run, record->process) && !csim_has_ended(record)) csim_poison(record->task);
    }
}

void csim_crash(csim_run *run, uint32_t process) {
    if (process >= run->crashed_capacity) {
        size_t capacity = (process + 1) * 2;
        run->crashed = realloc(run->crashed, capacity * sizeof *run->crashed);
        if (!run->crashed) abort();
        memset(run->crashed + run->crashed_capacity, 0, (capacity - run->crashed_capacity) * sizeof *run->crashed);
        run->crashed_capacity = capacity;
    }
    run->crashed[process] = true;
    poison_crashed(run);
    // A task that is running is poisoned when it suspends.
    run->crashed_in_step = true;
}

size_t csim_live_tasks(csim_run *run, uint32_t process) {
    size_t count = 0;
    for (size_t i = 0; i < run->task_capacity; i++) {
        struct csim_task *record = run->tasks[i];
        if (record && record->process == process && !csim_has_ended(record)) count++;
    }
    return count;
}

// MARK: What becomes ready

void csim_trace(csim_run *run, int what, int kind, uint32_t task, uint32_t other, void *function, csim_executor to) {
    if (!run->traces) return;
    csim_trace_event event = {what, kind, task, other, function, run->now, to};
    run->callbacks.trace(run->callbacks.context, &event);
}

static void enqueue(csim_run *run, struct csim_entry entry) {
    if (entry.task) {
        entry.task->is_ready = true;
        entry.task->has_left = false;
        entry.priority = entry.task->priority;
    } else if (run->strategy == CSIM_PRIORITIES) {
        entry.priority = draw(&run->schedule_chance) >> 1 | 1ull << 62;
    }
    append(run, entry.kind == CSIM_MAIN ? &run->main_queue : &run->ready, entry);
}

void csim_ready(csim_run *run, void *job, int kind, void *function, csim_executor to) {
    if (run->is_over) return;
    struct csim_task *task = csim_job_is_task(job) ? csim_note_task(run, job) : NULL;
    struct csim_entry entry = {.job = job, .kind = kind, .function = function, .to = to, .task = task};
    entry.process = task ? task->process : csim_current_process(run);
    if (task && to.identity) csim_hand_over(run, task);
    if (run->traces) csim_trace(run, kind == CSIM_HOP ? CSIM_HOPS : CSIM_RESUMES, kind, csim_current_task(run), task ? task->number : 0, function, to);
    enqueue(run, entry);
}

void csim_enqueue_job(csim_run *run, void *job, int kind) { csim_ready(run, job, kind, NULL, (csim_executor){0}); }

static bool is_before(const struct csim_timer *one, const struct csim_timer *other) {
    return one->at != other->at ? one->at < other->at : one->order < other->order;
}

static void add_timer(csim_run *run, uint64_t at, struct csim_entry entry) {
    run->timers = grown(run->timers, run->timer_count, &run->timer_capacity, sizeof *run->timers);
    size_t i = run->timer_count++;
    struct csim_timer timer = {at, run->order++, entry};
    while (i > 0 && is_before(&timer, run->timers + (i - 1) / 2)) {
        run->timers[i] = run->timers[(i - 1) / 2];
        i = (i - 1) / 2;
    }
    run->timers[i] = timer;
}

static struct csim_entry pop_timer(csim_run *run) {
    struct csim_entry first = run->timers[0].entry;
    struct csim_timer last = run->timers[--run->timer_count];
    size_t i = 0;
    while (true) {  // ends: one level deeper in each turn
        size_t child = 2 * i + 1;
        if (child >= run->timer_count) break;
        if (child + 1 < run->timer_count && is_before(run->timers + child + 1, run->timers + child)) child++;
        if (!is_before(run->timers + child, &last)) break;
        run->timers[i] = run->timers[child];
        i = child;
    }
    if (run->timer_count) run->timers[i] = last;
    return first;
}

void csim_add_timer(csim_run *run, void *job, uint64_t at) {
    if (run->is_over) return;
    struct csim_task *task = csim_job_is_task(job) ? csim_note_task(run, job) : NULL;
    struct csim_entry entry = {.job = job, .kind = CSIM_POOL, .task = task};
    entry.process = task ? task->process : csim_current_process(run);
    if (run->traces) {
        csim_trace_event event = {CSIM_SLEEPS, 0, csim_current_task(run), 0, NULL, at, {0}};
        run->callbacks.trace(run->callbacks.context, &event);
    }
    add_timer(run, at, entry);
}

void csim_add_event(csim_run *run, uint64_t at, uint64_t event) {
    struct csim_entry entry = {.kind = CSIM_EVENT, .event = event};
    add_timer(run, at, entry);
}

static void enqueue_loop(csim_run *run) {
    if (run->loop_queued) return;
    run->loop_queued = true;
    enqueue(run, (struct csim_entry){.kind = CSIM_LOOP});
}

/// Whether the loop has queued work or a timer that is due. If nothing else is ready, `move_time` asks for the timer.
static bool loop_is_ready(csim_run *run) {
    if (run->callbacks.loop_has_work(run->callbacks.context)) return true;
    // Tasks that are always ready must not starve it.
    return candidates(run) > 0 && run->callbacks.loop_next(run->callbacks.context) <= run->now;
}

static void move_due(csim_run *run) {
    while (run->timer_count && run->timers[0].at <= run->now) enqueue(run, pop_timer(run));
}

// MARK: Other threads

bool csim_take_from_other_thread(void *job, int kind) {
    void *task = atomic_load(&run_count) > 0 ? csim_task_of(job) : NULL;
    if (!task) return false;
    bool is_taken = false;
    pthread_mutex_lock(&runs_lock);
    for (csim_run *run = runs; run && !is_taken; run = run->next_run) {
        pthread_mutex_lock(&run->lock);
        if (csim_find_task(run, task)) {
            run->inbox = grown(run->inbox, run->inbox_count, &run->inbox_capacity, sizeof *run->inbox);
            run->inbox[run->inbox_count++] = (struct csim_arrival){job, task, kind};
            pthread_cond_signal(&run->inbox_filled);
            is_taken = true;
        }
        pthread_mutex_unlock(&run->lock);
    }
    pthread_mutex_unlock(&runs_lock);
    return is_taken;
}

static void take_inbox(csim_run *run) {
    while (true) {  // ends: with an empty inbox
        struct csim_arrival arrival = {0};
        pthread_mutex_lock(&run->lock);
        if (run->inbox_count) {
            arrival = run->inbox[0];
            memmove(run->inbox, run->inbox + 1, --run->inbox_count * sizeof arrival);
        }
        pthread_mutex_unlock(&run->lock);
        if (!arrival.job) return;
        csim_enqueue_job(run, arrival.job, arrival.kind);
        struct csim_task *task = csim_find_task(run, arrival.task);
        if (task) task->has_left = false;
        void *frames[1] = {task ? task->created_in : NULL};
        run->callbacks.escape(run->callbacks.context, "a resumption by another thread", frames, frames[0] ? 1 : 0, false);
    }
}

static bool others_have_come(csim_run *run) {
    return run->inbox_count > 0 || atomic_load(&run->stop) || (run->has_loop && run->callbacks.loop_has_work(run->callbacks.context));
}

bool csim_wait_for_others(csim_run *run, int milliseconds) {
    csim_run *before = csim_of_thread;
    csim_of_thread = NULL;
    pthread_mutex_lock(&run->lock);
    // What is queued on the loop wakes nobody, and neither does a stop, so both are looked for.
    for (; milliseconds > 0 && !others_have_come(run); milliseconds -= 5) {
        struct timespec limit;
        clock_gettime(CLOCK_REALTIME, &limit);
        limit.tv_nsec += 5000000;
        if (limit.tv_nsec >= 1000000000) {
            limit.tv_nsec -= 1000000000;
            limit.tv_sec++;
        }
        pthread_cond_timedwait(&run->inbox_filled, &run->lock, &limit);
    }
    bool have_come = others_have_come(run);
    pthread_mutex_unlock(&run->lock);
    csim_of_thread = before;
    return have_come;
}

// MARK: Steps

static size_t choose_by_priority(csim_run *run, size_t count, size_t main) {
    while (true) {  // ends: each turn but the last consumes a change point
        size_t best = 0;
        for (size_t i = 1; i < count; i++)
            if (candidate(run, i, main)->priority > candidate(run, best, main)->priority) best = i;
        if (run->next_change >= run->change_count || run->steps < run->changes[run->next_change]) return best;
        struct csim_entry *entry = candidate(run, best, main);
        entry->priority = 1000 - (uint64_t)run->next_change++;
        if (entry->task) entry->task->priority = entry->priority;
    }
}

static size_t choose(csim_run *run, size_t count) {
    if (run->replay) {
        if (run->replay_next < run->replay_count && run->replay[run->replay_next].step == run->steps) {
            csim_choice choice = run->replay[run->replay_next++];
            if (choice.choice < count && (!run->strict || !choice.ready || choice.ready == count)) return choice.choice;
            if (run->strict) run->misfit = true;
        }
        return 0;
    }
    if (count == 1 || run->strategy == CSIM_FIRST_COME) return 0;
    if (run->strategy == CSIM_RANDOM) return (size_t)(draw(&run->schedule_chance) % count);
    size_t main = main_place(run);
    // Bounded unfairness: otherwise a task that polls starves the one that it waits for.
    if (run->steps - candidate(run, 0, main)->since > 400) return 0;
    return choose_by_priority(run, count, main);
}

static void count_beat(csim_run *run) { atomic_store_explicit(&run->beat, atomic_load_explicit(&run->beat, memory_order_relaxed) + 1, memory_order_relaxed); }
uint64_t csim_beat(csim_run *run) { return atomic_load_explicit(&run->beat, memory_order_relaxed); }
int32_t csim_thread(csim_run *run) { return atomic_load(&run->thread); }

static void run_one(csim_run *run, size_t count) {
    size_t index = choose(run, count);
    if (run->misfit) return;
    if (run->records && index > 0) {
        run->choices = grown(run->choices, run->choice_count, &run->choice_capacity, sizeof *run->choices);
        run->choices[run->choice_count++] = (csim_choice){(uint32_t)run->steps, (uint32_t)index, (uint32_t)count};
    }
    size_t main = main_place(run);
    struct csim_entry entry = index == main ? take(&run->main_queue, 0) : take(&run->ready, index - (main < index ? 1 : 0));
    run->steps++;
    uint32_t number = entry.task ? entry.task->number : 0;
    mix(run, (uint64_t)number * 31 + (uint64_t)entry.kind);
    mix(run, run->now + count);
    run->process = entry.process;
    if (entry.task) entry.task->is_ready = false;
    csim_trace(run, CSIM_BEGINS, entry.kind, number, (uint32_t)entry.event, entry.function, entry.to);
    switch (entry.kind) {
    case CSIM_EVENT: run->callbacks.run_event(run->callbacks.context, entry.event); break;
    case CSIM_LOOP:
        run->loop_queued = false;
        run->callbacks.run_loop(run->callbacks.context);
        break;
    default: csim_run_entry(run, &entry);
    }
    run->process = 0;
    if (run->crashed_in_step) {
        run->crashed_in_step = false;
        poison_crashed(run);
    }
    if (entry.task && !entry.task->is_ready && csim_has_ended(entry.task)) forget(run, entry.task);
    sweep_after_step(run, entry.task != NULL);
    csim_trace(run, CSIM_ENDS, entry.kind, number, 0, NULL, (csim_executor){0});
    if (run->is_checked) run->callbacks.after_step(run->callbacks.context);
    if (run->has_loop && !run->loop_queued && loop_is_ready(run)) enqueue_loop(run);
}

/// False if nothing will ever be ready.
static bool move_time(csim_run *run) {
    uint64_t next = run->timer_count ? run->timers[0].at : UINT64_MAX;
    if (run->has_loop) {
        uint64_t loop = run->callbacks.loop_next(run->callbacks.context);
        if (loop < next) next = loop;
    }
    if (next == UINT64_MAX) return false;
    if (next > run->now) {
        run->now = next;
        if (run->has_loop) run->callbacks.time_moved(run->callbacks.context, run->now);
    }
    move_due(run);
    if (run->has_loop && run->callbacks.loop_next(run->callbacks.context) <= run->now) enqueue_loop(run);
    return true;
}

int csim_advance(csim_run *run) {
    atomic_store(&run->thread, gettid());
    while (true) {  // ends: with the limit of steps at the latest
        if (atomic_load_explicit(&run->stop, memory_order_relaxed)) return CSIM_STOPPED;
        take_inbox(run);
        move_due(run);
        size_t count = candidates(run);
        if (!count) {
            // Another thread may have queued something on the loop since the last step.
            if (run->has_loop && loop_is_ready(run)) enqueue_loop(run);
            else if (!move_time(run)) return CSIM_IDLE;
            continue;
        }
        if (run->steps >= run->step_limit) return CSIM_LIMIT;
        count_beat(run);
        run_one(run, count);
        count_beat(run);
        if (run->misfit) return CSIM_MISFIT;
    }
}
#endif
