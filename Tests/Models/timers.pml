/*
 * The word of a timer (TimerState.swift), and what the lock of its loop guards: two owners add, remove and end a timer without queued
 * changes, a third thread invalidates it, and a fourth takes it out of whatever loop it is in.
 *
 * Each atomic step names the function that makes it, as "File.swift: function". A step is one operation on the word, one access to the place,
 * or a section under a loop's lock whose accesses nobody else can see.
 *
 * Properties:
 * - While nobody holds the lock of the timer's loop, the place is that loop's or that of no loop yet, and the list has the timer.
 * - What the lock guards is written by one thread at a time.
 * - Each use ends once. The handler is released once, when the timer is invalid and has no use.
 * - When all have returned and the timer is invalid, it is in no loop and its handler is released.
 *
 * Faults that the search must find (Scripts/check-models):
 *   FAULT_LEAVE_FIRST   the word leaves the loop before the place and the list are settled: another loop takes the timer meanwhile
 *   FAULT_TWO_WORDS     joining a loop and beginning its use are two steps
 *   FAULT_PLACE_IS_OLD  the owner takes the timer out without comparing the place under the lock
 *   FAULT_ALWAYS_LAST   a thread that invalidates the timer releases the handler without looking at the uses
 */

/* TimerState: one word. */
byte loop = 0;
bool isInvalid = false;
byte uses = 0;

byte place = 0;                                 /* Timer.location: the loop's number */
byte listed = 0;                                /* the loop whose list has the timer */
bool isLocked[3];                               /* LoopShared, by loop */
byte writers = 0;                               /* threads that are in what the lock guards */
byte finished = 0;
byte running = 4;

inline lock(id) { atomic { !isLocked[id] -> isLocked[id] = true } }
inline unlock(id) { isLocked[id] = false }

inline beginWriting() { writers++; assert(writers == 1) }
inline endWriting() { writers-- }

inline finish() {
    finished++;                                 /* Timer.swift: finish */
    assert(finished == 1 && isInvalid && uses == 0)
}

inline add(id) {
    lock(id);
    isIn = false;
#ifdef FAULT_TWO_WORDS
    atomic { if :: !isInvalid && loop == 0 -> loop = id; isIn = true :: else fi };
    if :: isIn -> atomic { if :: !isInvalid -> uses++ :: else fi } :: else fi;
#else
    atomic {                                    /* TimerState.swift: join */
        if :: !isInvalid && loop == 0 -> loop = id; uses++; isIn = true :: else fi
    };
#endif
    if
    :: isIn ->                                  /* RunLoop+Timers.swift: add */
        beginWriting();
        assert(listed == 0 && place == 0);
        listed = id;
        place = id;
        endWriting()
    :: else
    fi;
    unlock(id)
}

/* Ends the membership, and with `ends` the timer. */
inline takeOut(id, ends) {
    seen = place;                               /* RunLoop+Timers.swift: remove */
    if
    :: seen == id ->
        lock(id);
        isLast = false;
        isIn = (place == id);                   /* RunLoop+Timers.swift: takeOut */
#ifdef FAULT_PLACE_IS_OLD
        isIn = true;
#endif
        if
        :: isIn ->
#ifdef FAULT_LEAVE_FIRST
            atomic { loop = 0; uses--; isInvalid = isInvalid || ends; isLast = isInvalid && uses == 0 };
#endif
            beginWriting();
            place = 0;
            listed = 0;
            endWriting();
#ifndef FAULT_LEAVE_FIRST
            atomic {                            /* TimerState.swift: leave */
                assert(loop == id && uses > 0);
                loop = 0;
                uses--;
                isInvalid = isInvalid || ends;
                isLast = isInvalid && uses == 0
            }
#endif
        :: else
        fi;
        unlock(id);
        if :: isLast -> finish() :: else fi
    :: else
    fi
}

/* Takes the timer out of a loop from any thread. The use ends with the change that this queues, or here: it makes no difference to others. */
inline takeOutSlowly(id) {
    lock(id);
    isIn = false;
    if
    :: loop == id ->                            /* RunLoop+Timers.swift: leave */
        isIn = true;
        beginWriting();
        place = 0;
        listed = 0;
        endWriting();
        atomic { assert(loop == id); loop = 0 }
    :: else
    fi;
    unlock(id);
    if
    :: isIn ->
        atomic {                                /* TimerState.swift: exit */
            assert(uses > 0);
            uses--;
            isLast = isInvalid && uses == 0
        };
        if :: isLast -> finish() :: else fi
    :: else
    fi
}

proctype Owner(byte id) {
    bool isIn, isLast;
    byte seen, rounds = 0;
    do
    :: rounds < 2 ->
        add(id);
        if
        :: takeOut(id, false)
        :: takeOut(id, true)
        :: skip
        fi;
        rounds++
    :: else -> break
    od;
    /* The owner's own invalidation comes through here if the timer is not in its loop. */
    running--
}

proctype Remover() {
    bool isIn, isLast;
    takeOutSlowly(1);
    takeOutSlowly(2);
    running--
}

proctype Invalidator() {
    bool isIn, isLast;
    byte seen;
    bool wasValid;
    atomic {                                    /* TimerState.swift: invalidate */
        wasValid = !isInvalid;
        isInvalid = true;
        seen = loop;
        isLast = wasValid && uses == 0
    };
#ifdef FAULT_ALWAYS_LAST
    isLast = wasValid;
#endif
    if
    :: isLast -> finish()
    :: !isLast && wasValid && seen != 0 -> takeOutSlowly(seen)    /* RunLoop+Timers.swift: expel */
    :: else
    fi;
    running--
}

init {
    atomic { run Owner(1); run Owner(2); run Remover(); run Invalidator() };
    running == 0;
    assert(isInvalid);
    assert(loop == 0 && place == 0 && listed == 0);
    assert(uses == 0 && finished == 1)
}
