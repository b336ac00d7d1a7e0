/*
 * A write that waits: a task that finds no room waits for its turn, while the loop sends, another thread calls `send`, the task is cancelled, and a
 * second task finishes writing (rule 27.9).
 *
 * Each atomic step names the function that makes it, as "File.swift: function". A step is a section under the stream's lock. Every call writes one
 * unit; one may wait in the queue. A call of `write` has two steps, because it does not make a continuation if there is room.
 *
 * Property: when nobody can do anything any more, every call has returned, what was accepted is sent, once and in the order of the calls, and what
 * a cancelled call wrote is not.
 *
 * Faults that the search must find (Scripts/check-models):
 *   FAULT_NO_FLUSH      a task that begins to wait does not look whether there is room by now
 *   FAULT_OVERTAKES     `send` goes into the queue although a task waits
 *   FAULT_CANCEL_EARLY  a cancellation is looked at before the task is in the list, outside the lock
 *   FAULT_NO_INTEREST   a transport that takes no more is not asked to report room
 *   FAULT_ENDS_EARLY    the end is signaled to the peer while bytes wait
 */

#define NOBODY 0
#define FIRST 1                                 /* the bytes of each call */
#define WRITTEN 2
#define SENT 3

chan queue = [4] of { byte };                   /* Sending.output */
chan waiting = [3] of { byte };                 /* Sending.writers */
byte room = 0;                                  /* in the kernel */
byte roomToCome = 3;
bool isBlocked = false, wantsWrite = false;
bool isFinishing = false, isFinished = false, finisherWaits = false, finisherReturned = false;
bool writerWaits = false, writerReturned = false, writerFailed = false;
bool isCancelled = false, cancellerIsDone = false, stalls = false;
bool firstIsSent = false, writtenIsSent = false, sentIsSent = false;
bool writtenIsAccepted = false, sentIsAccepted = false, sentIsBehind = false;

#define canWrite (!isFinishing)

inline transfer() {
    /* StreamCore+Sending.swift: transferLocked */
    do
    :: !isBlocked && len(queue) > 0 && room > 0 ->
        room--;
        assert(!isFinished);
        if
        :: queue ? [FIRST] -> queue ? FIRST; assert(!firstIsSent && !writtenIsSent && !sentIsSent); firstIsSent = true
        :: queue ? [WRITTEN] -> queue ? WRITTEN; assert(!writtenIsSent && (!sentIsBehind || !sentIsSent)); writtenIsSent = true
        :: queue ? [SENT] -> queue ? SENT; assert(!sentIsSent); sentIsSent = true
        fi
    :: !isBlocked && len(queue) > 0 && room == 0 ->
        isBlocked = true;                       /* StreamCore+Sending.swift: blockLocked */
#ifndef FAULT_NO_INTEREST
        wantsWrite = true
#endif
    :: else -> break
    od
}

inline flush() {
    /* StreamCore+Sending.swift: flushLocked */
    transfer();
    do
    :: len(waiting) > 0 && len(queue) == 0 ->
        /* StreamCore+Sending.swift: admitWritersLocked */
        if
        :: waiting ? [WRITTEN] -> waiting ? WRITTEN; queue ! WRITTEN; writerWaits = false; writerReturned = true; writtenIsAccepted = true
        :: waiting ? [SENT] -> waiting ? SENT; queue ! SENT
        fi;
        transfer()
    :: else -> break
    od;
    if :: len(queue) == 0 -> wantsWrite = false :: else fi;
    /* StreamCore+Sending.swift: finishLocked */
    if
#ifdef FAULT_ENDS_EARLY
    :: isFinishing && !isFinished ->
#else
    :: isFinishing && !isFinished && len(queue) == 0 && len(waiting) == 0 ->
#endif
        isFinished = true;
        if :: finisherWaits -> finisherWaits = false; finisherReturned = true :: else fi
    :: else
    fi
}

/* The kernel gets room, and the loop reports it. Or the peer takes nothing. */
proctype Kernel() {
    do
    :: roomToCome > 0 -> atomic { roomToCome--; room++ }
    :: roomToCome == 3 -> stalls = true; break
    :: roomToCome == 0 -> break
    od
}

proctype Loop() {
    do
    :: atomic { wantsWrite && room > 0 ->       /* StreamCore+Receiving.swift: transferWhatIsReady */
            isBlocked = false; flush()
        }
    :: timeout -> break
    od;
    assert(!isCancelled || !writerWaits);
    if :: stalls -> goto over :: else fi;
    assert(cancellerIsDone && writerReturned && finisherReturned && isFinished == isFinishing);
    assert(firstIsSent && len(queue) == 0 && len(waiting) == 0);
    assert(writtenIsSent == writtenIsAccepted && sentIsSent == sentIsAccepted);
    assert(!writerFailed || !writtenIsSent);
over:
    skip
}

proctype Writes() {
    bool waits = false, wasCancelled;
    atomic {                                    /* StreamCore+Sending.swift: write */
        if
        :: !canWrite -> writerFailed = true; writerReturned = true
        :: canWrite && len(waiting) == 0 && len(queue) == 0 ->
            queue ! WRITTEN; writtenIsAccepted = true; writerReturned = true;
            /* StreamCore+Sending.swift: enqueueLocked, tryToSendLocked */
            if :: !isBlocked -> flush() :: else fi
        :: else -> waits = true
        fi
    };
#ifdef FAULT_CANCEL_EARLY
    wasCancelled = isCancelled;
#endif
    if
    :: waits ->
        atomic {                                /* StreamCore+Sending.swift: waitToSend, waitToWrite */
#ifndef FAULT_CANCEL_EARLY
            wasCancelled = isCancelled;
#endif
            if
            :: wasCancelled -> writerFailed = true; writerReturned = true
            :: !wasCancelled && !canWrite -> writerFailed = true; writerReturned = true
            :: else ->
                waiting ! WRITTEN; writerWaits = true;
#ifndef FAULT_NO_FLUSH
                flush()
#endif
            fi
        }
    :: else
    fi
}

proctype Cancels() {
    if
    :: true ->
        isCancelled = true;
        atomic {                                /* StreamCore+Sending.swift: cancel */
            if
            :: writerWaits ->
                waiting ?? WRITTEN; writerWaits = false; writerFailed = true; writerReturned = true;
                flush()
            :: else
            fi
        }
    :: true
    fi;
    cancellerIsDone = true
}

proctype Sends() {
    atomic {                                    /* StreamCore+Sending.swift: send, enqueueLocked */
        if
        :: canWrite ->
            sentIsAccepted = true;
            sentIsBehind = writerWaits || writtenIsAccepted;
            if
#ifndef FAULT_OVERTAKES
            :: len(waiting) > 0 -> waiting ! SENT
#endif
            :: else -> queue ! SENT; if :: !isBlocked -> flush() :: else fi
            fi
        :: else
        fi
    }
}

proctype Finishes() {
    if
    :: atomic {                                 /* StreamCore+Sending.swift: finishWriting */
            isFinishing = true; finisherWaits = true;
            flush()
        }
    :: finisherReturned = true
    fi
}

init {
    atomic {
        queue ! FIRST; isBlocked = true; wantsWrite = true;
        run Kernel(); run Loop(); run Writes(); run Cancels(); run Sends(); run Finishes()
    }
}
