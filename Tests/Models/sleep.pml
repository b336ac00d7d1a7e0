/*
 * How the loop sleeps without losing an event (docs/run-sequence.md): the attention bits, the state word, and the wake-up descriptor.
 *
 * Each atomic step names the function that makes it, as "File.swift: function". A step is one atomic operation, a section under one lock,
 * or one system call.
 *
 * In the wait, a callback of a C library may run the loop in another mode, once.
 *
 * Properties: the loop does not sleep over a perform, a wake-up or a stop; a sleep costs at most one write of other threads.
 *
 * Faults that the search must find (Scripts/check-models):
 *   FAULT_LOOK_FIRST   the owner takes the bits before it marks itself as asleep
 *   FAULT_WAKE_FIRST   another thread wakes the loop before it sets the bit
 *   FAULT_LOOK_LATE    the owner checks whether it was woken after it has marked itself as working, and drops the reason for the wake-up
 *   FAULT_WRITE_ALWAYS a thread that finds the loop asleep or already woken writes
 *   FAULT_STAYS_WORKING the wait goes on after a run in a callback as if the loop worked
 *   FAULT_NOT_ENDED    the wait goes on after a run in a callback, and is not ended
 */

#define WAKE 1
#define PERFORMS 2

mtype = { working, asleep, woken };             /* SleepState */

byte attention = 0;
mtype sleepState = working;
bool isStopRequested = false;                   /* RunFrame.stopWord */
byte queue = 0;                                 /* performs, under the lock */
bool edge = false;                              /* the wake-up descriptor has been written since the last wait */
byte writes = 0;                                /* writes during the sleep in progress */
byte asked = 0;                                 /* wake-ups whose callers have returned */
byte seen = 0;                                  /* wake-ups followed by a pass */
byte noted = 0;
bool isOver = false;

inline wakeIfAsleep() {
#ifdef FAULT_WRITE_ALWAYS
    if
    :: atomic { sleepState != working -> sleepState = woken; writes++; edge = true }
    :: atomic { sleepState == working -> skip }
    fi
#else
    if                                          /* Waker.swift: wakeIfAsleep */
    :: atomic { sleepState == asleep -> sleepState = woken; writes++ };
        edge = true                             /* WakeChannel.swift: wake */
    :: atomic { sleepState != asleep -> skip }
    fi
#endif
}

proctype Poster() {
    queue++;                                    /* RunLoop+Perform.swift: perform */
#ifdef FAULT_WAKE_FIRST
    wakeIfAsleep();
    attention = attention | PERFORMS
#else
    attention = attention | PERFORMS;           /* Waker.swift: mark */
    wakeIfAsleep()
#endif
}

proctype Waker() {
    noted++;                                    /* the number of wake-ups that a pass must follow */
    attention = attention | WAKE;               /* Waker.swift: wakeUp */
    wakeIfAsleep();
    asked++
}

proctype Stopper() {
    isStopRequested = true;                     /* RunFrame.swift: requestStop */
    attention = attention | WAKE;               /* Waker.swift: wakeUp */
    wakeIfAsleep()
}

inline takeAttention() {
    atomic { pending = pending | attention; attention = 0 }    /* PendingWork.swift: takeAttention */
}

proctype Owner() {
    byte pending = 0;
    bool wasWoken, hasGuest = true;
    do
    :: isStopRequested -> isOver = true; break  /* RunFrame.swift: takeStop */
    :: else ->
        takeAttention();
        pending = pending & ~WAKE;              /* RunLoop+Running.swift: beginPassWithPendingWork */
        seen = noted;
        takeAttention();
        if
        :: pending & PERFORMS -> atomic { pending = pending & ~PERFORMS; queue = 0 }    /* RunLoop+Perform.swift: performQueued */
        :: else
        fi;
again:  writes = 0;
#ifdef FAULT_LOOK_FIRST
        takeAttention();
        sleepState = asleep;
#else
        sleepState = asleep;                    /* Sleep.swift: sleep */
        takeAttention();                        /* PendingWork.swift: isReasonPending */
#endif
        if
        :: isStopRequested || (pending & WAKE) -> sleepState = working    /* PendingWork.swift: isReasonToStayAwake */
        :: else ->
            if
            :: (pending & PERFORMS) && queue > 0 -> sleepState = working  /* PendingWork.swift: lookIntoQueues */
            :: else ->
                pending = 0;
end:            if
                :: edge -> edge = false         /* Sleep.swift: wait */
                :: hasGuest ->
                    hasGuest = false;
                    assert(writes <= 1);
                    if :: attention & WAKE -> pending = WAKE :: else fi;    /* RunLoop+Running.swift: suspendOuterRun */
                    sleepState = working;       /* Sleep.swift: suspendWait */
                    atomic { pending = pending | (attention & PERFORMS); attention = 0 };    /* the nested run's pass */
                    seen = noted;
                    writes = 0;
#ifndef FAULT_STAYS_WORKING
                    sleepState = asleep;        /* Sleep.swift: resumeWait */
#ifndef FAULT_NOT_ENDED
                    edge = true;
#endif
#endif
                    goto end
                fi;
                assert(writes <= 1);
#ifdef FAULT_LOOK_LATE
                sleepState = working;
                takeAttention();
                pending = 0;
                wasWoken = (sleepState == woken);
#else
                wasWoken = (sleepState == woken);
                sleepState = working;
#endif
                if :: !wasWoken -> goto again :: else -> takeAttention() fi    /* Sleep.swift: didWakeUp */
            fi
        fi
    od
}

/* No process can move any more. */
proctype Judge() {
end: timeout ->
    assert(isOver || (queue == 0 && seen == noted && !isStopRequested))
}

init {
    atomic {
        run Owner();
        run Poster();
        run Poster();
        run Waker();
        run Judge();
        if :: run Stopper() :: skip fi
    }
}
