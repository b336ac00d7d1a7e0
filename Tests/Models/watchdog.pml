/*
 * How the watchdogs' thread sleeps while all watched loops sleep, and misses no callout (decision 38): the alarm that a loop rings when it
 * begins to work, and the bell on which the thread waits.
 *
 * Each atomic step names the function that makes it, as "File.swift: function". A step is one atomic operation, a section under one lock,
 * or one system call. A loop works two times, and the second time it is stuck: it does not go on before it is reported. The timed wait of
 * half a threshold is a step, because time passes by itself.
 *
 * Properties: a stuck loop is reported, and while all loops sleep the thread blocks.
 *
 * Faults that the search must find (Scripts/check-models):
 *   FAULT_LOOK_FIRST   the thread looks at the loops before it asks for the alarms
 *   FAULT_ALARM_FIRST  a loop looks for the alarm before it says that it works
 *   FAULT_NO_ALARM     the thread blocks without asking for the alarms
 *   FAULT_NO_BELL      the bell keeps no ring: one that comes before the wait is lost
 *   FAULT_WATCH_QUIET  a watch that is added does not ring
 */

#define LOOPS 2

bool isWorking[LOOPS];                          /* Observation.isWorking */
bool isAlarmSet[LOOPS];                         /* Observation.alarm */
bool isWatched[LOOPS];                          /* State.entries, under the lock */
bool isStuck[LOOPS];
bool isReported[LOOPS];
bool bell = false;                              /* alarm.c: rung */
bool isBlocked = false;                         /* the thread is in a wait without a timeout */

inline ring() {
#ifdef FAULT_NO_BELL
    atomic { if :: isBlocked -> bell = true :: else fi }
#else
    bell = true                                 /* Observation.swift: ringAlarm */
#endif
}

inline beginWorking(me) {
#ifdef FAULT_ALARM_FIRST
    if
    :: atomic { isAlarmSet[me] -> isAlarmSet[me] = false }; isWorking[me] = true; ring()
    :: atomic { !isAlarmSet[me] -> skip }; isWorking[me] = true
    fi
#else
    isWorking[me] = true;                       /* Observation.swift: beginWorking */
    if
    :: atomic { isAlarmSet[me] -> isAlarmSet[me] = false }; ring()     /* Observation.swift: ringAlarm */
    :: atomic { !isAlarmSet[me] -> skip }
    fi
#endif
}

proctype Loop(byte me) {
    beginWorking(me);
    isWorking[me] = false;                      /* Observation.swift: endWorking */
    isStuck[me] = true;
    beginWorking(me);
end: isReported[me] ->
    isWorking[me] = false
}

/* Watches the second loop, which may be stuck already. */
proctype Watcher() {
    isWatched[1] = true;                        /* WatchdogThread.swift: add */
#ifndef FAULT_WATCH_QUIET
    ring()
#endif
}

inline look() {
    isAnyAwake = false;
    index = 0;
    do
    :: index < LOOPS ->
        if                                      /* WatchdogRound.swift: look */
        :: atomic { isWatched[index] && isWorking[index] && isStuck[index] -> isAnyAwake = true; isReported[index] = true }
        :: atomic { isWatched[index] && isWorking[index] && !isStuck[index] -> isAnyAwake = true }
        :: atomic { !isWatched[index] || !isWorking[index] -> skip }
        fi;
        index++
    :: else -> break
    od
}

inline requestAlarms() {
    index = 0;
    do
    :: index < LOOPS ->
        atomic { if :: isWatched[index] -> isAlarmSet[index] = true :: else fi };     /* CalloutState.swift: requestAlarm */
        index++
    :: else -> break
    od
}

proctype Thread() {
    byte index;
    bool isAnyAwake;
    do
    ::                                          /* WatchdogThread.swift: serve */
#ifdef FAULT_LOOK_FIRST
        look();
        if
        :: isAnyAwake -> bell = false
        :: else ->
            requestAlarms();
#else
        look();
        if
        :: isAnyAwake -> bell = false           /* a wait with a timeout takes the ring */
        :: else ->
#ifndef FAULT_NO_ALARM
            requestAlarms();                    /* WatchdogRound.swift: requestAlarms */
#endif
            look();
            if :: isAnyAwake -> goto again :: else fi;
#endif
            isBlocked = true;
end:        bell -> isBlocked = false; bell = false       /* WatchdogThread.swift: sleep */
        fi;
again:  skip
    od
}

/* No process can move any more. */
proctype Judge() {
end: timeout ->
    assert(isBlocked);
    assert(isReported[0] && isReported[1]);
    assert(!isWorking[0] && !isWorking[1])
}

init {
    atomic {
        isWatched[0] = true;
        run Thread();
        run Loop(0);
        run Loop(1);
        run Watcher();
        run Judge()
    }
}
