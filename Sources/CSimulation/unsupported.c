// Where the runtime does not allow a simulation, the product builds, and its calls throw: see `csim_is_supported`.

#include "include/CSimulation.h"

#ifndef CSIM_SUPPORTED
#include <stdlib.h>

bool csim_is_supported(void) { return false; }
bool csim_knows_layout(void) { return false; }
csim_run *csim_current(void) { return NULL; }
csim_run *csim_run_create(const csim_callbacks *callbacks, uint64_t seed, int strategy, int changes, uint64_t step_limit, bool allows_escapes) { abort(); }
void csim_set_context(csim_run *run, void *context) { abort(); }
void csim_run_free(csim_run *run) { abort(); }
void csim_follow(csim_run *run, const csim_choice *choices, size_t count, bool strict) { abort(); }
void csim_set_recording(csim_run *run, bool records, bool traces) { abort(); }
void csim_set_checked(csim_run *run, bool is_checked) { abort(); }
void csim_set_has_loop(csim_run *run, void *identity) { abort(); }
void csim_set_executors(csim_run *run, csim_executor hop, csim_executor main, csim_executor nowhere) { abort(); }
void csim_enter(csim_run *run) { abort(); }
int csim_advance(csim_run *run) { abort(); }
void csim_stop(csim_run *run) { abort(); }
uint64_t csim_beat(csim_run *run) { abort(); }
int32_t csim_thread(csim_run *run) { abort(); }
void csim_run_finish(csim_run *run) { abort(); }
bool csim_wait_for_others(csim_run *run, int milliseconds) { abort(); }
uint64_t csim_now(csim_run *run) { abort(); }
uint64_t csim_steps(csim_run *run) { abort(); }
uint64_t csim_digest(csim_run *run) { abort(); }
bool csim_followed_all(csim_run *run) { abort(); }
size_t csim_choices(csim_run *run, const csim_choice **choices) { abort(); }
uint64_t csim_draw_program(csim_run *run) { abort(); }
uint64_t csim_draw_network(csim_run *run) { abort(); }
void csim_add_event(csim_run *run, uint64_t at, uint64_t event) { abort(); }
void csim_enqueue_job(csim_run *run, void *job, int kind) { abort(); }
void csim_add_timer(csim_run *run, void *job, uint64_t at) { abort(); }
bool csim_take_from_other_thread(void *job, int kind) { abort(); }
void csim_enqueue_hop(void *job) { abort(); }
void csim_begin_process(csim_run *run, uint32_t process) { abort(); }
void csim_end_process(csim_run *run) { abort(); }
uint32_t csim_current_process(csim_run *run) { abort(); }
void csim_crash(csim_run *run, uint32_t process) { abort(); }
size_t csim_live_tasks(csim_run *run, uint32_t process) { abort(); }
uint32_t csim_current_task(csim_run *run) { abort(); }
size_t csim_tasks(csim_run *run, csim_task_state *states, size_t capacity) { abort(); }
bool csim_describe_task(csim_run *run, uint32_t number, csim_task_state *state) { abort(); }
int csim_start_thread(void (*body)(void *), void *context) { abort(); }
void csim_park(void) { abort(); }
size_t csim_reference_count(void *object) { return 1; }
void csim_release_references(void *object, size_t count) {}
#endif
