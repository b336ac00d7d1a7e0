// Included in front of every file of libevent's regression tests: what runs a base there is replaced.
//
// `event_base_loopbreak` is on the list because our loop ends its waits with it too; `event_base_got_break` is to report the tests' calls
// only. `event_base_loopexit` is libevent's own.
// The bases have three priorities, like the ones of `withEventBase`: on the least urgent one the loop has an event that ends a round.
#define event_base_new eventloop_base_new
#define event_base_new_with_config eventloop_base_new_with_config
#define event_init eventloop_init

#define event_base_loop eventloop_base_loop
#define event_base_dispatch eventloop_base_dispatch
#define event_base_loopbreak eventloop_base_loopbreak
#define event_base_got_break eventloop_base_got_break
#define event_loop eventloop_loop
#define event_dispatch eventloop_dispatch
#define event_loopbreak eventloop_loopbreak
