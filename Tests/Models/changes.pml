/*
 * The queue of changes: the owner carries out the changes that other threads make (ChangeQueue.swift, ChangeBatch.swift).
 *
 * Each atomic step names the function that makes it, as "File.swift: function". A step is a section under the loop's lock, one atomic
 * operation, or the owner's access to its own queues and bases.
 *
 * One thread invalidates a source and then queues a perform, which closes the descriptor. Another thread adds a timer, sets its date, and
 * removes it, twice. A third thread sets the date of a timer that the owner knows.
 *
 * Properties:
 * - When the perform runs, the kernel no longer has the source.
 * - A timer's slot is reused only if the owner's queue does not contain it.
 * - The owner files the most recent date.
 * - Each use of the timer that a loop began ends exactly once.
 * - The queue is no longer than its items account for, and a call carries out no more changes than were queued when it began.
 * - The loop does not sleep over a change.
 *
 * Faults that the search must find (Scripts/check-models):
 *   FAULT_OVERTAKE     the owner runs performs without first carrying out the changes queued before them
 *   FAULT_NOTE_LATE    the owner marks a timer as filed only after filing it, and without the lock
 *   FAULT_READ_FIRST   the owner reads the date before it clears the flag for a queued change
 *   FAULT_FLAG_FIRST   the setter sets the flag without the lock, before it queues the change
 *   FAULT_UNTIL_EMPTY  the owner continues until the queue is empty
 */

#define CHANGES 1
#define PERFORMS 2

mtype = { working, asleep, woken };             /* SleepState */
mtype = { sourceEnd, timerJoined, timerLeft, timerDied, timerChanged };    /* LoopChange */

byte attention = 0;
mtype sleepState = working;
bool isWaiting = false;                         /* in the kernel */

/* LoopShared.changes: a list, from which a change may be removed. */
mtype kinds[6];
byte length = 0;

bool isRegistered = true;                       /* the kernel's set contains the source */
bool performIsQueued = false;

/* The timer that is added and removed. */
bool isHere = false;                            /* the timer's place is this loop */
bool isPending = false;                         /* the timer's join is queued: TimerMembership.changeIndex */
bool isKnown = false;                           /* TimerListing.isKnownToOwner */
bool slotIsTaken = false;                       /* ModeState.timerSlots does not have its slot */
bool slotIsFiled = false;                       /* the owner's TimerQueue has its slot */
byte uses = 0;                                  /* TimerState, for the loop's uses only */

/* The timer that the owner knows. */
byte date = 0, filedDate = 0;
bool isRedateQueued = false;                    /* TimerState: redateQueued */

inline append(kind) {
    assert(length < 6);
    kinds[length] = kind;
    length++
}

/* Removes the first change of a kind from any position. */
inline removeChange(kind) {
    at = 0;
    do :: at < length && kinds[at] != kind -> at++ :: else -> break od;
    assert(at < length);
    do :: at + 1 < length -> kinds[at] = kinds[at + 1]; at++ :: else -> break od;
    length--;
    kinds[length] = 0;
    at = 0
}

inline notify(word) {
    attention = attention | word;               /* Waker.swift: mark */
    if                                          /* Waker.swift: wakeIfAsleep */
    :: atomic { sleepState == asleep -> sleepState = woken }
    :: atomic { sleepState != asleep -> skip }
    fi
}

proctype Closer() {
    atomic { append(sourceEnd) };               /* ChangeQueue.swift: enqueueChange */
    notify(CHANGES);
    performIsQueued = true;                     /* RunLoop+Perform.swift: perform */
    notify(PERFORMS)
}

proctype Requester() {
    byte at, rounds = 0;
    bool endsUnseen;
    do
    :: rounds < 2 ->
        atomic {                                /* RunLoop+Timers.swift: add */
            isHere = true; isKnown = false; uses++;
            if :: !slotIsTaken -> slotIsTaken = true :: else fi;    /* a new slot, if the owner has not returned the old one */
            isPending = true;
            append(timerJoined)                 /* ChangeQueue.swift: enqueueJoin */
        };
        notify(CHANGES);
        atomic {                                /* RunLoop+Timers.swift: leave */
            if
            :: isPending ->                     /* ChangeQueue.swift: enqueueLeave */
                removeChange(timerJoined);
                isPending = false;
                assert(!slotIsFiled);
                slotIsTaken = false
            :: else -> append(timerLeft)
            fi;
            isHere = false;
            endsUnseen = !isKnown;
            if :: endsUnseen :: else -> append(timerDied) fi
        };
        if :: endsUnseen -> uses-- :: else fi;
        notify(CHANGES);
        /* The model has one slot: the second round waits until the owner has returned it. */
        !slotIsTaken;
        rounds++
    :: else -> break
    od
}

proctype Setter() {
    bool mustQueue;
    byte own, at;
    atomic { date++; own = date };              /* Timer+Scheduling.swift: setDate */
#ifdef FAULT_FLAG_FIRST
    atomic { mustQueue = !isRedateQueued; isRedateQueued = true };
    if
    :: mustQueue -> atomic { append(timerChanged) }; notify(CHANGES)
    :: else
    fi;
#else
    atomic {                                    /* ChangeBatch.swift: submitRedate */
        if :: isRedateQueued -> removeChange(timerChanged) :: else fi;    /* ChangeQueue.swift: enqueueRedate */
        append(timerChanged);
        isRedateQueued = true
    };
    notify(CHANGES);
#endif
    /* The loop does not continue to sleep over a date whose setter has returned. */
    assert(!isWaiting || sleepState == woken || filedDate >= own)
}

inline takeAttention() {
    atomic { pending = pending | attention; attention = 0 }    /* PendingWork.swift: takeAttention */
}

inline carryOut() {
    pending = pending & ~CHANGES;               /* ChangeBatch.swift: applyChanges */
    left = 255;
    carriedOut = 0;
    do
    ::  atomic {                                /* ChangeBatch.swift: takeChange */
            if :: left == 255 -> left = length; batch = length :: else fi;
            isLast = (length == 0 || left == 0);
#ifdef FAULT_UNTIL_EMPTY
            isLast = (length == 0);
#endif
            if
            :: isLast ->
                if :: length > 0 -> pending = pending | CHANGES :: else fi
            :: else ->
                left--;
                taken = kinds[0];
                removeChange(taken);
                carriedOut++;
                assert(carriedOut <= batch);
                if
#ifndef FAULT_NOTE_LATE
                :: taken == timerJoined -> isPending = false; isKnown = true    /* TimerMemberships.swift: markFiled */
#endif
#ifndef FAULT_READ_FIRST
                :: taken == timerChanged -> isRedateQueued = false
#endif
                :: else
                fi
            fi
        };
        if :: isLast -> break :: else fi;
        if                                      /* ChangeBatch.swift: apply */
        :: taken == sourceEnd -> isRegistered = false
        :: taken == timerJoined ->
            slotIsFiled = true;                 /* TimerQueue.swift: file */
#ifdef FAULT_NOTE_LATE
            isPending = false; isKnown = true
#endif
        :: taken == timerLeft ->
            slotIsFiled = false;                /* TimerQueue.swift: remove */
            slotIsTaken = false
        :: taken == timerDied -> assert(uses > 0); uses--
        :: taken == timerChanged ->
            filedDate = date;                   /* RunLoop+Timers.swift: fileAgain */
#ifdef FAULT_READ_FIRST
            isRedateQueued = false
#endif
        fi
    od
}

proctype Owner() {
    byte pending = 0, left, batch, carriedOut, at;
    mtype taken;
    bool hasPerform, isLast;
    do
    ::  takeAttention();                        /* RunLoop+Running.swift: beginPassWithPendingWork */
        if :: pending & CHANGES -> carryOut() :: else fi;
        takeAttention();
        if
        :: pending & PERFORMS ->
            pending = pending & ~PERFORMS;
            atomic { hasPerform = performIsQueued; performIsQueued = false };    /* RunLoop+Perform.swift: performQueued */
#ifndef FAULT_OVERTAKE
            takeAttention();                    /* PendingWork.swift: finishPendingEnds */
            if :: pending & CHANGES -> carryOut() :: else fi;
#endif
            if :: hasPerform -> assert(!isRegistered) :: else fi    /* RunLoop+Perform.swift: performQueued */
        :: else
        fi;
        sleepState = asleep;                    /* Sleep.swift: sleep */
        takeAttention();                        /* PendingWork.swift: isReasonPending */
        if
        :: pending -> sleepState = working
        :: else ->
            isWaiting = true;
end:        atomic { sleepState == woken -> sleepState = working; isWaiting = false }    /* Sleep.swift: wait */
        fi
    od
}

/* No process can move any more. */
proctype Judge() {
end: timeout ->
    assert(length == 0 && !performIsQueued && !isRegistered);
    assert(filedDate == date && !isRedateQueued);
    assert(uses == 0 && !slotIsFiled && !slotIsTaken)
}

init {
    atomic {
        run Owner();
        run Judge();
        if
        :: run Closer(); run Setter()
        :: run Closer(); run Requester()
        :: run Requester(); run Setter(); isRegistered = false
        :: run Setter(); run Setter(); isRegistered = false
        fi
    }
}
