/*
 * A source of a descriptor that its loop's owner adds and removes in place, while another thread adds, removes
 * and invalidates the same source through the queue of changes (RunLoop+Sources.swift, ChangeBatch.swift). inplace.pml does this for
 * timers.
 *
 * Each atomic step names the function that makes it, as "File.swift: function". A step is a section under the loop's lock or the source's
 * lock, one atomic operation, or the owner's access to its own base. The loop has one mode.
 *
 * A call takes effect in its section under the loop's lock. A membership that has ended does not come back: the next addition makes another.
 * The owner's base may be made later. Then the owner finds the memberships in the loop's list, also those whose change it has not seen.
 *
 * Properties:
 * - The owner has one registration of the source at most.
 * - The owner serves the source only if it is in the mode, or if a change which ends that is queued.
 * - When all calls have returned and the owner has carried out what is queued, the source is in the mode if the last call that took effect was
 *   an addition, and then it is registered, once; otherwise it is registered nowhere.
 * - Each use ends once, and an invalid source is finished after its last use.
 * - When the owner's invalidation returns, the source is registered nowhere: its caller may close the descriptor.
 *
 * Faults that the search must find (Scripts/check-models):
 *   FAULT_OVERTAKE        the owner adds in place although changes are queued
 *   FAULT_END_OVERTAKES   the owner removes in place although changes are queued
 *   FAULT_JOIN_DEAD       the owner adds in place to a membership that has ended
 *   FAULT_JOIN_INVALID    the owner adds in place without asking under the lock whether the source is valid
 *   FAULT_FORGET_ANY      a thread that has ended a membership takes away whatever membership the source has by then
 *   FAULT_READ_LATE       the owner reads what a change is about after it has released the lock
 *   FAULT_KEEP_REGISTERED the owner removes in place and leaves the source on its base
 *   FAULT_UNSEEN_TAKEN    the owner takes a change without noting that it knows the membership from then on
 *   FAULT_UNSEEN_LISTED   the owner finds a membership in the list without noting that
 *   FAULT_UNSEEN_QUEUED   a thread ends a membership that the owner has never seen, and leaves its change in the queue
 *   FAULT_UNSEEN_OWNER    the owner ends a membership that it has never seen, and carries out no change of an earlier one
 *   FAULT_LEFT_BEHIND     the owner invalidates a source that another thread has removed, and does not carry that out
 */

#define MOST 8

/* The source. */
byte membership = 0;                            /* Source.state: the membership in the loop; 0 for none */
byte made = 0;                                  /* the memberships so far */
byte uses = 0;                                  /* Rundown */
bool isInvalid = false;
bool isFinished = false;

/* Memberships, by number; under the loop's lock. */
bool isIn[MOST];                                /* SourceMembership.modes */
bool isDead[MOST];
bool isQueued[MOST];                            /* SourceMembership.changeIndex */
bool isKnown[MOST];                             /* SourceMembership.isKnownToOwner */
byte queue[MOST];                               /* LoopShared.changes */
byte length = 0;

/* The owner's. */
bool hasBase;                                   /* ModeState.poller */
bool isRegistered[MOST];

bool isMember = false;                          /* what the calls that took effect say */
byte running = 2;

inline enqueueChange(member) {                  /* under the lock; one change for each membership */
    if
    :: !isQueued[member] ->
        assert(length < MOST);
        queue[length] = member;
        length++;
        isQueued[member] = true
    :: else
    fi
}

inline cancelChange(member) {                   /* under the lock */
    if
    :: isQueued[member] ->
        at = 0;
        do :: queue[at] != member -> at++ :: else -> break od;
        length--;
        do :: at < length -> queue[at] = queue[at + 1]; at++ :: else -> break od;
        queue[length] = 0;
        at = 0;
        isQueued[member] = false
    :: else
    fi
}

inline exit() {
    atomic {                                    /* Rundown.swift: exit */
        assert(uses > 0);
        uses--;
        if
        :: isInvalid && uses == 0 -> assert(!isFinished); isFinished = true
        :: else
        fi
    }
}

inline forget(member) {
#ifdef FAULT_FORGET_ANY
    membership = 0
#else
    atomic { if :: membership == member -> membership = 0 :: else fi }    /* RunLoop+Sources.swift: forget */
#endif
}

inline register(member) {                       /* owner; Pollers.swift: register */
    if
    :: hasBase ->
        at = 1;
        do
        :: at < MOST -> assert(at == member || !isRegistered[at]); at++
        :: else -> break
        od;
        at = 0;
        isRegistered[member] = true
    :: else
    fi
}

inline makeBase() {                             /* Pollers.swift: makePoller */
    atomic {                                    /* RunLoop+Sources.swift: sourcesToWatch */
        hasBase = true;
        taken = 0;
        at = 1;
        do
        :: at < MOST ->
            if :: isIn[at] -> taken = at :: else fi;
#ifndef FAULT_UNSEEN_LISTED
            if :: isIn[at] -> isKnown[at] = true :: else fi;
#endif
            at++
        :: else -> break
        od;
        at = 0
    };
    if :: taken != 0 -> register(taken) :: else -> skip fi
}

inline applyEnd(member) {                       /* ChangeBatch.swift: applyEnd */
    isRegistered[member] = false;
    exit()
}

inline applyChanges() {
    remaining = length;                         /* ChangeBatch.swift: applyChanges */
    do
    ::  atomic {                                /* ChangeBatch.swift: takeChange */
            taken = 0;
            if
            :: remaining > 0 && length > 0 ->
                remaining--;
                taken = queue[0];
                length--;
                at = 0;
                do :: at < length -> queue[at] = queue[at + 1]; at++ :: else -> break od;
                queue[length] = 0;
                at = 0;
                isQueued[taken] = false;
#ifndef FAULT_UNSEEN_TAKEN
                isKnown[taken] = true;
#endif
#ifndef FAULT_READ_LATE
                wasIn = isIn[taken];
                wasDead = isDead[taken]
#endif
            :: else
            fi
        };
        if
        :: taken == 0 -> break
        :: else
        fi;
#ifdef FAULT_READ_LATE
        wasIn = isIn[taken];
        wasDead = isDead[taken];
#endif
        if                                      /* ChangeBatch.swift: apply */
        :: wasDead -> applyEnd(taken)
        :: !wasDead && wasIn -> register(taken)
        :: else
        fi
    od
}

inline carryOutChanges(isOwner) {
    if :: isOwner -> applyChanges() :: else -> skip fi    /* ChangeBatch.swift: carryOutChanges */
}

/* The loop's lock is taken once more: the way of every thread. Sets `outcome`: 0 joined, 1 dead, 2 refused, 3 refused and dead. */
inline join(isOwner) {
    atomic {                                    /* RunLoop+Sources.swift: join */
        if
        :: isDead[mine] -> outcome = 1
        :: !isDead[mine] && isInvalid ->
            if
            :: !isIn[mine] -> isDead[mine] = true; outcome = 3
            :: else -> outcome = 2
            fi
        :: else ->
            outcome = 0;
            isMember = true;
            if
            :: !isIn[mine] -> isIn[mine] = true; enqueueChange(mine)    /* RunLoop+Sources.swift: put */
            :: else
            fi
        fi
    };
    if
    :: outcome == 1 -> forget(mine)
    :: outcome == 3 -> forget(mine); exit()
    :: outcome == 0 -> carryOutChanges(isOwner)
    :: else
    fi
}

/* Another thread ends a membership that the owner has never seen, unless somebody waits for the end of the source (`isAwaited`). */
inline leave(isOwner) {
    if :: isAwaited = false :: isAwaited = true fi;
    atomic {                                    /* RunLoop+Sources.swift: leave */
        hasLeft = false;
        if
        :: !isDead[mine] && isIn[mine] ->
            isIn[mine] = false;
            isMember = false;
            isDead[mine] = true;                /* RunLoop+Sources.swift: endIfUnused */
#ifdef FAULT_UNSEEN_OWNER
            isUnseen = !isAwaited && !isKnown[mine];
#else
            isUnseen = !isOwner && !isAwaited && !isKnown[mine];
#endif
            if
            :: isUnseen ->
#ifndef FAULT_UNSEEN_QUEUED
                cancelChange(mine)
#else
                skip
#endif
            :: else -> enqueueChange(mine)
            fi;
            hasLeft = true
        :: else
        fi
    };
    if                                          /* RunLoop+Sources.swift: afterLeaving */
    :: hasLeft ->
        forget(mine);
        if :: isUnseen -> exit() :: else -> carryOutChanges(isOwner) fi
    :: else -> carryOutChanges(isOwner)
    fi
}

inline findOrMake() {
    atomic {                                    /* RunLoop+Sources.swift: membership, with Rundown.swift: enter */
        mine = membership;
        if
        :: mine == 0 && !isInvalid ->
            uses++;
            made++;
            assert(made < MOST);
            membership = made;
            mine = made
        :: else
        fi
    }
}

inline invalidate(isOwner) {
    atomic {                                    /* Rundown.swift: invalidate */
        hasLeft = !isInvalid && uses == 0;
        isInvalid = true;
        if :: hasLeft -> assert(!isFinished); isFinished = true :: else fi
    };
    if
    :: !hasLeft ->
        mine = membership;                      /* RunLoop+Sources.swift: invalidate */
        if
        :: mine != 0 -> leave(isOwner)          /* RunLoop+Sources.swift: expel */
#ifndef FAULT_LEFT_BEHIND
        :: mine == 0 && isOwner -> applyChanges()
#endif
        :: else -> skip
        fi
    :: else
    fi
}

proctype Owner() {
    byte mine, taken, remaining, at, outcome, rounds = 0;
    bool mayCall, isDone, isGained, wasIn, wasDead, hasLeft, isUnseen, isAwaited;
    do
    :: rounds < 3 ->
        rounds++;
        if
        ::  mayCall = !isInvalid;               /* RunLoop+Sources.swift: addIfPossible */
            if
            :: mayCall ->
                do
                ::  findOrMake();
                    if :: mine == 0 -> break :: else fi;
                    atomic {                    /* RunLoop+Sources.swift: join */
                        isGained = false;
                        isDone = true;
#ifndef FAULT_OVERTAKE
                        if :: length > 0 -> isDone = false :: else fi;
#endif
#ifndef FAULT_JOIN_DEAD
                        if :: isDead[mine] -> isDone = false :: else fi;
#endif
#ifndef FAULT_JOIN_INVALID
                        if :: isInvalid -> isDone = false :: else fi;
#endif
                        if
                        :: isDone -> isMember = true; isGained = !isIn[mine]; isIn[mine] = true; isKnown[mine] = true
                        :: else
                        fi
                    };
                    if
                    :: isDone ->
                        if :: isGained -> register(mine) :: else -> skip fi;    /* ChangeBatch.swift: applyAtOnce */
                        break
                    :: else -> join(true); if :: outcome != 1 -> break :: else fi
                    fi
                od
            :: else
            fi
        ::  mayCall = !isInvalid;               /* RunLoop+Sources.swift: remove */
            if
            :: mayCall ->
                mine = membership;              /* RunLoop+Sources.swift: existingMembership */
                if
                :: mine != 0 ->
                    atomic {                    /* RunLoop+Sources.swift: leave */
                        isGained = false;
#ifdef FAULT_END_OVERTAKES
                        isDone = !isDead[mine];
#else
                        isDone = (length == 0 && !isDead[mine]);
#endif
                        if
                        :: isDone && isIn[mine] ->
                            isIn[mine] = false;
                            isMember = false;
                            isDead[mine] = true;    /* RunLoop+Sources.swift: endIfUnused */
                            isGained = true
                        :: else
                        fi
                    };
                    if
                    :: isDone && isGained ->    /* RunLoop+Sources.swift: afterLeaving */
                        forget(mine);
#ifdef FAULT_KEEP_REGISTERED
                        exit()
#else
                        applyEnd(mine)
#endif
                    :: !isDone -> leave(true)
                    :: else
                    fi
                :: else
                fi
            :: else
            fi
        ::  invalidate(true);
            atomic {
                at = 1;
                do :: at < MOST -> assert(!isRegistered[at]); at++ :: else -> break od;
                at = 0
            }
        ::  !hasBase -> makeBase()
        ::  applyChanges()
        ::  applyChanges();                     /* PendingWork.swift: finishPendingEnds */
            /* What is collected is served if it is registered now. */
            atomic {
                at = 1;
                do
                :: at < MOST -> assert(!isRegistered[at] || ((isIn[at] || isQueued[at]) && !isFinished)); at++
                :: else -> break
                od;
                at = 0
            }
        fi
    :: else -> break
    od;
    running--;
    running == 0;
    applyChanges();
    if :: !hasBase -> makeBase() :: else fi;
    assert(length == 0);
    assert(isMember == (membership != 0));
    assert(uses == isMember && isFinished == isInvalid);
    at = 1;
    do
    :: at < MOST ->
        assert(isIn[at] == (isMember && at == membership));
        assert(isRegistered[at] == isIn[at]);
        at++
    :: else -> break
    od
}

proctype Other() {
    byte mine, taken, remaining, at, outcome, rounds = 0;
    bool mayCall, wasIn, wasDead, hasLeft, isUnseen, isAwaited;
    do
    :: rounds < 3 ->
        rounds++;
        if
        ::  mayCall = !isInvalid;               /* RunLoop+Sources.swift: addIfPossible */
            if
            :: mayCall ->
                do
                ::  findOrMake();
                    if :: mine == 0 -> break :: else fi;
                    join(false);
                    if :: outcome != 1 -> break :: else fi
                od
            :: else
            fi
        ::  mayCall = !isInvalid;               /* RunLoop+Sources.swift: remove */
            if
            :: mayCall ->
                mine = membership;              /* RunLoop+Sources.swift: existingMembership */
                if :: mine != 0 -> leave(false) :: else -> skip fi
            :: else
            fi
        ::  invalidate(false)
        fi
    :: else -> break
    od;
    running--
}

init { atomic { if :: hasBase = true :: hasBase = false fi; run Owner(); run Other() } }
