/*
 * Pausing and resuming a stream: a handler for received bytes that pauses and gives its work to another thread, which resumes reading at any
 * moment, also before the call has returned (rule 27.15).
 *
 * Each atomic step names the function that makes it, as "File.swift: function". A step is a section under the stream's lock. Bytes are counted in
 * units; the handler leaves what it was shown when it pauses, and takes everything when it does not.
 *
 * Property: when nobody can do anything any more, the handler has taken every byte that came, and is never called in its own call.
 *
 * Faults that the search must find (Scripts/check-models):
 *   FAULT_NO_AGAIN        resuming during the call is not remembered
 *   FAULT_PAUSE_WINS      what is left at the limit pauses the stream although somebody has resumed it during the call
 *   FAULT_NO_INTEREST     resuming does not ask the kernel for reading again
 *   FAULT_SCHEDULED_LATE  a delivery counts as scheduled until it is over, so that one that is asked for meanwhile is dropped
 *   FAULT_READS_BUSY      reading does not look whether a handler is being called, as in a run that the handler makes
 */

#define LIMIT 2
#define TOTAL 3

byte kernel = 0, sentByPeer = 0;                /* DescriptorPair */
byte input = 0;                                 /* Receiving.input */
byte taken = 0;
bool isPaused = false, isBusy = false, isNew = false, callsAgain = false;
bool wantsRead = true;                          /* StreamState.interest */
bool isScheduled = false;                       /* StreamState.isDeliveryScheduled */
bool isQueued = false;                          /* the loop's queue of performs */
byte given = 0;                                 /* the thread has work */
byte pausesLeft = 2;
byte nested = 1;                                /* runs that a handler makes */
byte depth = 0;

#ifdef FAULT_READS_BUSY
#define canReceive (!isPaused && input < LIMIT)
#else
#define canReceive (!isPaused && !isBusy && input < LIMIT)
#endif

inline schedule() {
    /* StreamCore.swift: scheduleDelivery */
    if :: !isScheduled -> isScheduled = true; isQueued = true :: else fi
}

inline resumeReceiving() {
    /* StreamCore+Receiving.swift: resumeReceivingLocked */
#ifndef FAULT_NO_INTEREST
    if :: !wantsRead && canReceive -> wantsRead = true :: else fi
#else
    skip
#endif
}

proctype Peer() {
    do
    :: sentByPeer < TOTAL -> atomic { kernel++; sentByPeer++ }
    :: sentByPeer == TOTAL -> break
    od
}

/* The thread to which the handler has given its work. */
proctype Resumes() {
    byte rounds = 2;
    do
    :: rounds > 0 ->
end:    atomic { given > 0 -> given--; rounds-- };
        atomic {                                /* ByteStream+Handlers.swift: setReading */
            if
            :: isPaused ->
                isPaused = false;
#ifndef FAULT_NO_AGAIN
                if :: isBusy -> callsAgain = true :: else fi;
#endif
                if :: input > 0 -> isNew = true :: else fi;
                resumeReceiving();
                if :: isNew -> schedule() :: else fi
            :: else
            fi
        }
    :: rounds == 0 -> break
    od
}

byte shown, left;

/* The handler's body, outside the lock. It is shown `shown`. */
inline handle() {
    depth++;
    assert(depth == 1);
    if
    :: pausesLeft > 0 ->
        atomic { pausesLeft--; isPaused = true };    /* ByteStream+Handlers.swift: setReading */
        given++;
        left = shown
    :: left = 0
    fi;
    if
    :: nested > 0 -> nested--; runsNested = true
    :: runsNested = false
    fi;
    /* The loop runs in the call: it delivers, and reports what the kernel has. */
    if
    :: runsNested && isQueued ->
        atomic {                                /* StreamCore+Delivering.swift: deliver */
            isQueued = false; isScheduled = false;
            assert(isBusy)
        }
    :: runsNested && wantsRead && kernel > 0 -> atomic { if :: !canReceive -> wantsRead = false :: else -> assert(false) fi }
    :: else
    fi;
    depth--;
    taken = taken + shown - left
}

inline endCall() {
    atomic {                                    /* StreamCore+Delivering.swift: endCallLocked */
        input = input + left;
        isBusy = false;
#ifdef FAULT_PAUSE_WINS
        if :: input >= LIMIT -> isPaused = true :: else fi;
        if :: callsAgain -> callsAgain = false; if :: input > 0 -> isNew = true :: else fi :: else fi;
#else
        if
        :: callsAgain -> callsAgain = false; if :: input > 0 -> isNew = true :: else fi
        :: !callsAgain && input >= LIMIT -> isPaused = true
        :: else
        fi;
#endif
        resumeReceiving();
        if :: isNew -> schedule() :: else fi;
        shown = 0; left = 0
    }
}

proctype Loop() {
    bool runsNested, isDue;
    do
    :: wantsRead && kernel > 0 ->
        atomic {                                /* StreamCore+Receiving.swift: receive */
            isDue = false;
            if
            :: !canReceive -> wantsRead = false
            :: canReceive && input == 0 ->
                /* StreamCore+Delivering.swift: receiveInPlaceLocked, beginCallLocked */
                isBusy = true; callsAgain = false; shown = kernel; kernel = 0; isDue = true
            :: else ->
                /* StreamCore+Receiving.swift: receiveIntoInputLocked */
                input = input + kernel; kernel = 0; isNew = true; schedule()
            fi
        };
        if :: isDue -> handle(); endCall() :: else fi
    :: isQueued ->
        isQueued = false;
#ifndef FAULT_SCHEDULED_LATE
        isScheduled = false;
#endif
        do
        :: atomic {
                /* StreamCore+Delivering.swift: callNext, deliverInputAndUnlock */
                isNew && !isPaused && !isBusy ->
                isBusy = true; callsAgain = false; shown = input; input = 0; isNew = false
            };
            handle(); endCall()
        :: atomic { !(isNew && !isPaused && !isBusy) -> break }
        od;
#ifdef FAULT_SCHEDULED_LATE
        isScheduled = false
#endif
    :: timeout -> break
    od;
    /* Each pause has its resumption. */
    assert(!isPaused && given == 0);
    assert(taken == TOTAL)
}

init { atomic { run Peer(); run Resumes(); run Loop() } }
