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
        let called = BatchTime(dueBy, time.manualClock, isOne: !frame.timers.hasSeveral)
        if isObserved {
            fire(frame, mode, dueBy, called, Observed.self)
        } else {
            fire(frame, mode, dueBy, called, Unobserved.self)
        }
        while frame.timers.popLast() != nil {}  // ends: one goes a turn
    }

    @inline(__always)
    private func fire<Observer: CalloutObserver>(
        _ frame: RunFrame, _ mode: ModeState, _ dueBy: Int64, _ called: BatchTime, _ observer: Observer.Type
    ) { /* DOES CALLOUT */
        while frame.timers.hasRest {  // ends: the batch is fixed, and each turn takes one
            frame.timers.takeNext()._withUnsafeGuaranteedRef { fireIfStillDue($0, in: mode, dueBy, called, observer) }
        }
    }

    @inline(__always)
    private func fireIfStillDue<Observer: CalloutObserver>(
        _ timer: Timer, in mode: ModeState, _ dueBy: Int64, _ called: BatchTime, _: Observer.Type
    ) { /* DOES CALLOUT */
        if timer.isFiring { return }  // its own callout files it again
        let date = timer.date.load(ordering: .acquiring)
        guard date <= dueBy, takeForFiring(timer, mode), timer.state.beginFiring() else { return fileIfPopped(timer) }
        // A date in the distant past means "now".
        counters.fireTimer(late: date == .min ? 0 : called.now.subtractingSaturated(date))
        let span = Observer.open(self, mode, timer.callout)
        callOutToTimer(timer)
        Observer.close(self, span)
        if timer.repeats || timer.isOnDemand { fileNext(timer, date) } else { endFired(timer) }
    }

    /// Files a timer that was taken for firing and is not due any more, unless the call that set its date has filed it: then it keeps its
    /// place among equal dates.
    private func fileIfPopped(_ timer: Timer) {
        for membership in shared.withLock({ _ in isHereLocked(timer) ? timer.memberships : [] })
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
            for membership in timer.memberships {
                // A mode that the owner has not seen yet has a queued change that files the timer.
                if membership.modeIndex < modeTable.count { modeTable[membership.modeIndex].timers.setAside(membership.slot) }
            }
            return true
        }
    }

    /// Gives a timer its next date.
    private func fileNext(_ timer: Timer, _ fired: Int64) { /* DOES CALLOUT */
        // Sequentially consistent with `file`: a loop that the timer was moved to has seen the end of the callout, or gets a change below.
        let (was, isLast) = timer.state.endFiring()
        if !was.isDateSet {
            let next = timer.repeats ? Timer.nextSlot(after: fired, interval: timer.intervalNanoseconds, now: now().nanoseconds) : .max
            // A date that was set since then wins.
            _ = timer.date.compareExchange(expected: fired, desired: next, ordering: .acquiringAndReleasing)
        }
        let loopID = timer.state.latest.loopID
        if loopID == id {
            reschedule(timer)
        } else if loopID != 0 {
            // The handler has moved it to another loop, which left it alone while the handler ran.
            timer.submitRedate(loopID)
        }
        if isLast { timer.finish() }
    }

    /// Ends a timer that fires once.
    private func endFired(_ timer: Timer) { /* DOES CALLOUT */
        let place = TimerPlace(word: timer.place.load(ordering: .acquiring))
        if place.loopID == id && place.isDirect && expelAtOnce(timer, place, ending: .firingAndValidity) { return }
        // Its use goes on until it has left the loop, so that the handler is released here.
        timer.state.stopFiring()
        timer.invalidate()
        if timer.state.exit() { timer.finish() }
    }
}

/// The time at which each timer of a batch is called. A timer that is due alone is called when the batch was taken; for several, the
/// processor's clock says how much later each is called, because a reading of the system's takes as long as firing a timer.
private struct BatchTime {
    private let taken: Int64
    private let clock: RunLoop.ManualClock?
    private var unit = 0.0
    private var start: UInt64 = 0

    init(_ taken: Int64, _ clock: RunLoop.ManualClock?, isOne: Bool) {
        self.clock = clock
        if isOne || clock != nil {
            self.taken = taken
        } else {
            let reading = TickClock.Reading.now
            unit = reading.nanosecondsPerTick(since: TickClock.start) ?? 1
            (self.taken, start) = (reading.nanoseconds, reading.ticks)
        }
    }

    @inline(__always)
    var now: Int64 {
        if let clock { return clock.now.nanoseconds }
        return unit == 0 ? taken : taken &+ Int64(Double(TickClock.passed(start, TickClock.ticks)) * unit)
    }
}
