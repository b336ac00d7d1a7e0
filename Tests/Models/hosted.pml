/*
 * How a hosted loop sleeps in its host without losing an event (docs/embedding.md): as in sleep.pml, but the host waits, and calls a step
 * when the descriptor is readable. The write to the channel keeps it readable until the step asks the kernel.
 *
 * Each atomic step names the function that makes it, as "File.swift: function". A step is one atomic operation, a section under one lock,
 * or one system call.
 *
 * Properties: the host does not sleep over a perform, a signal or a wake-up; other threads write at most once for each sleep.
 *
 * Faults that the search must find (Scripts/check-models):
 *   FAULT_LOOK_FIRST   the owner takes the bits before it marks itself as asleep
 *   FAULT_ASK_LATE     the owner asks the kernel after it has marked itself as asleep, and takes the edge of a wake-up
 *   FAULT_NO_WRITE     the owner finds a reason to stay awake and leaves the descriptor as it is
 *   FAULT_MARK_ONLY    a thread that signals a source marks it and wakes nobody, as it may if the loop is not hosted
 */

#define WAKE 1
#define PERFORMS 2
#define SIGNALS 4

mtype = { working, asleep, woken };             /* SleepState */

byte attention = 0;
mtype sleepState = working;
byte queue = 0;                                 /* performs, under the lock */
bool isSignaled = false;                        /* a custom source, under the lock */
bool edge = true;                               /* the channel was written since the kernel was asked: the descriptor is readable */
byte writes = 0;                                /* other threads' writes during the sleep in progress */
byte noted = 0;                                 /* wake-ups */
byte seen = 0;                                  /* wake-ups followed by a pass */
byte running = 3;

inline wakeIfAsleep() {
    if                                          /* Waker.swift: wakeIfAsleep */
    :: atomic { sleepState == asleep -> sleepState = woken; writes++; assert(writes <= 1) };
        edge = true                             /* WakeChannel.swift: wake */
    :: atomic { sleepState != asleep -> skip }
    fi
}

proctype Poster() {
    queue++;                                    /* RunLoop+Perform.swift: perform */
    attention = attention | PERFORMS;           /* Waker.swift: mark */
    wakeIfAsleep();
    running--
}

proctype Signaler() {
    isSignaled = true;                          /* CustomSource+Signaling.swift: enqueueSignal */
    attention = attention | SIGNALS;            /* Waker.swift: mark */
#ifndef FAULT_MARK_ONLY
    wakeIfAsleep();                             /* Waker.swift: mark, if the loop is hosted */
#endif
    running--
}

proctype Waker() {
    noted++;
    attention = attention | WAKE;               /* Waker.swift: wakeUp */
    wakeIfAsleep();
    running--
}

inline takeAttention() {
    atomic { pending = pending | attention; attention = 0 }    /* PendingWork.swift: takeAttention */
}

proctype Host() {
    byte pending = 0;
    do
    :: running == 0 && !edge ->
        /* The host sleeps, and nobody is left to wake it. */
        assert(queue == 0 && !isSignaled && seen == noted);
        break
    :: edge ->                                  /* the host finds the descriptor readable, and calls step */
        sleepState = working;                   /* Hosting.swift: wakeInHost */
        takeAttention();
        pending = pending & ~WAKE;              /* RunLoop+Running.swift: beginPassWithPendingWork */
        seen = noted;
        takeAttention();
        if
        :: pending & PERFORMS -> atomic { pending = pending & ~PERFORMS; queue = 0 }        /* RunLoop+Perform.swift: performQueued */
        :: else
        fi;
        if
        :: pending & SIGNALS -> atomic { pending = pending & ~SIGNALS; isSignaled = false } /* Serving.swift: performSignaled */
        :: else
        fi;
#ifndef FAULT_ASK_LATE
        edge = false;                           /* Sleep.swift: askKernel */
#endif
        writes = 0;
#ifdef FAULT_LOOK_FIRST
        takeAttention();
        sleepState = asleep;
#else
        sleepState = asleep;                    /* Hosting.swift: sleepInHost */
#ifdef FAULT_ASK_LATE
        edge = false;
#endif
        takeAttention();                        /* PendingWork.swift: isReasonPending */
#endif
#ifndef FAULT_NO_WRITE
        if
        :: (pending & WAKE) || ((pending & PERFORMS) && queue > 0) || ((pending & SIGNALS) && isSignaled) ->
            if                                  /* Waker.swift: wakeIfAsleep, by the owner */
            :: atomic { sleepState == asleep -> sleepState = woken }; edge = true
            :: atomic { sleepState != asleep -> skip }
            fi
        :: else -> pending = 0
        fi
#endif
    od
}

init {
    atomic { run Host(); run Poster(); run Signaler(); run Waker() }
}
