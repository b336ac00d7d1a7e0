// Step 9: firing the timers that are due. Tests/Models/moving.pml checks every interleaving with a loop that a handler moves its timer to, and with
// a thread that sets the date of a timer on demand.

import Synchronization

extension RunLoop {
    /// Fires the timers whose dates have been reached at `dueBy` (rules 5.4 and 5.5).
    func fireDueTimers(_ frame: RunFrame, _ mode: ModeState, _ dueBy: Int64) { /* DOES CALLOUT */
        assert(frame.owned.timers.isEmpty, "each level of nesting has a batch of its own")
        frame.owned.timers.fill { due in
            while let (_, owner) = mode.owned.timers.popDue(dueBy) {  // ends: what is popped is filed no more
                let timer = Borrowed<Timer>(at: owner, keptBy: .record)
                if !timer.use({ $0.isFiring }) { due.append(timer.object) }
            }
        }
        if hasPendingWork { carryOutPendingChanges(mode) }
        // A timer that is due alone is called when the batch was taken.
        let isAlone = !frame.owned.timers.hasSeveral
        while frame.owned.timers.hasRest {  // ends: the batch is fixed, and each iteration takes one
            frame.owned.timers.takeNext().use { fireIfStillDue($0, in: mode, dueBy, isAlone: isAlone) }
        }
        while frame.owned.timers.popLast() != nil {}  // ends: each iteration removes one
    }

    @inline(__always) private func fireIfStillDue(_ timer: Timer, in mode: ModeState, _ dueBy: Int64, isAlone: Bool) { /* DOES CALLOUT */
        if timer.isFiring { return }  // its own callout files it again
        guard timer.state.beginFiring(in: id) else { return putBack(timer) }
        // In this order: a removal that returned before the firing began is seen here (Tests/Models/removal.pml), and so is a call in another loop.
        let date = timer.date.load(ordering: .acquiring)
        guard date <= dueBy, takeForFiring(timer, mode), !timer.state.isOnDemand || takeDate(of: timer, date) else {
            return giveUpFiring(timer)
        }
        // A date in the distant past means "now".
        counters.fireTimer(late: date == .min ? 0 : (isAlone ? dueBy : now().nanoseconds).subtractingSaturated(date))
        let span = openSpan(mode, timer.callout)
        callOutToTimer(timer)
        closeSpan(span)
        endCall(of: timer, date)
    }

    @inline(__always) private func endCall(of timer: Timer, _ fired: Int64) { /* DOES CALLOUT */
        if timer.repeats || timer.state.isOnDemand { fileNext(timer, fired) } else { endFired(timer) }
    }

    /// The thread ends inside a call of the timer's handler: it has returned.
    func endFiring(of timer: Timer) { /* DOES CALLOUT */ endCall(of: timer, timer.date.load(ordering: .acquiring)) }
    /// A timer that has left the mode meanwhile, or got a later date, is not called.
    @inline(never) private func giveUpFiring(_ timer: Timer) { /* DOES CALLOUT */ endFiring(timer) { putBack($0) } }

    /// Whether a timer is in the mode. If it is, no queue has it until its callout has returned: a run that is nested there does not wake for it.
    private func takeForFiring(_ timer: Timer, _ mode: ModeState) -> Bool {
        let location = TimerLocation(word: timer.location.load(ordering: .acquiring))
        if location.loopID != id { return false }
        if location.isDirect {
            if location.modeIndex == mode.index { mode.owned.timers.setAside(location.slot) }
            return location.modeIndex == mode.index
        }
        return shared.withLock { _ in
            guard isTimer(timer, in: mode.index) else { return false }
            for membership in timer.memberships { modeTable[membership.modeIndex].owned.timers.setAside(membership.slot) }
            return true
        }
    }

    /// A timer on demand loses its date before its callout, so that a date that another thread sets from then on is fired, also if it equals the one
    /// that is being fired. False if another date was set meanwhile.
    @inline(__always) private func takeDate(of timer: Timer, _ date: Int64) -> Bool {
        timer.date.compareExchange(expected: date, desired: .max, ordering: .acquiringAndReleasing).exchanged
    }

    /// Gives a repeating timer its next date, and files a timer that stays valid under the date that it has.
    private func fileNext(_ timer: Timer, _ fired: Int64) { /* DOES CALLOUT */
        // Before the firing ends: from then on a loop that the timer was moved to fires it, and the date that was fired has passed.
        if timer.repeats && !timer.state.latest.isDateSet {
            let next = Timer.nextSlot(after: fired, interval: timer.intervalNanoseconds, now: now().nanoseconds)
            // A date that was set since then wins.
            _ = timer.date.compareExchange(expected: fired, desired: next, ordering: .acquiringAndReleasing)
        }
        endFiring(timer) { reschedule($0) }
    }

    /// Ends the firing of a timer that stays valid, and files it with `fileHere`, or has the loop file it to which it was moved meanwhile.
    @inline(__always) private func endFiring(_ timer: Timer, _ fileHere: (Timer) -> Void) { /* DOES CALLOUT */
        // Sequentially consistent with `file`: a loop that the timer was moved to has seen the end of the callout, or gets a change below.
        let isLast = timer.state.endFiring()
        let loopID = timer.state.latest.loopID
        if loopID == id { fileHere(timer) } else if loopID != 0 { timer.submitRedate(loopID) }
        if isLast { timer.finish() }
    }

    private func endFired(_ timer: Timer) { /* DOES CALLOUT */
        let location = TimerLocation(word: timer.location.load(ordering: .acquiring))
        if location.loopID == id && location.isDirect && expelAtOnce(timer, location, ending: .firingAndValidity) { return }
        // Before the firing ends: from then on a loop that it was moved to would call it again. This use ends last, to release the handler here.
        timer.invalidate()
        if timer.state.endFiring() { timer.finish() }
    }
}
