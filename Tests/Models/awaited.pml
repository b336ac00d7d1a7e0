/*
 * performAsync: the task that awaits a closure on a loop, the thread that cancels the task, and the loop, which performs the closure or ends
 * (AwaitedPerform.swift).
 *
 * Each atomic step names the function that makes it, as "File.swift: function". A step is one atomic operation, or a section under the
 * loop's lock. The task may be cancelled at any time, and the loop may end at any time.
 *
 * Properties: the task is resumed once, which nothing else checks, because the continuation is an unsafe one; when the task returns, the closure
 * is released and in no queue; a closure that was performed was not cancelled; nobody changes the state after the step that ends `waiting`.
 *
 * Faults that the search must find (Scripts/check-models):
 *   FAULT_QUEUE_FIRST    the closure is queued before the task waits
 *   FAULT_TWO_STEPS      the canceller reads the state and then writes it
 *   FAULT_RESUME_FIRST   the canceller resumes the task before it takes the closure out of the queue
 *   FAULT_NO_SECOND_LOOK the task does not look whether it was cancelled before the closure was in the queue
 *   FAULT_NO_REFUSAL     a loop that has ended takes no closure, and the task waits for it
 *   FAULT_RELEASE_LAST   the loop resumes the task before it releases the closure
 */

mtype = { starting, waiting, begun, cancelled, dropped }

mtype state = starting;                         /* WorkTicket.state */
bool isQueued = false;                          /* under the loop's lock */
bool isOpen = true;                             /* under the loop's lock */
bool hasBody = true;                            /* AwaitedPerform.body */
bool isPerformed = false;
bool isSuspending = false;                      /* the task is in start */
byte resumed = 0;

inline move(old, new, hasMoved) {               /* Work.swift: move */
    atomic {
        if
        :: state == old -> state = new; hasMoved = true
        :: else -> hasMoved = false
        fi
    }
}

inline resume() {
    atomic {
        resumed++;
        assert(resumed == 1)
    }
}

/* Writes the state that is there already: the store orders what the thread did before. */
inline publish(end) {                           /* AwaitedPerform.swift: publish */
    atomic {
        assert(state == end);
        state = end
    }
}

inline fail(end) {                              /* AwaitedPerform.swift: fail */
    hasBody = false;
    publish(end);
    resume()
}

inline dequeue() { isQueued = false }           /* RunLoop+Perform.swift: dequeue */

proctype Task() {
    bool hasMoved;
    bool isAccepted;
    isSuspending = true;
#ifdef FAULT_QUEUE_FIRST
    atomic { isAccepted = isOpen; isQueued = isOpen };
    move(starting, waiting, hasMoved);
    if
    :: !hasMoved -> dequeue(); fail(cancelled); goto suspended
    :: else
    fi;
#else
    move(starting, waiting, hasMoved);          /* AwaitedPerform.swift: start */
    if
    :: !hasMoved -> fail(cancelled); goto suspended
    :: else
    fi;
    atomic { isAccepted = isOpen; isQueued = isOpen };     /* RunLoop+Perform.swift: enqueueClosure */
#endif
    if
    :: !isAccepted ->
#ifndef FAULT_NO_REFUSAL
        move(waiting, dropped, hasMoved);       /* AwaitedPerform.swift: workWasDropped */
        if
        :: hasMoved -> fail(dropped)
        :: else
        fi;
#endif
        skip
    :: else ->
#ifndef FAULT_NO_SECOND_LOOK
        if
        :: atomic { state == cancelled -> skip }; dequeue()
        :: atomic { state != cancelled -> skip }
        fi;
#endif
        skip
    fi;
suspended:
    isSuspending = false;
end: resumed == 1 ->
    assert(!isQueued);
    assert(!hasBody);
    assert(!isPerformed || state == begun)
}

proctype Canceller() {
    bool hasMoved;
#ifdef FAULT_TWO_STEPS
    atomic { hasMoved = (state == waiting) };
    if
    :: hasMoved -> state = cancelled; dequeue(); fail(cancelled)
    :: else -> move(starting, cancelled, hasMoved)
    fi
#else
    move(starting, cancelled, hasMoved);        /* AwaitedPerform.swift: cancel */
    if
    :: hasMoved -> goto done
    :: else
    fi;
    move(waiting, cancelled, hasMoved);
    if
    :: hasMoved ->
#ifdef FAULT_RESUME_FIRST
        fail(cancelled);
        dequeue()
#else
        dequeue();
        fail(cancelled)
#endif
    :: else
    fi;
done: skip
#endif
}

proctype Loop() {
    bool hasMoved;
    bool wasQueued;
    do
    :: atomic { isQueued -> isQueued = false };            /* RunLoop+Perform.swift: performQueued */
        if
        :: atomic { state == waiting -> skip };
            move(waiting, begun, hasMoved);     /* AwaitedPerform.swift: perform */
            if
            :: hasMoved ->
                isPerformed = true;
#ifdef FAULT_RELEASE_LAST
                publish(begun);
                resume();
                hasBody = false
#else
                hasBody = false;
                publish(begun);
                resume()
#endif
            :: else
            fi
        :: atomic { state != waiting -> skip }
        fi
    :: break
    od;
    atomic { isOpen = false; wasQueued = isQueued; isQueued = false };     /* LoopLifetime.swift: end */
    if
    :: wasQueued ->
        move(waiting, dropped, hasMoved);       /* AwaitedPerform.swift: workWasDropped */
        if
        :: hasMoved -> fail(dropped)
        :: else
        fi
    :: else
    fi
}

/* No process can move any more. */
proctype Judge() {
end: timeout ->
    assert(resumed == 1);
    assert(!isQueued);
    assert(!hasBody)
}

init {
    atomic {
        run Task();
        run Loop();
        if
        :: run Canceller()
        :: skip
        fi;
        run Judge()
    }
}
