// Making a libevent base when descriptors run short.
//
// libevent 2.1.12 ends the process if it cannot make a base's pipe for signals (`evsig_init_` calls `event_sock_err`, and event.h says of
// the fatal callback: "the callback should not return"). So we check for free descriptors first, and leave libevent by a jump if it fails
// anyway (decision 21).

#include "CPlatform.h"

#include <errno.h>
#include <setjmp.h>
#include <stdatomic.h>
#include <stddef.h>
#include <unistd.h>

enum { MOST_ROOM = 512 };

// Held while descriptors are taken in order to count them, so that nobody takes the shortage of this moment for a lasting one. Held as a
// global: see forks.c.
static struct cplatform_lock check;

void cplatform_hold_room_checks(void) { cplatform_lock(&check); }
void cplatform_release_room_checks(void) { cplatform_unlock(&check); }

int cplatform_check_room(int count) {
    int placeholders[MOST_ROOM], made = 0, code = 0;
    int cancellation = cplatform_hold_cancellation();
    cplatform_hold_room_checks();
    while (made < count && made < MOST_ROOM) {
        placeholders[made] = cplatform_make_placeholder();
        if (placeholders[made] < 0) {
            code = errno;
            break;
        }
        made++;
    }
    while (made > 0) close(placeholders[--made]);
    cplatform_release_room_checks();
    cplatform_resume_cancellation(cancellation);
    return code;
}

// The number of descriptors that must be free before libevent is asked for a base: three for the base, one for its deadline, and four
// spare. Other threads may take so many at the same moment that libevent gets too few. A descriptor is then lost (see below), and from then
// on twice as many must be free, so that few are lost in total.
static atomic_int room = 8;

// Where the calling thread continues if it leaves libevent; null while it makes no base.
static _Thread_local sigjmp_buf *way_out;
// Set before the first base is made.
static void (*on_failure)(int code);

void cplatform_on_libevent_failure(void (*body)(int code)) { on_failure = body; }

// The jump crosses only frames of libevent's. What they had allocated leaks: some memory, and the descriptor of the kernel's set, whose
// number libevent has not passed on.
void cplatform_libevent_gave_up(int code) {
    if (way_out) siglongjmp(*way_out, 1);
    on_failure(code);
}

struct event_base *cplatform_make_event_base(
    struct event_base *(*make)(const struct event_config *), const struct event_config *config) {
    int shortage = cplatform_check_room(atomic_load(&room));
    if (shortage != 0) {
        errno = shortage;
        return NULL;
    }
    sigjmp_buf here;
    errno = 0;
    if (sigsetjmp(here, 0) == 0) {
        way_out = &here;
        struct event_base *base = make(config);
        way_out = NULL;
        if (base == NULL && errno == 0) errno = ENOMEM;
        return base;
    }
    way_out = NULL;
    int saved = errno, present = atomic_load(&room);
    if (present < MOST_ROOM) atomic_store(&room, 2 * present);
    errno = saved == 0 ? EMFILE : saved;
    return NULL;
}
