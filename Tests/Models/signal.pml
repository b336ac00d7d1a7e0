/*
 * The signal of a custom source: if a thread calls signal() and then wakes the loop, the loop performs the source.
 *
 * Each atomic step names the function that makes it, as "File.swift: function"; Tidy/ModelTests check that it exists. A step is one atomic
 * operation, or a section under one lock. The model's memory is sequentially consistent, as the code's operations are.
 *
 * Property: if a thread writes, calls signal() and then wakeUp(), the perform sees the write.
 *
 * Faults that the search must find (Scripts/check-models):
 *   FAULT_TWO_STATES  a signal has only two states: a thread that finds it pending returns, although it is not enqueued yet
 *   FAULT_NO_COUNT    the taken signals are not counted: a late thread marks the next signal as enqueued
 *   FAULT_NOTE_FIRST  a signal is marked as enqueued before it is enqueued
 */

#define WAKE 1
#define SIGNALS 2

mtype = { clear, signaled, enqueued };          /* SignalWord */
mtype = { working, asleep, woken };             /* SleepState */

mtype word = clear;
byte taken = 0;                                 /* the count in the upper bits of SignalWord */
bool queued = false;                            /* ModeState.signaled has the membership */
byte attention = 0;
mtype sleepState = working;

byte data = 0;                                  /* the waking thread writes this before it signals */
byte seen = 0;                                  /* the data that the last perform saw */
bool isDone = false;

inline signal() {
    atomic {                                    /* SignalWord.swift: claim */
        claimed = (word != enqueued);
#ifdef FAULT_TWO_STATES
        claimed = (word == clear);
#endif
        if :: word == clear -> word = signaled :: else fi;
        count = taken
    }
    if
    :: claimed ->
#ifdef FAULT_NOTE_FIRST
        atomic { if :: word == signaled && taken == count -> word = enqueued :: else fi }
#endif
        queued = true;                          /* CustomSource+Signaling.swift: enqueueSignalLocked */
        attention = attention | SIGNALS;        /* Waker.swift: mark */
        atomic {                                /* SignalWord.swift: markEnqueued */
#ifdef FAULT_NO_COUNT
            if :: word == signaled -> word = enqueued :: else fi
#else
            if :: word == signaled && taken == count -> word = enqueued :: else fi
#endif
        }
    :: else
    fi
}

/* Signals and does not wake the loop. */
proctype Signaller() {
    bool claimed;
    byte count;
    signal()
}

/* Signals twice, and wakes the loop after each signal. */
proctype Waker() {
    bool claimed;
    byte count;
    do
    :: data < 2 ->
        data++;
        signal();
        attention = attention | WAKE;           /* Waker.swift: wakeUp */
        if                                      /* Waker.swift: wakeIfAsleep */
        :: atomic { sleepState == asleep -> sleepState = woken }
        :: atomic { sleepState != asleep -> skip }
        fi
    :: else -> break
    od;
    isDone = true
}

inline takeAttention() {
    atomic { pending = pending | attention; attention = 0 }    /* PendingWork.swift: takeAttention */
}

proctype Owner() {
    byte pending = 0;
    bool isTaken;
    do
    ::  takeAttention();
        pending = pending & ~WAKE;              /* RunLoop+Running.swift: beginPassWithPendingWork */
        takeAttention();
        if
        :: pending & SIGNALS ->
            atomic {                            /* ModeSources.swift: takeAll */
                pending = pending & ~SIGNALS;
                isTaken = queued && word != clear;
                queued = false
            }
            if
            :: isTaken ->
                atomic {                        /* SignalWord.swift: take */
                    isTaken = (word != clear);
                    if :: isTaken -> word = clear; taken++ :: else fi
                }
                if :: isTaken -> seen = data :: else fi         /* Serving.swift: perform */
            :: else
            fi
        :: else
        fi;
        sleepState = asleep;                    /* Sleep.swift: sleep */
        takeAttention();                        /* PendingWork.swift: isReasonPending */
        if
        :: pending & WAKE -> sleepState = working
        :: else ->
            if
            :: (pending & SIGNALS) && queued && word != clear -> sleepState = working    /* PendingWork.swift: lookIntoQueues */
            :: else ->
                pending = 0;
end:            atomic { sleepState == woken -> sleepState = working }    /* Sleep.swift: wait */
            fi
        fi
    od
}

/* No process can move any more. */
proctype Judge() {
end: timeout ->
    assert(!isDone || seen == data)
}

init {
    atomic {
        run Owner();
        run Signaller();
        run Signaller();
        run Waker();
        run Judge()
    }
}
