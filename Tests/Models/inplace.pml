/*
 * A timer that its loop's owner adds, removes and ends in place, while another thread adds, removes and ends the same timer through the queue
 * of changes (RunLoop+Timers.swift, Firing.swift). changes.pml has the changes of other threads alone, timers.pml has two owners.
 *
 * Each atomic step names the function that makes it, as "File.swift: function". A step is a section under the loop's lock, one atomic
 * operation, or the owner's access to its own queues. The loop has one mode. A second timer, which only the other thread adds, has the same
 * date.
 *
 * A call takes effect in its section under the lock; a fire takes effect when the owner asks for the timer's place.
 *
 * Properties:
 * - A fire takes effect only while the timer is in the mode, and none takes effect once the timer is invalid and out of the mode.
 * - When all calls have returned and the owner has carried out what is queued, the timer is in the mode if the last call that took effect was an
 *   addition, and then the owner has it filed; otherwise it is filed nowhere, every slot is free, and the loop's use has ended.
 * - A slot has one timer at a time. A timer that is finished is not filed, or the owner holds it and is about to clear its slot.
 * - The queue has a join exactly if the timer says so, and the timer is still there when its join is carried out.
 * - The owner files timers in the order in which their additions took effect.
 *
 * Faults that the search must find (Scripts/check-models):
 *   FAULT_OVERTAKE       the owner adds in place although changes are queued
 *   FAULT_KEEP_CHANGE    the owner takes the timer out and leaves the change in the queue with which another thread has added it
 *   FAULT_PLACE_IS_OLD   the owner takes the timer out without comparing the place under the lock
 *   FAULT_STILL_UNKNOWN  the owner adds in place and does not say that its queue has the timer
 *   FAULT_FREE_FILED     another thread gives back a slot that the owner's queue still has
 *   FAULT_FIRE_POPPED    the owner fires what its queue had, without asking whether the timer is still in the mode
 *   FAULT_LEAVE_FILED    the owner takes the timer out and leaves it in its own queue
 *   FAULT_INVALID_FIRES  a fire begins although the timer is invalid
 */

#define SLOTS 3
#define SECOND 2                                /* the other timer, in what has a timer's number */

mtype = { joined, left, died, secondJoined };   /* LoopChange */

/* TimerState: one word. */
bool isIn = false;
bool isInvalid = false;
byte uses = 0;

/* Under the loop's lock. */
byte place = 0;                                 /* Timer.location: the slot, from 1 on; read by the owner without the lock */
bool isJoinQueued = false;                      /* TimerListing.changeIndex */
bool isKnown = false;                           /* TimerListing.isKnownToOwner */
bool isTaken[4];                                /* ModeState.timerSlots does not have the slot */
mtype kinds[6];                                 /* LoopShared.changes */
byte slots[6];
byte orders[6];
byte length = 0;
byte additions = 0;                             /* how many have taken effect */

/* The owner's. */
byte filed[4];                                  /* TimerQueue: whose the slot is; 1 for the timer */
byte lastFiled = 0;                             /* the addition that it filed last */
byte retained = 0;                              /* the slot that it is about to clear: takeOut holds the timer until then */

bool isMember = false;                          /* what the calls that took effect say */
bool isFinished = false;
byte running = 2;

inline append(kind, slot) {
    assert(length < 6);
    kinds[length] = kind;
    slots[length] = slot;
    orders[length] = additions;
    length++
}

/* Removes the change at `at`. */
inline removeChange() {
    do
    :: at + 1 < length -> kinds[at] = kinds[at + 1]; slots[at] = slots[at + 1]; orders[at] = orders[at + 1]; at++
    :: else -> break
    od;
    length--;
    kinds[length] = 0;
    slots[length] = 0;
    orders[length] = 0;
    at = 0
}

/* Takes the queued join of the timer back. */
inline cancelJoin() {
    at = 0;
    do :: at < length && kinds[at] != joined -> at++ :: else -> break od;
    assert(at < length);                        /* the timer says that there is one */
    removeChange();
    isJoinQueued = false
}

inline takeSlot() {
    if
    :: !isTaken[1] -> slot = 1
    :: else -> if :: !isTaken[2] -> slot = 2 :: else -> assert(!isTaken[3]); slot = 3 fi
    fi;
    isTaken[slot] = true
}

inline file(timer, number) {
    assert(filed[slot] == 0 || filed[slot] == timer);
    assert(number > lastFiled);
    filed[slot] = timer;
    lastFiled = number
}

inline finish() {
    atomic {                                    /* Timer.swift: finish */
        assert(!isFinished && isInvalid && uses == 0);
        assert((filed[1] != 1 || retained == 1) && (filed[2] != 1 || retained == 2) && (filed[3] != 1 || retained == 3));
        isFinished = true
    }
}

inline endUse() {
    atomic {                                    /* TimerState.swift: exit */
        assert(uses > 0);
        uses--;
        isLast = isInvalid && uses == 0
    };
    if :: isLast -> finish() :: else fi
}

/* The way of every thread. `isOwner` is a constant. */
inline addSlowly(isOwner) {
    atomic {                                    /* RunLoop+Timers.swift: add */
        slot = 0;
        mustFile = false;
        if
        :: !isIn && !isInvalid ->               /* TimerState.swift: join */
            isIn = true; uses++; isKnown = false; isJoinQueued = false; isMember = true;
            additions++;
            number = additions;
            takeSlot();
            place = slot;
            if
            :: isOwner && length == 0 -> isKnown = true; mustFile = true
            :: else -> append(joined, slot); isJoinQueued = true    /* ChangeQueue.swift: enqueueJoin */
            fi
        :: else
        fi
    };
    if :: mustFile -> file(1, number) :: else -> skip fi
}

inline leave(isOwner) {
    atomic {                                    /* RunLoop+Timers.swift: leave */
        wasIn = isIn;
        endsUnseen = false;
        if
        :: isIn ->
            if
            :: isJoinQueued ->                  /* ChangeQueue.swift: enqueueLeave */
                cancelJoin();
                isTaken[place] = false
            :: else ->
                append(left, place);
#ifdef FAULT_FREE_FILED
                isTaken[place] = false;
#endif
                skip
            fi;
            place = 0;
            isMember = false;
            endsUnseen = !isKnown;
            if :: endsUnseen :: else -> append(died, 0) fi;
            isIn = false
        :: else
        fi
    };
    if :: wasIn && endsUnseen -> endUse() :: else -> skip fi
}

/* Ends the membership in place, and with `ends` the timer; with `fires` also the fire in progress. Sets `isDone`. */
inline takeOut(ends, fires) {
    isDone = false;
    atomic {                                    /* RunLoop+Timers.swift: takeOut */
        isLast = false;
#ifndef FAULT_PLACE_IS_OLD
        if
        :: place == seen ->
#else
        if
        :: true ->
#endif
            isDone = true;
            retained = seen;
            place = 0;
#ifndef FAULT_KEEP_CHANGE
            if :: isJoinQueued -> cancelJoin() :: else fi;    /* ChangeQueue.swift: cancelChange */
#endif
            assert(isTaken[seen]);
            isTaken[seen] = false;
            isMember = false;
            assert(isIn && uses > fires);       /* TimerState.swift: leave */
            isIn = false;
            uses = uses - 1 - fires;
            isInvalid = isInvalid || ends;
            isLast = isInvalid && uses == 0
        :: else
        fi
    };
    if
    :: isDone ->
#ifndef FAULT_LEAVE_FILED
        filed[seen] = 0;                        /* TimerQueue.swift: remove */
#endif
        retained = 0;
        if :: isLast -> finish() :: else fi
    :: else
    fi
}

inline invalidateSlowly(isOwner) {
    atomic {                                    /* TimerState.swift: invalidate */
        wasValid = !isInvalid;
        isInvalid = true;
        wasInLoop = isIn;
        isLast = wasValid && uses == 0
    };
    if
    :: isLast -> finish()
    :: !isLast && wasValid && wasInLoop -> leave(isOwner)    /* RunLoop+Timers.swift: expel */
    :: else
    fi
}

inline applyChanges() {
    remaining = length;                         /* ChangeBatch.swift: applyChanges */
    do
    ::  atomic {                                /* ChangeBatch.swift: takeChange */
            if
            :: remaining == 0 || length == 0 -> taken = 0
            :: else ->
                remaining--;
                taken = kinds[0];
                slot = slots[0];
                number = orders[0];
                at = 0;
                removeChange();
                if
                :: taken == joined ->
                    assert(isIn && place == slot);    /* RunLoop+Timers.swift: isTimer */
                    isJoinQueued = false;
                    isKnown = true              /* TimerMemberships.swift: markFiled */
                :: else
                fi
            fi
        };
        if                                      /* ChangeBatch.swift: apply */
        :: taken == joined -> file(1, number)
        :: taken == secondJoined -> file(SECOND, number)
        :: taken == left ->
            assert(filed[slot] != SECOND);
            filed[slot] = 0;                    /* TimerQueue.swift: remove */
            isTaken[slot] = false
        :: taken == died -> endUse()
        :: else -> break
        fi
    od
}

inline fire() {
    /* What is popped stays in its slot, without a date. */
    popped = (filed[1] == 1 || filed[2] == 1 || filed[3] == 1);    /* TimerQueue.swift: popDue */
    if
    :: popped ->
        if :: length > 0 -> applyChanges() :: else -> skip fi;     /* Firing.swift: fireDueTimers */
        atomic {                                /* Firing.swift: takeForFiring */
            popped = (place != 0);
#ifdef FAULT_FIRE_POPPED
            popped = true;
#endif
            if :: popped -> assert(isMember) :: else fi
        }
    :: else
    fi;
    if
    :: popped ->
        atomic {                                /* TimerState.swift: beginFiring */
            popped = !isInvalid;
#ifdef FAULT_INVALID_FIRES
            popped = true;
#endif
            if :: popped -> assert(!isFinished && !(isInvalid && !isIn)); uses++ :: else fi
        }
    :: else
    fi;
    if
    :: popped ->
        if
        :: endUse()                             /* Firing.swift: fileNext */
        :: seen = place;                        /* Firing.swift: endFired */
            isDone = false;
            if :: seen != 0 -> takeOut(true, 1) :: else fi;
            if
            :: !isDone -> invalidateSlowly(true); endUse()
            :: else
            fi
        fi
    :: else
    fi
}

proctype Owner() {
    byte seen, slot, number, at, remaining, rounds = 0;
    mtype taken;
    bool isLast, isDone, mustFile, wasIn, endsUnseen, wasValid, wasInLoop, popped;
    do
    :: rounds < 3 ->
        rounds++;
        if
        ::  atomic {                            /* RunLoop+Timers.swift: add */
                isDone = false;
                if
#ifdef FAULT_OVERTAKE
                :: !isIn && !isInvalid ->
#else
                :: length == 0 && !isIn && !isInvalid ->
#endif
                    isIn = true; uses++; isJoinQueued = false; isMember = true;
                    additions++;
                    number = additions;
#ifdef FAULT_STILL_UNKNOWN
                    isKnown = false;
#else
                    isKnown = true;
#endif
                    takeSlot();
                    place = slot;
                    isDone = true
                :: else
                fi
            };
            if
            :: isDone -> file(1, number)
            :: else -> addSlowly(true); if :: !mustFile -> applyChanges() :: else -> skip fi
            fi
        ::  seen = place;                       /* RunLoop+Timers.swift: remove */
            isDone = false;
            if :: seen != 0 -> takeOut(false, 0) :: else fi;
            if :: !isDone -> leave(true); applyChanges() :: else fi
        ::  seen = place;                       /* Timer+Scheduling.swift: invalidate */
            isDone = false;
            if :: seen != 0 -> takeOut(true, 0) :: else fi;
            if :: !isDone -> invalidateSlowly(true); applyChanges() :: else fi
        ::  applyChanges()                      /* PendingWork.swift: takeAttention */
        ::  fire()
        fi
    :: else -> break
    od;
    running--;
    running == 0;
    applyChanges();
    /* The second timer is in the mode, and nothing else but the timer, if the last call added it. */
    assert(length == 0 && isIn == isMember && (place != 0) == isMember);
    assert(!isMember || (filed[place] == 1 && isTaken[place] && uses == 1 && !isInvalid));
    assert(isMember || uses == 0);
    assert(isFinished == isInvalid);
    slot = 1;
    do
    :: slot <= SLOTS ->
        assert(isTaken[slot] == (filed[slot] != 0));
        assert(filed[slot] != 1 || slot == place);
        slot++
    :: else -> break
    od
}

proctype Other() {
    byte slot, number, at, rounds = 0;
    bool isLast, mustFile, wasIn, endsUnseen, wasValid, wasInLoop, hasAddedSecond = false;
    do
    :: rounds < 3 ->
        rounds++;
        if
        :: addSlowly(false)
        :: leave(false)                         /* RunLoop+Timers.swift: removeSlowly */
        :: invalidateSlowly(false)              /* Timer+Scheduling.swift: invalidate */
        :: !hasAddedSecond ->
            hasAddedSecond = true;
            atomic {                            /* RunLoop+Timers.swift: add */
                additions++;
                takeSlot();
                append(secondJoined, slot)
            }
        fi
    :: else -> break
    od;
    running--
}

init { atomic { run Owner(); run Other() } }
