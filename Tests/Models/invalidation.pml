/*
 * The end of a source: invalidation, the uses that the rundown counts, and the last callouts.
 *
 * Each atomic step names the function that makes it, as "File.swift: function".
 *
 * Two threads invalidate a source that is in one loop. A third thread adds it to another mode and so begins a use of its own. The loop's
 * thread serves the source, and the handler may run the loop again, which carries out changes.
 *
 * Properties: the last callouts are made exactly once. They are not made while a handler is in progress, while the kernel has the
 * descriptor, or while a use is in progress. They are made eventually. When invalidate() returns, its thread or another one has queued the
 * end of the source, and has marked the change, so that the owner carries it out before what the caller queues next.
 *
 * Faults that the search must find (Scripts/check-models):
 *   FAULT_END_IN_CALL    a membership ends its use while its handler is on the stack
 *   FAULT_TWO_STEPS      a use begins in two steps: a check whether the source is valid, and an increment
 *   FAULT_SECOND_RETURNS the second thread to invalidate returns at once, although the first one may not have queued the end yet
 *   FAULT_MARK_LATE      the change is marked after the thread that invalidates second can find the source in no loop
 *   FAULT_ENDED_TWICE    a change for a dead membership is queued again after the owner has carried it out
 */

bool isInvalid = false;                         /* Rundown: the bit, and the count */
byte uses = 1;                                  /* the membership's use */
bool isDead = false;                            /* SourceMembership, under the loop's lock */
bool isForgotten = false;                       /* SourceState: the membership */
byte endsQueued = 0;                            /* LoopShared.changes */
bool isMarked = false;                          /* Waker.attention: .changes */
bool isTaken = false;                           /* the owner has taken the mark, and carries out changes before it calls anything */
bool isRegistered = true;
byte callsInProgress = 0;
bool endsAfterCalls = false;
byte finished = 0;

inline finish() {
    finished++;                                 /* Source.swift: finish */
    assert(finished == 1);
    assert(uses == 0);
    assert(callsInProgress == 0);
    assert(!isRegistered)
}

inline exitUse() {
    atomic {                                    /* Rundown.swift: exit */
        assert(uses > 0);
        uses--;
        isLast = (isInvalid && uses == 0)
    };
    if :: isLast -> finish() :: else fi
}

proctype Invalidator() {
    bool isFirst, isLast, isQueued = false;
    atomic {                                    /* Rundown.swift: invalidate */
        isFirst = !isInvalid;
        isInvalid = true;
        isLast = (isFirst && uses == 0)
    };
#ifdef FAULT_SECOND_RETURNS
    if :: isFirst :: else -> goto over fi;
#endif
    if
    :: isLast -> finish()
    :: !isLast && isForgotten                   /* RunLoop+Sources.swift: invalidate */
    :: else ->
        atomic {                                /* RunLoop+Sources.swift: expel, leaveMarked */
            if
#ifdef FAULT_ENDED_TWICE
            :: isDead = true; endsQueued++; isQueued = true
#else
            :: !isDead -> isDead = true; endsQueued++; isQueued = true
            :: else
#endif
            fi;
#ifndef FAULT_MARK_LATE
            if :: isQueued -> isMarked = true :: else fi
#endif
        };
        isForgotten = true;                     /* RunLoop+Sources.swift: afterLeaving */
#ifdef FAULT_MARK_LATE
        if :: isQueued -> isMarked = true :: else fi
#endif
    fi;
over:
    /* After invalidate() returns, its caller may queue a closure that closes the descriptor: the change must come before the closure. */
    assert(isDead && (endsQueued == 0 || isMarked || isTaken))
}

proctype Adder() {
    bool isLast, isIn;
#ifdef FAULT_TWO_STEPS
    if :: !isInvalid -> isIn = true :: else fi;
    if :: isIn -> uses++ :: else fi;
#else
    atomic { if :: !isInvalid -> uses++; isIn = true :: else fi };    /* Rundown.swift: enter */
#endif
    if
    :: isIn ->
        assert(finished == 0);
        exitUse()
    :: else
    fi
}

inline carryOut() {
    if
    :: endsQueued > 0 ->
        endsQueued--;                           /* ChangeBatch.swift: takeChange */
        isRegistered = false;                   /* ChangeBatch.swift: applyEnd */
#ifdef FAULT_END_IN_CALL
        exitUse()
#else
        if
        :: callsInProgress > 0 -> endsAfterCalls = true
        :: else -> exitUse()                    /* ChangeBatch.swift: endUse */
        fi
#endif
    :: else
    fi
}

proctype Owner() {
    bool isLast;
    byte rounds = 0;
    do
    :: rounds < 2 && isRegistered && !isInvalid ->
        rounds++;
        callsInProgress++;                      /* Serving.swift: call */
        if :: carryOut() :: skip fi;            /* the handler runs the loop */
        callsInProgress--;                      /* Serving.swift: endUsesAndServing */
        if :: endsAfterCalls && callsInProgress == 0 -> endsAfterCalls = false; exitUse() :: else fi
    :: atomic { isMarked -> isMarked = false; isTaken = true };    /* Waker.swift: takeAll */
        carryOut();
        isTaken = false
    :: !isMarked && (rounds == 2 || !isRegistered || isInvalid) ->
end:    isMarked
    od
}

proctype Judge() {
end: timeout ->
    assert(finished == 1 && uses == 0)
}

init {
    atomic {
        run Owner();
        run Invalidator();
        run Invalidator();
        run Adder();
        run Judge()
    }
}
