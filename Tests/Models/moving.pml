/*
 * A timer and an observer that their handlers move to another loop, which is on another thread: from when on may that loop call them? An observer
 * that a third thread moves. And a timer on demand, whose date another thread sets while the loop fires it.
 *
 * Each atomic step names the function that makes it, as "File.swift: function". A step is one operation on a shared word, or a section under a
 * loop's lock. The second loop had the item before, and may have it in a batch that it has not finished. A change of the timer's tolerance has the
 * second loop file it again at any time.
 *
 * Properties:
 * - An item that is called once is called once.
 * - Each date of a timer is fired once.
 * - No handler runs on two threads at once.
 * - In the end, the second loop has filed the timer under its date.
 * - A timer on demand is called after each setting of a date that has come, and not more often than its date is set. A later date that is set last
 *   stays.
 *
 * Faults that the search must find (Scripts/check-models):
 *   FAULT_VALID_LATE     the firing of a timer that fires once ends before the timer is invalid
 *   FAULT_NEXT_LATE      the firing of a timer ends before the timer has its next date
 *   FAULT_DATE_FIRST     the loop reads the date before it begins the firing
 *   FAULT_NOT_NOTIFIED   the loop whose handler has moved the timer sends no change to the other loop
 *   FAULT_ONCE_LATE      the call of an observer that is called once ends before the observer is invalid
 *   FAULT_TAKEN_LATE     a timer on demand loses its date after its call: another thread may have set the date that was fired
 *   FAULT_TAKEN_BLINDLY  it loses whatever date it has by then
 *   FAULT_CALL_UNCLAIMED the loop looks whether the observer is being called, and says in a second step that it calls it
 *   FAULT_OVER_FIRST     the loop looks whether the observer is valid before it says that it calls it
 */

#define NEVER 9
#define LAST_DUE 2                              /* dates 1 and 2 have come */

bool repeats;

/* A timer. */
byte loop = 1;                                  /* TimerState */
bool isInvalid = false, isFiring = false;       /* the same word */
byte date = 1;                                  /* Timer.date */
bool isQueued = false;                          /* ChangeQueue of the second loop: the timer has joined it, or has another date */
byte filed = 1;                                 /* TimerQueue of the second loop: it has popped the timer, before that left */
bool isFired[4];
byte inHandler = 0;

/* An observer. */
byte observedIn = 1;                            /* Observer.loopID */
byte callingLoop = 0;
bool isOver = false;                            /* Rundown */
byte calls = 0;

/* A timer on demand, with the date and the flags of the other timer. */
bool isDateSet = false;
bool hasRequest = false;                        /* what the handler does, for each setting of the date */
byte settings = 0;
bool isPutOff = false;                          /* the last setting is of a date that has not come */

byte running = 4;

inline beginFiring(id) {
#ifdef FAULT_DATE_FIRST
    fired = date;
#endif
    atomic {                                    /* TimerState.swift: beginFiring */
        isBegun = !isInvalid && !isFiring && loop == id;
        if :: isBegun -> isFiring = true :: else fi
    };
#ifndef FAULT_DATE_FIRST
    fired = date                                /* Firing.swift: fireIfStillDue */
#endif
}

inline callHandler() {
    assert(!isFired[fired]);
    isFired[fired] = true;
    inHandler++;
    assert(inHandler == 1)
}

inline setNextDate() {
    atomic { if :: date == fired -> date = fired + 1 :: else fi }    /* Firing.swift: fileNext */
}

/* The handler has returned. */
inline endCall() {
    inHandler--;
    if
    :: repeats ->
#ifdef FAULT_NEXT_LATE
        isFiring = false;
        setNextDate()
#else
        setNextDate();
        isFiring = false                        /* TimerState.swift: endFiring */
#endif
    :: else ->
#ifdef FAULT_VALID_LATE
        isFiring = false;
        isInvalid = true
#else
        isInvalid = true;                       /* Firing.swift: endFired */
        isFiring = false                        /* TimerState.swift: endFiring */
#endif
    fi
}

proctype FirstFires() {
    byte fired; bool isBegun;
    beginFiring(1);
    assert(isBegun);
    callHandler();
    atomic { loop = 2; isQueued = true };       /* RunLoop+Timers.swift: add */
    endCall();
#ifndef FAULT_NOT_NOTIFIED
    isQueued = true;                            /* ChangeBatch.swift: submitRedate */
#endif
    running--
}

proctype SecondFires() {
    byte fired, rounds = 0; bool isBegun, wasFiring, wasLast;
    do
    ::  wasLast = (running == 1);
        if
        :: filed <= LAST_DUE ->
            beginFiring(2);
            if
            :: isBegun && fired <= LAST_DUE -> callHandler(); endCall(); filed = date
            :: isBegun && fired > LAST_DUE -> isFiring = false; filed = date    /* Firing.swift: giveUpFiring */
            :: else -> filed = NEVER            /* it is in this loop no more, or gets a change */
            fi
        :: else
        fi;
        if
        :: isQueued || rounds < 2 ->            /* ChangeBatch.swift: applyChanges */
            if :: isQueued -> isQueued = false :: else -> rounds++ fi;
            if
            :: loop == 2 ->
                wasFiring = isFiring;           /* RunLoop+Timers.swift: file */
                if :: wasFiring -> filed = NEVER :: else -> filed = date fi
            :: else
            fi
        :: else -> if :: wasLast && filed > LAST_DUE -> break :: else fi
        fi
    od;
    assert(isInvalid || filed == date);
    running--
}

proctype FiresOnDemand() {
    byte fired; bool isTaken, wasSet, wasLast;
    do
    ::  wasLast = (running == 1);
        if
        :: filed <= LAST_DUE ->
            atomic { isFiring = true; isDateSet = false };    /* TimerState.swift: beginFiring */
            fired = date;                       /* Firing.swift: fireIfStillDue */
            isTaken = (fired <= LAST_DUE);
#ifndef FAULT_TAKEN_LATE
            if
            :: isTaken ->
#ifdef FAULT_TAKEN_BLINDLY
                date = NEVER
#else
                atomic { isTaken = (date == fired); if :: isTaken -> date = NEVER :: else fi }    /* Firing.swift: takeDate */
#endif
            :: else
            fi;
#endif
            if
            :: isTaken ->
                calls++;
                assert(calls <= settings);
                hasRequest = false              /* Timer.swift: callHandler */
            :: else
            fi;
#ifdef FAULT_TAKEN_LATE
            wasSet = isDateSet;
            if
            :: isTaken && !wasSet -> atomic { if :: date == fired -> date = NEVER :: else fi }
            :: else
            fi;
#endif
            isFiring = false;                   /* TimerState.swift: endFiring */
            filed = date                        /* RunLoop+Timers.swift: reschedule */
        :: else
        fi;
        if
        :: isQueued -> isQueued = false; filed = date    /* ChangeBatch.swift: applyChanges */
        :: else -> if :: wasLast && filed > LAST_DUE -> break :: else fi
        fi
    od;
    assert(isPutOff -> date == LAST_DUE + 1 : !hasRequest);
    running--
}

proctype SetsDates() {
    byte rounds = 0;
    do
    :: rounds < 2 ->
        settings++;
        hasRequest = true;
        if :: date = 1 :: date = 2 fi;          /* Timer+Scheduling.swift: setDate */
        isDateSet = true;                       /* TimerState.swift: noteDateSet */
        isQueued = true;                        /* ChangeBatch.swift: submitRedate */
        rounds++
    :: else -> break
    od;
    if
    :: isPutOff = true;
        date = LAST_DUE + 1;                    /* Timer+Scheduling.swift: setDate */
        isDateSet = true;
        isQueued = true
    :: skip
    fi;
    running--
}

inline beginCalling(id) {
#ifdef FAULT_OVER_FIRST
    wasOver = isOver;
#endif
#ifdef FAULT_CALL_UNCLAIMED
    isBegun = (callingLoop == 0);
    if :: isBegun -> callingLoop = id :: else fi;
#else
    atomic {                                    /* RunLoop+Observers.swift: call */
        isBegun = (callingLoop == 0);
        if :: isBegun -> callingLoop = id :: else fi
    };
#endif
#ifndef FAULT_OVER_FIRST
    wasOver = isOver;                           /* Observer.swift: isValid */
#endif
}

inline beginCallingHandler() {
    calls++;
    assert(repeats || calls == 1);
    inHandler++;
    assert(inHandler == 1)
}

inline endCalling() {
    inHandler--;
#ifdef FAULT_ONCE_LATE
    callingLoop = 0;
    isOver = !repeats;
#else
    isOver = !repeats;                          /* RunLoop+Observers.swift: endCall */
    callingLoop = 0;
#endif
}

proctype FirstNotifies() {
    bool isBegun, wasOver;
    beginCalling(1);
    if
    :: isBegun && !wasOver ->
        beginCallingHandler();
        observedIn = 2;                         /* RunLoop+Observers.swift: add */
        endCalling()
    :: isBegun && wasOver -> callingLoop = 0
    :: else
    fi;
    running--
}

proctype Notifies(byte id) {
    bool isBegun, wasOver, isMember;
    isMember = (observedIn == id);              /* RunLoop+Observers.swift: isMember */
    if
    :: isMember ->
        beginCalling(id);
        if
        :: isBegun && !wasOver -> beginCallingHandler(); endCalling()
        :: isBegun && wasOver -> callingLoop = 0
        :: else
        fi
    :: else
    fi;
    running--
}

/* A third thread. */
proctype MovesObserver() {
    observedIn = 2;                             /* RunLoop+Observers.swift: add */
    running--
}

/* One kind at a time. */
init {
    atomic {
        if :: repeats = true :: repeats = false fi;
        if
        :: running = 2; run FirstFires(); run SecondFires()
        :: running = 2; settings = 1; hasRequest = true; run FiresOnDemand(); run SetsDates()
        :: running = 2; run FirstNotifies(); run Notifies(2)
        :: running = 3; run Notifies(1); run Notifies(2); run MovesObserver()
        fi
    }
}
