/*
 * A source in two loops: its handler never runs on two threads at once, and neither loop forgets it
 * (Serving.swift, "A source in several loops").
 *
 * Each atomic step names the function that makes it, as "File.swift: function".
 *
 * A thread signals the source, which is in both loops, and wakes both. A loop that finds the handler running on the other loop's thread
 * registers itself as a waiter; the other loop wakes its waiters after the handler returns.
 *
 * Properties: at most one thread is in the handler; every signal is performed eventually.
 *
 * Faults that the search must find (Scripts/check-models):
 *   FAULT_NO_SECOND_LOOK  the loop that loses a claim does not check again after it has registered itself
 *   FAULT_NO_CLAIM        no loop claims the source
 *   FAULT_WAKE_FIRST      the loop that won the claim checks for waiters before it releases the claim
 */

byte servingLoop = 0;                           /* SourceCore.servingLoop */
bool hasWaiters = false;                        /* SourceCore.hasWaiters */
bool waits[3];                                  /* SourceState.waitingToServe */
bool queued[3];                                 /* ModeState.signaled of each loop */
bool isSignaled = false;                        /* SignalWord; signal.pml has its states */
bool wake[3];                                   /* the loop has been woken; sleep.pml models how */
bool isLocked = false;                          /* Source.state; threads without the lock continue meanwhile */
byte handlers = 0;
byte data = 0, seen = 0;

inline wakeWaiters() {
    atomic {                                    /* Serving.swift: wakeWaiters */
        !isLocked;
        hasWaiters = false;
        all[1] = waits[1]; all[2] = waits[2];
        waits[1] = false; waits[2] = false
    };
    atomic { if :: all[1] -> queued[1] = true; wake[1] = true; all[1] = false :: else fi };    /* CustomSource+Signaling.swift: enqueueSignalAndWake */
    atomic { if :: all[2] -> queued[2] = true; wake[2] = true; all[2] = false :: else fi }
}

proctype Signaller() {
    do
    :: data < 2 ->
        data++;
        isSignaled = true;                      /* SignalWord.swift: claim */
        atomic { queued[1] = true; wake[1] = true };    /* CustomSource+Signaling.swift: enqueueSignal */
        atomic { queued[2] = true; wake[2] = true }
    :: else -> break
    od
}

proctype Loop(byte id) {
    bool all[3];
    bool isMine, isWaiting, isTaken;
end:
    do
    :: id == 1 -> break                         /* the first loop runs another mode: only the second one can serve the source */
    ::  atomic { wake[id] -> wake[id] = false };
        atomic { isTaken = queued[id] && isSignaled; queued[id] = false };    /* ModeSources.swift: takeAll */
        if
        :: isTaken ->
again:      atomic {                            /* SourceCore.swift: claimServing */
                isMine = (servingLoop == 0);
#ifdef FAULT_NO_CLAIM
                isMine = true;
#endif
                if :: isMine -> servingLoop = id :: else fi
            };
            if
            :: isMine ->
                atomic { isTaken = isSignaled; isSignaled = false };    /* SignalWord.swift: take */
                if
                :: isTaken ->
                    handlers++;
                    assert(handlers == 1);
                    seen = data;                /* Serving.swift: perform */
                    handlers--
                :: else
                fi;
#ifdef FAULT_WAKE_FIRST
                if :: hasWaiters -> wakeWaiters() :: else fi;
                servingLoop = 0
#else
                servingLoop = 0;                /* Serving.swift: endServing */
                if :: hasWaiters -> wakeWaiters() :: else fi
#endif
            :: else ->
                atomic { !isLocked -> isLocked = true };    /* Serving.swift: waitToServe */
                isWaiting = (servingLoop != 0);
                if :: isWaiting -> waits[id] = true; hasWaiters = true :: else fi;
                isLocked = false;
                if
                :: !isWaiting -> goto again
                :: else ->
#ifdef FAULT_NO_SECOND_LOOK
                    skip
#else
                    if                          /* Serving.swift: waitToServe */
                    :: servingLoop == 0 -> wakeWaiters()
                    :: else
                    fi
#endif
                fi
            fi
        :: else
        fi
    od
}

proctype Judge() {
end: timeout ->
    assert(seen == data)
}

init {
    atomic {
        run Loop(1);
        run Loop(2);
        run Signaller();
        run Judge()
    }
}
