/*
 * No handler begins for an item after another thread's removal of it has returned (rule 9.3): for a source that the kernel watches, for one that
 * is on a list of its mode (custom sources, ports), for a timer and for an observer.
 *
 * Each atomic step names the function that makes it, as "File.swift: function". A step is one access to a shared word, or a section under the
 * loop's lock.
 *
 * A call counts as in progress from its claim on: the claim of a source (`servingLoop`), the beginning of a timer's firing, and for an observer,
 * which has no claim, the look at the count. What follows on the owner's thread is the call itself, however long the thread is preempted before
 * the first line of the handler. A test cannot stop a thread between two of these steps, so this model is the test.
 *
 * Property: no item is called whose claim came after `remove` had returned. And the owner finds every change that was queued.
 *
 * Faults that the search must find (Scripts/check-models):
 *   FAULT_COUNT_FIRST      a removal is counted before the owner can know of its change: a batch taken in between is served at the new count
 *   FAULT_CHECK_FIRST      a source is claimed after the look at the count
 *   FAULT_COUNT_LATE       the owner reads the count after it has taken the batch
 *   FAULT_PLACE_FIRST      a timer's location is looked at before its firing begins
 *   FAULT_OBSERVER_COUNT   an observer is counted before it is off the list
 */

byte removals = 0;                              /* RunLoop.removals */
bool isLocked = false;                          /* LoopShared */

/* A source that the kernel watches. */
bool watchedIsMember = true;                    /* SourceMembership.modes */
bool isQueued = false;                          /* ChangeQueue */
bool isMarked = false;                          /* Waker.attention: .changes */
bool isRegistered = true;                       /* Poller; the owner's */
bool watchedReturned = false;

/* A source on a list. */
bool listedIsMember = true;
bool isListed = true;                           /* ModeState.signaled, ModeState.messaged */
bool listedReturned = false;

/* A timer in two modes of the loop: the owner runs the first. */
bool isInFirst = true, isInSecond = true;       /* Timer.location, TimerMembership */
bool isInLoop = true;                           /* TimerState: the loop's number */
bool isFiring = false;                          /* TimerState: the same word */
bool firstReturned = false;

/* An observer. */
bool observerIsListed = true;                   /* ModeState.observers */
byte version = 0;                               /* ModeState.observed */
bool observerReturned = false;

byte running = 4;

inline lock() { atomic { !isLocked -> isLocked = true } }
inline unlock() { isLocked = false }

proctype RemovesWatched() {
    lock();
    watchedIsMember = false;                    /* RunLoop+Sources.swift: leave */
    isQueued = true;
    unlock();
#ifdef FAULT_COUNT_FIRST
    removals++;
    isMarked = true;
#else
    isMarked = true;                            /* RunLoop+Sources.swift: leaveMarked */
    removals++;
#endif
    watchedReturned = true;
    running--
}

proctype RemovesListed() {
    lock();
    listedIsMember = false;                     /* RunLoop+Sources.swift: leave */
    isListed = false;
    unlock();
    removals++;                                 /* RunLoop+Sources.swift: afterLeaving */
    listedReturned = true;
    running--
}

proctype RemovesTimer() {
    lock();
    isInFirst = false;                          /* RunLoop+Timers.swift: leave */
    if
    :: isInSecond = false; isInLoop = false     /* the last mode: TimerState.swift: leave */
    :: skip
    fi;
    unlock();
    firstReturned = true;
    running--
}

proctype RemovesObserver() {
#ifdef FAULT_OBSERVER_COUNT
    removals++;
#endif
    lock();
    atomic { observerIsListed = false; version++ };    /* RunLoop+Observers.swift: leave */
    unlock();
#ifndef FAULT_OBSERVER_COUNT
    removals++;                                 /* RunLoop+Observers.swift: leave */
#endif
    observerReturned = true;
    running--
}

/* What Serving.swift does from the claim on. `isMember` is read under the lock, and only at another count. AskingGuestLoops.swift does the same
   before it calls `prepare`, but always reads `isMember`. */
inline claimAndCall(isMember, hasReturned) {
#ifdef FAULT_CHECK_FIRST
    if
    :: removals == generation -> isWanted = true
    :: else -> lock(); isWanted = isMember; unlock()
    fi;
    isLate = hasReturned;
#else
    isLate = hasReturned;                       /* SourceCore.swift: claimServing */
    if                                          /* Serving.swift: isToServe, isStillMember */
    :: removals == generation -> isWanted = true
    :: else -> lock(); isWanted = isMember; unlock()
    fi;
#endif
    assert(!isWanted || !isLate)
}

proctype ServesWatched() {
    byte generation; bool isWanted, isLate, isReady, wasLast;
    do
    ::  wasLast = (running == 0);
        generation = removals;                  /* Serving.swift: serveDescriptors */
        if
        :: isMarked ->
            isMarked = false;                   /* Waker.swift: takeAll */
            lock();
            if :: isQueued -> isQueued = false; isRegistered = watchedIsMember :: else fi;    /* ChangeBatch.swift: applyChanges */
            unlock()
        :: else
        fi;
        isReady = isRegistered;                 /* Poller+Batches.swift: takeNext */
        if
        :: isReady -> claimAndCall(watchedIsMember, watchedReturned)
        :: else
        fi;
        if :: wasLast -> break :: else fi
    od;
    assert(!isQueued)
}

proctype ServesListed() {
    byte generation; bool isWanted, isLate, isTaken;
#ifndef FAULT_COUNT_LATE
    generation = removals;                      /* Serving.swift: performSignaled, serveMessages */
#endif
    lock();
    isTaken = isListed;                         /* Serving.swift: performSignaled, serveMessages */
    unlock();
#ifdef FAULT_COUNT_LATE
    generation = removals;
#endif
    if
    :: isTaken -> claimAndCall(listedIsMember, listedReturned)
    :: else
    fi
}

inline beginFiring() {
    atomic {                                    /* TimerState.swift: beginFiring */
        isBegun = isInLoop;
        if :: isBegun -> isFiring = true; isLate = firstReturned :: else fi
    }
}

proctype FiresTimer() {
    bool isBegun, isLate, isPlaced;
#ifdef FAULT_PLACE_FIRST
    lock(); isPlaced = isInFirst; unlock();
    beginFiring();
#else
    beginFiring();
    /* Firing.swift: takeForFiring; for a timer in several modes, under the lock. */
    lock(); isPlaced = isInFirst; unlock();
#endif
    assert(!(isBegun && isPlaced) || !isLate);
    if :: isBegun -> isFiring = false :: else fi    /* Firing.swift: giveUpFiring, fileNext */
}

proctype NotifiesObserver() {
    byte generation, seenVersion; bool isWanted, isLate, isSeen = true;
    generation = removals;                      /* RunLoop+Observers.swift: callObservers */
    seenVersion = version;                      /* RunLoop+Observers.swift: observersNow */
    if :: seenVersion != 0 -> lock(); isSeen = observerIsListed; unlock() :: else fi;
    if
    :: isSeen ->
        isLate = observerReturned;              /* RunLoop+Observers.swift: call */
        if
        :: removals == generation -> isWanted = true
        :: else -> lock(); isWanted = observerIsListed; unlock()
        fi;
        assert(!isWanted || !isLate)
    :: else
    fi
}

/* One kind at a time, beside the removals of all kinds: the owner has one thread, and the count is what the kinds share. */
init {
    atomic {
        if
        :: run ServesWatched()
        :: run ServesListed()
        :: run FiresTimer()
        :: run NotifiesObserver()
        fi;
        run RemovesWatched();
        run RemovesListed();
        run RemovesTimer();
        run RemovesObserver()
    }
}
