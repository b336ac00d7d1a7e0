// What other threads changed, carried out by the owner before it waits.

import Synchronization

extension RunLoop {
    /// Carries out what was queued. Calls nobody out: items that end here wait in `owned.finishing` for a safe point.
    func applyChanges() {
        owned.pending.remove(.changes)
        var changes = owned.spareChanges
        owned.spareChanges = []
        shared.withLock { shared in
            swap(&changes, &shared.changes)
            if owned.modes.count != shared.modes.count { owned.modes = shared.modes }
        }
        for change in changes { apply(change) }
        changes.removeAll(keepingCapacity: true)
        owned.spareChanges = changes
    }

    /// Carries out a change of the owner's own at once, after all that are queued; from another thread, queues it and wakes the owner.
    ///
    /// Returns false when the loop has ended: nobody will carry it out.
    @discardableResult
    func submit(_ changes: LoopChange...) -> Bool { submit(changes) }

    @discardableResult
    func submit(_ changes: [LoopChange]) -> Bool {
        let isAccepted = shared.withLock { shared in
            if shared.phase == .ended { return false }
            shared.changes.append(contentsOf: changes)
            return true
        }
        guard isAccepted else { return false }
        if isCurrent {
            applyChanges()
            finishItemsIfSafe()
        } else {
            notify(.changes)
        }
        return true
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
            while let (modeIndex, _) = membership.registrations.last { unregister(membership, modeIndex: modeIndex) }  // ends: one goes a turn
            if membership.callsInProgress > 0 { membership.endsAfterCalls = true } else { endUse(of: membership.source) }
        case .timerJoined(let timer, let membership):
            let isMember = shared.withLock { _ in isTimer(timer, in: membership.modeIndex) }
            if isMember { file(timer, membership) }
        case .timerLeft(_, let membership):
            owned.modes[membership.modeIndex].timers.remove(membership.slot)
            shared.withLock { _ in owned.modes[membership.modeIndex].freeTimerSlotLocked(membership.slot) }
        case .timerChanged(let timer):
            timer.flags.bitwiseAnd(~Timer.Flag.redateQueued, ordering: .acquiringAndReleasing)
            fileAgain(timer)
        case .timerDied(let timer):
            if timer.rundown.exit() { defer { owned.pending.insert(.finishing) }; owned.finishing.append(.timer(timer)) }
        case .observerDied(let observer):
            if observer.isFiring { observer.endsAfterCall = true } else { endUse(of: observer) }
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
        while let item = owned.finishing.popFirst() {  // ends: an item goes a turn, and each ends once
            switch item {
            case .source(let source): source.finish()
            case .timer(let timer): timer.finish()
            case .observer(let observer): observer.finish()
            }
        }
    }

    /// As `finishItems`, unless the owner is on its way to sleep, where no callout may be made: then the next pass does it.
    func finishItemsIfSafe() { /* DOES CALLOUT */
        if sleepState.load(ordering: .relaxed) == SleepState.working { finishItems() }
    }
}

extension ContiguousArray {
    fileprivate mutating func popFirst() -> Element? { isEmpty ? nil : removeFirst() }
}
