// Step 9: firing the timers that are due.

import Synchronization

extension RunLoop {
    /// Fires the timers whose dates have been reached at `dueBy`, by date, equal dates by insertion. A timer that a callout adds waits for the
    /// next pass.
    func fireDueTimers(_ frame: RunFrame, _ mode: ModeState, _ dueBy: Int64) { /* DOES CALLOUT */
        assert(frame.timers.isEmpty, "each level of nesting has a batch of its own")
        frame.timers.fill { due in
            while let (_, owner) = mode.timers.popDue(dueBy) {  // ends: what is popped is filed no more
                let timer = Unmanaged<Timer>.fromOpaque(owner).takeUnretainedValue()
                if !timer.isFiring { due.append(timer) }
            }
        }
        if hasPendingWork { carryOutPendingChanges(mode) }
        while frame.timers.hasRest {  // ends: the batch is fixed, and each turn takes one
            frame.timers.takeNext()._withUnsafeGuaranteedRef { fireIfStillDue($0, in: mode, dueBy) }
        }
        while frame.timers.popLast() != nil {}  // ends: one goes a turn
    }

    private func fireIfStillDue(_ timer: Timer, in mode: ModeState, _ dueBy: Int64) { /* DOES CALLOUT */
        if timer.isFiring { return }  // its own callout files it again
        let date = timer.date.load(ordering: .acquiring)
        guard date <= dueBy, takeForFiring(timer, mode), timer.rundown.enter() else { return fileIfPopped(timer) }
        timer.flags.bitwiseOr(Timer.Flag.firing, ordering: .acquiringAndReleasing)
        let version = timer.dateVersion.load(ordering: .acquiring)
        counters.timersFired.increment()
        callOutToTimer(timer)
        afterFiring(timer, date, version)
        if timer.rundown.exit() { timer.finish() }
    }

    /// Files a timer that was taken for firing and is not due any more, unless the call that set its date has filed it: then it keeps its
    /// place among equal dates.
    private func fileIfPopped(_ timer: Timer) {
        for membership in shared.withLock({ _ in isHereLocked(timer) ? timer.memberships.all : [] })
        where membership.modeIndex < modeTable.count {
            modeTable[membership.modeIndex].timers.fileIfPopped(membership.slot, date: timer.date.load(ordering: .acquiring))
        }
    }

    /// Whether a timer is in the mode. If it is, no queue has it until its callout has returned: a run that is nested there does not wake
    /// for it.
    private func takeForFiring(_ timer: Timer, _ mode: ModeState) -> Bool {
        let place = TimerPlace(word: timer.place.load(ordering: .acquiring))
        if place.loopID != id { return false }
        if place.isDirect {
            if place.modeIndex == mode.index { mode.timers.setAside(place.slot) }
            return place.modeIndex == mode.index
        }
        return shared.withLock { _ in
            guard isTimer(timer, in: mode.index) else { return false }
            timer.memberships.forEach { membership in
                // A mode that the owner has not seen yet has a queued change that files the timer.
                if membership.modeIndex < modeTable.count { modeTable[membership.modeIndex].timers.setAside(membership.slot) }
            }
            return true
        }
    }

    /// Gives a timer its next date, or ends it.
    private func afterFiring(_ timer: Timer, _ fired: Int64, _ version: UInt32) {
        // Sequentially consistent with `file`: a loop that the timer was moved to has seen the end of the callout, or gets a change below.
        timer.flags.bitwiseAnd(~Timer.Flag.firing, ordering: .sequentiallyConsistent)
        if !timer.repeats && !timer.isOnDemand { return timer.invalidate() }
        if timer.dateVersion.load(ordering: .acquiring) == version {
            let next = timer.repeats ? Timer.nextSlot(after: fired, interval: timer.intervalNanoseconds, now: now().nanoseconds) : .max
            // A date that was set since the version was read wins.
            _ = timer.date.compareExchange(expected: fired, desired: next, ordering: .acquiringAndReleasing)
        }
        let loopID = TimerPlace(word: timer.place.load(ordering: .sequentiallyConsistent)).loopID
        if loopID == id {
            reschedule(timer)
        } else if loopID != 0 {
            // The handler has moved it to another loop, which left it alone while the handler ran.
            timer.submitRedate(loopID)
        }
    }
}
