// The hooks of the Swift runtime, its functions that this file replaces, and its objects.
//
// Code that is linked statically binds to the definitions here, because they are in the executable; they call the runtime's own.
// Layouts are those of Swift 5.5 to 6.3 with 64 bits: Job and the context of an async function are ABI; what is not is read only if
// the runtime reports the version of its layout that is known here.

#define _GNU_SOURCE
#include "scheduler.h"

#ifdef CSIM_SUPPORTED
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define SWIFTCC __attribute__((swiftcall))
#define SWIFTASYNC __attribute__((swiftasynccall))
#define CONTEXT __attribute__((swift_async_context))
#define EXPORT __attribute__((visibility("default")))
// The runtime's own function of this name.
#define NEXT(name) ({ static void *found; if (!found) found = dlsym(RTLD_NEXT, name); found; })

// MARK: Hooks

typedef void (SWIFTCC *enqueue_original)(void *job);
extern void (SWIFTCC *swift_task_enqueueGlobal_hook)(void *, enqueue_original);
extern void (SWIFTCC *swift_task_enqueueMainExecutor_hook)(void *, enqueue_original);
typedef csim_executor (SWIFTCC *get_main_original)(void);
extern csim_executor (SWIFTCC *swift_task_getMainExecutor_hook)(get_main_original);
typedef bool (SWIFTCC *is_main_original)(void *, void *);
extern bool (SWIFTCC *swift_task_isMainExecutor_hook)(void *, void *, is_main_original);
SWIFTCC void swift_job_run(void *job, void *identity, void *implementation);
SWIFTCC csim_executor swift_task_getCurrentExecutor(void);
SWIFTCC csim_executor swift_task_getPreferredTaskExecutor(void);
SWIFTCC void *swift_task_getCurrent(void);
extern uint32_t _swift_concurrency_debug_internal_layout_version __attribute__((weak));
void *swift_retain(void *);
void swift_release(void *);

static bool is_outside(csim_run *run, void *job);

static SWIFTCC void on_global(void *job, enqueue_original original) {
    csim_run *run = csim_of_thread;
    // When a run is over, a `deinit` may resume a task that is none of the run's.
    bool is_of_run = run && (!run->is_over || run->is_making) && !is_outside(run, job);
    if (is_of_run) {
        csim_enqueue_job(run, job, CSIM_POOL);
    } else {
        csim_of_thread = NULL;
        if (!csim_take_from_other_thread(job, CSIM_POOL)) original(job);
        csim_of_thread = run;
    }
}

static SWIFTCC void on_main(void *job, enqueue_original original) {
    if (csim_of_thread) csim_enqueue_job(csim_of_thread, job, CSIM_MAIN); else original(job);
}

static SWIFTCC csim_executor on_get_main(get_main_original original) {
    return csim_of_thread && csim_of_thread->main.identity ? csim_of_thread->main : original();
}

static SWIFTCC bool on_is_main(void *identity, void *implementation, is_main_original original) {
    if (csim_of_thread && identity == csim_of_thread->main.identity) return true;
    return original(identity, implementation);
}

static void install(void) {
    swift_task_enqueueMainExecutor_hook = on_main;
    swift_task_getMainExecutor_hook = on_get_main;
    swift_task_isMainExecutor_hook = on_is_main;
    swift_task_enqueueGlobal_hook = on_global;
}

void csim_hooks_install(void) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, install);
}

// MARK: Hops

typedef SWIFTASYNC void (*resume_function)(CONTEXT void *);
typedef SWIFTASYNC void (*switch_function)(CONTEXT void *, resume_function, void *, void *);
static switch_function original_switch;
// Defined in Swift; absent if the compiler is older than the interface that it needs.
void csim_install_executors(void) __attribute__((weak));
// Before `main`, while the process has one thread.
__attribute__((constructor)) static void begin(void) {
    original_switch = (switch_function)dlsym(RTLD_NEXT, "swift_task_switch");
    if (original_switch && csim_install_executors) csim_install_executors();
}

// Where the task that runs wants to go on: set right before the runtime enqueues it, and right before it runs again.
static _Thread_local struct {
    void *function;
    csim_executor to;
} pending, landing;

/// Not the simulation's, nor a default actor: that has no implementation.
static bool is_of_program(csim_run *run, csim_executor executor) {
    return executor.implementation && executor.identity != run->loop && executor.identity != run->main.identity;
}

static bool prefers_executor(void *task);
static SWIFTASYNC void never_resume(CONTEXT void *context, resume_function unused, void *unused_too, void *nor_this);

// `musttail` needs equal signatures, so this has parameters that it does not use; all are in registers.
static SWIFTASYNC void land(CONTEXT void *context, resume_function unused, void *unused_too, void *nor_this) {
    switch_function function = (switch_function)landing.function;
    csim_executor to = landing.to;
    if (!to.identity) { __attribute__((musttail)) return function(context, NULL, NULL, NULL); }
    if (is_of_program(csim_of_thread, to) && !csim_may_hop(csim_of_thread, to)) {
        __attribute__((musttail)) return never_resume(context, unused, unused_too, nor_this);
    }
    __attribute__((musttail)) return original_switch(context, (resume_function)landing.function, to.identity, to.implementation);
}

EXPORT SWIFTASYNC void swift_task_switch(CONTEXT void *context, resume_function function, void *identity, void *implementation) {
    csim_run *run = csim_of_thread;
    if (run && run->hop.identity) {
        void *task = swift_task_getCurrent();
        struct csim_task *record = task ? csim_find_task(run, task) : NULL;
        bool is_crashed = record && csim_is_crashed(run, record->process);
        // A crashed task hops to nowhere.
        if (is_crashed || swift_task_getCurrentExecutor().identity != identity) {
            pending.function = (void *)function;
            pending.to.identity = identity;
            pending.to.implementation = implementation;
            __attribute__((musttail)) return original_switch(
                context, (resume_function)land, run->hop.identity, run->hop.implementation);
        }
        // No hop between actors, but `withTaskExecutorPreference` takes effect here.
        if (record && !implementation && prefers_executor(task)) {
            csim_executor preferred = swift_task_getPreferredTaskExecutor();
            if (is_of_program(run, preferred) && !csim_may_hop(run, preferred)) {
                __attribute__((musttail)) return never_resume(context, function, identity, implementation);
            }
        }
    }
    __attribute__((musttail)) return original_switch(context, function, identity, implementation);
}

void csim_enqueue_hop(void *job) { csim_ready(csim_of_thread, job, CSIM_HOP, pending.function, pending.to); }

void csim_run_entry(csim_run *run, const struct csim_entry *entry) {
    switch (entry->kind) {
    case CSIM_MAIN: swift_job_run(entry->job, run->main.identity, run->main.implementation); break;
    case CSIM_HOP:
        landing.function = entry->function;
        landing.to = entry->to;
        if (entry->to.identity) swift_job_run(entry->job, run->hop.identity, run->hop.implementation);
        else swift_job_run(entry->job, NULL, NULL);
        break;
    default: swift_job_run(entry->job, NULL, NULL);
    }
}

// MARK: New tasks

struct task_option {
    size_t flags;
    struct task_option *parent;
    union {
        const char *name;
        csim_executor executor;
    };
};
typedef struct {
    void *task, *context;
} task_and_context;
enum { serial_executor_option = 0, task_executor_option = 5, owned_task_executor_option = 6, task_name_option = 7 };
enum { enqueue_flag = 0x1000 };

static struct task_option *find_option(struct task_option *options, size_t kind) {
    if (!csim_knows_layout()) return NULL;
    while (options && (options->flags & 0xff) != kind) options = options->parent;
    return options;
}

/// Whether a new task starts at a loop of another thread. Called before it is made: after that, that thread may run it.
static bool starts_outside(csim_run *run, size_t flags, struct task_option *options, void *caller) {
    struct task_option *start = find_option(options, serial_executor_option);
    // The runtime has the pool's jobs and those of default actors run where the task prefers to.
    if (!start || !start->executor.implementation) start = find_option(options, task_executor_option);
    if (!start) start = find_option(options, owned_task_executor_option);
    if (!start || !(flags & enqueue_flag) || !is_of_program(run, start->executor)) return false;
    struct task_option *name = find_option(options, task_name_option);
    csim_task_state task = {
        .number = run->next_number + 1, .process = csim_current_process(run), .name = name ? name->name : NULL, .created_in = caller};
    return csim_leaves(run, task, start->executor);
}

EXPORT SWIFTCC task_and_context swift_task_create(size_t flags, struct task_option *options, void *type, void *function, void *closure) {
    task_and_context (SWIFTCC *original)(size_t, struct task_option *, void *, void *, void *) =
        (task_and_context (SWIFTCC *)(size_t, struct task_option *, void *, void *, void *))NEXT("swift_task_create");
    csim_run *run = csim_of_thread;
    bool has_left = run && !run->is_over && starts_outside(run, flags, options, __builtin_return_address(0));
    if (run) run->is_making = true;
    // One that must not leave is enqueued nowhere.
    bool stays = has_left && !run->allows_escapes;
    task_and_context created = original(stays ? flags & ~(size_t)enqueue_flag : flags, options, type, function, closure);
    // The reference that the runtime makes with the job: no task is freed that has not ended.
    if (stays) csim_retain(created.task);
    if (run) run->is_making = false;
    if (!run || run->is_over) return created;
    struct csim_task *record = csim_note_task(run, created.task);
    // The runtime has enqueued it, or runs it at once. The run sees what is enqueued on the pool and on the main actor only.
    if (!record->is_ready) {
        csim_hand_over(run, record);
        run->made_elsewhere = true;
    }
    record->has_left = has_left;
    record->created_in = __builtin_return_address(0);
    struct task_option *name = find_option(options, task_name_option);
    if (name && name->name && !record->name) record->name = strdup(name->name);
    if (run->traces) csim_trace(run, CSIM_CREATES, 0, csim_current_task(run), record->number, record->created_in, (csim_executor){0});
    return created;
}

// MARK: The runtime's objects

bool csim_is_supported(void) { return original_switch != NULL; }
bool csim_knows_layout(void) { return &_swift_concurrency_debug_internal_layout_version && _swift_concurrency_debug_internal_layout_version == 1; }

// The kind of a job is in the lowest byte of its flags: zero for a task, and DefaultActorSeparate for the job of an actor.
bool csim_job_is_task(void *job) { return ((uint8_t *)job)[32] == 0; }
bool csim_job_is_of_actor(void *job) { return ((uint8_t *)job)[32] == 193; }
void csim_retain(void *object) { swift_retain(object); }
void csim_release(void *object) { swift_release(object); }
void *csim_running_task(void) { return swift_task_getCurrent(); }

size_t swift_retainCount(void *);
enum { async_let_flag = 1 << 28, complete_flag = 0x2000, waiting_flag = 0x4000 };
static uint32_t job_flags(void *task) { return ((uint32_t *)task)[0x20 / 4]; }
static uint32_t job_id(void *task) { return ((uint32_t *)task)[0x24 / 4]; }
void *csim_task_of(void *job) {
    if (csim_job_is_task(job)) return job;
    if (!csim_knows_layout() || !csim_job_is_of_actor(job)) return NULL;
    // An actor has this job made when the first task enters its queue, and no task leaves the queue before the job runs. The newest comes first.
    void **actor = ((void ***)job)[8];
    void *newest = __atomic_load_n(actor + 5, __ATOMIC_ACQUIRE);
    return newest && csim_job_is_task(newest) ? newest : NULL;
}

/// Of a task that was made before the first one of the run. Code of the run has resumed it: a consumer of a stream, for example. It goes on where it
/// lives.
static bool is_outside(csim_run *run, void *job) {
    void *task = csim_task_of(job);
    // The runtime numbers tasks in the order in which they are made.
    return task && run->next_number > 0 && (int32_t)(job_id(task) - run->first_id) < 0;
}
// ActiveTaskStatus.
static uint32_t task_status(void *task) { return ((uint32_t *)task)[0x60 / 4]; }

/// The running task has a preference: the one that it was made with, or one of `withTaskExecutorPreference`. No other thread changes the two bits.
static bool prefers_executor(void *task) {
    enum { made_with_preference_flag = 1 << 29, preference_flag = 0x8000 };
    return csim_knows_layout() && ((job_flags(task) & made_with_preference_flag) || (task_status(task) & preference_flag));
}

void csim_identify(struct csim_task *record) {
    record->metadata = *(void **)record->task;
    record->id = job_id(record->task);
    record->is_borrowed = (job_flags(record->task) & async_let_flag) != 0;
}

bool csim_has_ended(const struct csim_task *record) {
    void *task = record->task;
    // The memory of an `async let` is its parent's again, and may hold something else.
    if (record->is_borrowed && (*(void **)task != record->metadata || job_id(task) != record->id)) return true;
    if (csim_knows_layout()) return (task_status(task) & complete_flag) != 0;
    // A task holds itself until it ends; the other reference is the run's.
    return !record->is_borrowed && swift_retainCount(task) == 1;
}

size_t csim_reference_count(void *object) { return swift_retainCount(object); }
void csim_release_references(void *object, size_t count) {
    while (swift_retainCount(object) > count) swift_release(object);
}

static csim_executor executor_nowhere;
void csim_set_nowhere(csim_executor nowhere) {
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    pthread_mutex_lock(&lock);
    if (!executor_nowhere.identity) executor_nowhere = nowhere;
    pthread_mutex_unlock(&lock);
}

// The task suspends again, for ever. If this only returned, the task would stay the thread's current one, also between later steps: what handlers of
// the loop make would belong to its process, and have its task-locals.
static SWIFTASYNC void never_resume(CONTEXT void *context, resume_function unused, void *unused_too, void *nor_this) {
    __attribute__((musttail)) return original_switch(
        context, (resume_function)never_resume, executor_nowhere.identity, executor_nowhere.implementation);
}

void csim_poison(void *task) { ((void **)task)[7] = (void *)never_resume; }

/// The functions that a suspended task returns through.
static void read_frames(void *task, void **frames, int count) {
    void *function = ((void **)task)[7];
    void **context = ((void ***)task)[8];
    for (int i = 0; i < count; i++) {
        frames[i] = function;
        function = context ? context[1] : NULL;
        if (context) context = context[0];
    }
}

/// The runtime keeps a record of what a suspended task waits for, for debuggers.
static void read_wait(csim_run *run, struct csim_task *record, csim_task_state *state) {
    if (record->is_ready || record->has_left) {
        state->waits_for = record->is_ready ? 4 : 5;
        return;
    }
    if (!csim_knows_layout()) return;
    char *wait = *(char **)((char *)record->task + 0xa0);
    if (!wait || !(task_status(record->task) & waiting_flag)) return;
    int kind = *(int *)(wait + 0x20);
    if (kind < 1 || kind > 3) return;
    state->waits_for = kind;
    struct csim_task *other = kind == 1 ? csim_find_task(run, *(void **)(wait + 0x10)) : NULL;
    state->other = other ? other->number : 0;
}

csim_task_state csim_identity_of(const struct csim_task *record) {
    return (csim_task_state){.number = record->number, .process = record->process, .name = record->name, .created_in = record->created_in};
}

static void describe(csim_run *run, struct csim_task *record, csim_task_state *state) {
    *state = csim_identity_of(record);
    read_wait(run, record, state);
    // What a running task's object says of its frames is of its last suspension. Their memory may hold something else by now. One that has left may
    // be running, too.
    if (record->task != csim_running_task() && !record->has_left) read_frames(record->task, state->frames, 16);
}

size_t csim_tasks(csim_run *run, csim_task_state *states, size_t capacity) {
    size_t all, count = 0;
    struct csim_task **tasks = csim_tasks_by_number(run, &all);
    for (size_t i = 0; i < all; i++) {
        if (csim_has_ended(tasks[i])) continue;
        if (count < capacity) describe(run, tasks[i], states + count);
        count++;
    }
    free(tasks);
    return count;
}

bool csim_describe_task(csim_run *run, uint32_t number, csim_task_state *state) {
    for (size_t i = 0; i < run->task_capacity; i++) {
        if (run->tasks[i] && run->tasks[i]->number == number && !csim_has_ended(run->tasks[i])) {
            describe(run, run->tasks[i], state);
            return true;
        }
    }
    return false;
}

// MARK: Threads

struct thread_start {
    void (*body)(void *);
    void *context;
};
static void *begin_thread(void *argument) {
    struct thread_start start = *(struct thread_start *)argument;
    free(argument);
    start.body(start.context);
    return NULL;
}

int csim_start_thread(void (*body)(void *), void *context) {
    struct thread_start *start = malloc(sizeof *start);
    if (!start) abort();
    *start = (struct thread_start){body, context};
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    pthread_t thread;
    int code = pthread_create(&thread, &attributes, begin_thread, start);
    pthread_attr_destroy(&attributes);
    if (code) free(start);
    return code;
}

void csim_park(void) {
    csim_of_thread = NULL;
    while (true) pause();
}
#endif
