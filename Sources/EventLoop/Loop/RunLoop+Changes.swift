// What other threads changed, carried out by the owner before it waits.

import Synchronization

extension RunLoop {
    /// Carries out what was queued. Calls nobody out while it does: items that end here wait in `owned.finishing` for a safe point, and
    /// sources that fail are failed at the end.
    func applyChanges() {
        if owned.isApplyingChanges { return }  // the call further out goes on until nothing is queued
        owned.isApplyingChanges = true
        var changes = owned.spareChanges
        owned.spareChanges = []
        repeat {  // ends: applying queues nothing by itself
            owned.pending.remove(.changes)
            changes.removeAll(keepingCapacity: true)
            shared.withLock { shared in
                swap(&changes, &shared.changes)
                if owned.modes.count != shared.modes.count { owned.modes = shared.modes }
            }
            for change in changes { apply(change) }
        } while !changes.isEmpty
        owned.spareChanges = changes
        owned.isApplyingChanges = false
        if !owned.failures.isEmpty { failSources() }
    }

    func failSources() { /* DOES CALLOUT */
        let failures = owned.failures
        owned.failures = []
        for (source, error) in failures { fail(source, error) }
    }

    /// Carries out a change of the owner's own at once, after all that are queued; from another thread, queues it and wakes the owner.
    ///
    /// Returns false when the loop has ended: nobody will carry it out.
    @discardableResult
    func submit(_ changes: LoopChange...) -> Bool { submit(changes) }

    @discardableResult
    func submit(_ changes: [LoopChange]) -> Bool {
        preconditionNotForked()
        let isAccepted = shared.withLock { shared in
            if shared.phase == .ended { return false }
            shared.changes.append(contentsOf: changes)
            return true
        }
        if isAccepted { carryOutChanges() }
        return isAccepted
    }

    /// Carries out what was queued, on the owning thread; elsewhere tells the owner.
    func carryOutChanges() {
        preconditionNotForked()
        if isCurrent {
            applyChanges()
            finishItemsIfSafe()
        } else {
            notify(.changes)
        }
    }

    private func apply(_ change: LoopChange) {
        switch change {
        case .sourceJoined(let membership, let modeIndex):
            let isMember = shared.withLock { _ in !membership.isDead && membership.modes.contains(modeIndex) }
            if isMember { register(membership, in: owned.modes[modeIndex]) }
        case .sourceLeft(let membership, let modeIndex):
            let isMember = shared.withLock { _ in membership.modes.contains(modeIndex) }
            if !isMember { unregister(membership, modeIndex: modeIndex) }
        case .sourceChanged(let membership):
            updateRegistrations(membership)
        case .sourceDied(let membership):
            forgetParked(membership)
            // Ends: one goes a turn.
            while let last = membership.anyRegistration { unregister(membership, modeIndex: Int(last.pointee.tag)) }
            if membership.callsInProgress > 0 { membership.endsAfterCalls = true } else { endUse(of: membership.source) }
        case .timerJoined(let timer, let membership):
            let isMember = shared.withLock { _ in isTimer(timer, filedAs: membership) }
            if isMember { file(timer, membership) }
        case .timerLeft(_, let membership):
            owned.modes[membership.modeIndex].timers.remove(membership.slot)
            shared.withLock { _ in owned.modes[membership.modeIndex].freeTimerSlotLocked(membership.slot) }
        case .timerChanged(let timer):
            timer.flags.bitwiseAnd(~Timer.Flag.redateQueued, ordering: .acquiringAndReleasing)
            fileAgain(timer)
        case .timerDied(let timer):
            // A date that this thread set while another one moved the timer is not lost.
            let loopID = TimerPlace(word: timer.place.load(ordering: .sequentiallyConsistent)).loopID
            if loopID != 0 && loopID != id { timer.tellLoop(loopID) }
            if timer.rundown.exit() {
                owned.finishing.append(.timer(timer))
                owned.pending.insert(.finishing)
            }
        case .observerDied(let observer):
            forgetSeenObservers()
            if observer.isFiring.load(ordering: .relaxed) { owned.observersToEnd.append(observer) } else { endUse(of: observer) }
        }
    }

    func endUse(of source: Source) {
        if source.rundown.exit() {
            owned.finishing.append(.source(source))
            owned.pending.insert(.finishing)
        }
    }

    func endUse(of observer: Observer) {
        if observer.rundown.exit() {
            owned.finishing.append(.observer(observer))
            owned.pending.insert(.finishing)
        }
    }

    /// Makes the last callouts of items that have ended, and lets go of their handlers.
    func finishItems() { /* DOES CALLOUT */
        owned.pending.remove(.finishing)
        while !owned.finishing.isEmpty {  // ends: each item ends once
            let items = owned.finishing
            owned.finishing = []
            for item in items {
                switch item {
                case .source(let source): source.finish()
                case .timer(let timer): timer.finish()
                case .observer(let observer): observer.finish()
                }
            }
        }
    }

    /// As `finishItems`, unless the owner is on its way to sleep, where no callout may be made: then the next pass does it.
    func finishItemsIfSafe() { /* DOES CALLOUT */
        if sleepState.load(ordering: .relaxed) == SleepState.working && !owned.isApplyingChanges { finishItems() }
    }
}
