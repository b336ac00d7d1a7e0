/*
 * The stop word of a run, and sticky stops (semantics 1.9).
 *
 * Each atomic step names the function that makes it, as "File.swift: function".
 *
 * Properties: a sticky stop ends exactly one run or is still kept, and no run sleeps while a stop is kept. A plain stop ends at most one
 * run, which must have been in progress at the time of the stop.
 *
 * Faults that the search must find (Scripts/check-models):
 *   FAULT_NO_SECOND_LOOK  a thread that keeps a stop does not check whether a run has begun meanwhile
 *   FAULT_DROP_LATE       a run that ends does not check for a stop that came too late for it
 *   FAULT_STORE           a stop is stored without a comparison: it may reach a run that is over
 */

#define idle 0
#define running 1
#define stopRequested 2
#define isSticky 4

byte stopWord[2] = idle;                        /* one RunFrame for each level of nesting; later runs reuse it */
byte innermost = 0;                             /* the level in progress, from 1; 0 outside any run */
bool pendingStop = false;
byte stopped = 0;                               /* results */
byte requested = 0;
bool isOneSticky = false;                       /* one sticky stop; otherwise two plain ones */
bool ownerSleeps = false;

/* RunLoop.stop(sticky:) */
proctype Stopper(bool sticky) {
    byte level, seenWord;
    byte bits = stopRequested | (sticky -> isSticky : 0);
    do
    ::  level = innermost;                      /* RunStack.swift: requestStop */
        if
        :: level > 0 ->
            seenWord = stopWord[level - 1];     /* RunFrame.swift: requestStop */
#ifdef FAULT_STORE
            atomic { stopWord[level - 1] = seenWord | bits; requested++; break }
#else
            do
            :: seenWord == idle -> break
            :: else ->
                atomic {
                    if
                    :: stopWord[level - 1] == seenWord -> stopWord[level - 1] = seenWord | bits; requested++; goto over
                    :: else -> seenWord = stopWord[level - 1]
                    fi
                }
            od
#endif
        :: else ->
            if
            :: !sticky -> goto over
            :: else ->
                pendingStop = true;             /* RunStack.swift: requestStop */
#ifdef FAULT_NO_SECOND_LOOK
                goto over;
#endif
                if
                :: innermost == 0 -> goto over
                :: else ->
                    if                          /* RunStack.swift: takePendingStop */
                    :: atomic { pendingStop -> pendingStop = false }
                    :: atomic { !pendingStop -> goto over }
                    fi
                fi
            fi
        fi
    od;
over: skip
}

/* The end of a run: a stop that came too late for it. */
inline endRun(level) {
    innermost = level - 1;                      /* RunStack.swift: pop */
    atomic { word = stopWord[level - 1]; stopWord[level - 1] = idle };
#ifndef FAULT_DROP_LATE
    if
    :: (word & isSticky) && level == 1 -> pendingStop = true    /* RunLoop+Running.swift: run */
    :: (word & isSticky) && level == 2 ->
        atomic { stopWord[0] = stopWord[0] | stopRequested | isSticky }    /* RunFrame.swift: requestStop */
    :: else
    fi
#else
    skip
#endif
}

inline beginRun(level) {
    stopWord[level - 1] = running;              /* RunStack.swift: pushOutermost, pushNested */
    innermost = level
}

inline takeStop(level) {
    atomic {                                    /* RunFrame.swift: takeStop */
        isTaken = (stopWord[level - 1] != running);
        stopWord[level - 1] = running;
        if :: isTaken -> stopped++ :: else fi
    }
}

proctype Owner() {
    byte word, rounds = 0;
    bool isTaken;
    /* Two runs that end by themselves; the first has a run nested in it. */
    do
    :: rounds < 2 ->
        beginRun(1);
        atomic { isTaken = pendingStop; pendingStop = false; if :: isTaken -> stopped++ :: else fi };    /* RunLoop+Running.swift: runIfNotEmpty */
        if
        :: !isTaken && rounds == 0 ->
            beginRun(2);
            takeStop(2);
            endRun(2);
            takeStop(1)
        :: !isTaken && rounds > 0 -> takeStop(1)
        :: else
        fi;
        endRun(1);
        rounds++
    :: else -> break
    od;
    /* A run that only a stop ends. */
    beginRun(1);
    atomic { isTaken = pendingStop; pendingStop = false; if :: isTaken -> stopped++ :: else fi };
    if
    :: isTaken
    :: else ->
        ownerSleeps = true;
end:    stopWord[0] != running;                 /* PendingWork.swift: isReasonToStayAwake */
        ownerSleeps = false;
        takeStop(1)
    fi;
    endRun(1)
}

proctype Judge() {
end: timeout ->
    assert(!ownerSleeps || (!pendingStop && stopWord[0] == running));
    /* One sticky stop has ended one run, or is kept. Plain stops end at most as many runs as they reached. */
    if
    :: isOneSticky -> assert(stopped + (pendingStop -> 1 : 0) == 1)
    :: else -> assert(stopped <= requested && !pendingStop)
    fi
}

init {
    atomic {
        run Owner();
        run Judge();
        if
        :: isOneSticky = true; run Stopper(true)
        :: run Stopper(false); run Stopper(false)
        fi
    }
}
