// Carries out, before the owner waits, the changes that other threads made.

import Synchronization

extension RunLoop {
    /// Carries out what was queued when this began; what comes meanwhile waits for the next pass, so that other threads cannot hold the owner
    /// here. Makes no callout meanwhile: items that end here wait in `owned.ended` for a safe point, and sources that fail are failed at
    /// the end.
    func applyChanges() {
        if owned.changeBatch.isApplying {
            owned.changeBatch.extend(to: shared.withLock { $0.changes.count })
            return
        }
        owned.pending.remove(.changes)
        owned.changeBatch.begin()
        while let change = shared.withLock({ takeChange(&$0) }) {  // ends: with the batch
            apply(change)
        }
        owned.changeBatch.end()
        if owned.changeBatch.hasFailures { failSources() }
    }

    /// A change, and what the lock guards of its item.
    private struct TakenChange: Sendable {
        let change: LoopChange
        var modes = ModeSet()
        var isDead = false
        var isMember = false
    }

    /// The next change of the batch; nil after the last.
    private func takeChange(_ shared: inout LoopShared) -> TakenChange? {
        guard owned.changeBatch.takeOne(of: shared.changes.count) else {
            // The rest is a reason to stay awake, and the next pass begins with it.
            if !shared.changes.isEmpty { owned.pending.insert(.changes) }
            return nil
        }
        var taken = TakenChange(change: shared.changes.popFirst())
        switch taken.change {
        case .source(let change):
            (taken.modes, taken.isDead) = (change.membership.modes, change.membership.isDead)
        case .timerJoined(let timer, let membership):
            // It is, unless the loop has ended: a thread that takes a timer out takes its change out.
            taken.isMember = isTimer(timer, filedAs: membership)
            if taken.isMember { timer.markFiled(inMode: membership.modeIndex) }
        case .timerChanged(let timer):
            // Unless the loop has ended: then another one may have the timer by now.
            if isHereLocked(timer) { timer.forgetQueuedRedate() }
        case .timerLeft, .timerDied, .observerDied: break
        }
        return taken
    }

    /// Fails the sources that have been found not to be watchable, one after another. Their last callouts may add others that fail, and each
    /// end is a change that is carried out, among changes of other threads that may fail too: those are found in calls inside this one,
    /// which leave them to the next pass. So the stack does not grow with the number of failures, and they cannot hold the owner here.
    func failSources() { /* DOES CALLOUT */
        guard let (count, outerDepth) = owned.changeBatch.beginFailing(inRun: runs.depth) else { return }
        for _ in 0..<count {
            // A run nested in a callout may have failed some of them.
            guard let (source, error) = owned.changeBatch.takeFailure() else { break }
            fail(source, error)
        }
        owned.changeBatch.endFailing(outerDepth)
        if owned.changeBatch.hasFailures { owned.pending.insert(.changes) }
    }

    /// Carries out a change of the owner's own at once, after all that are queued; from another thread, queues it and wakes the owner.
    ///
    /// Returns false when the loop has ended: nobody will carry it out.
    @discardableResult
    private func submit(_ queue: (inout LoopShared) -> Void) -> Bool {
        preconditionNotForked()
        let isAccepted = shared.withLock { shared in
            if shared.phase == .ended { return false }
            queue(&shared)
            return true
        }
        if isAccepted { carryOutChanges() }
        return isAccepted
    }

    /// The owner reads the source's `watch` again.
    func submitRewatch(of membership: SourceMembership) {
        submit { if !membership.isDead { $0.changes.enqueueChange(of: membership, isRewatched: true) } }
    }

    /// The owner ends the use of a dead membership. False if the loop has ended.
    func submitEnd(of membership: SourceMembership) -> Bool { submit { $0.changes.enqueueChange(of: membership) } }

    /// The owner ends the use of an observer that has left. False if the loop has ended.
    func submitEnd(of observer: Observer) -> Bool { submit { $0.changes.enqueueEnd(observer) } }

    /// The owner files a timer under its present date. Nothing if the timer has left this loop: the loop that took it has read the date.
    func submitRedate(of timer: Timer) {
        preconditionNotForked()
        let mustTell = shared.withLock { shared in isHereLocked(timer) && shared.changes.enqueueRedate(timer) }
        if mustTell { carryOutChanges() }
    }

    /// Carries out what was queued, on the owning thread; elsewhere wakes the owner.
    func carryOutChanges() {
        preconditionNotForked()
        if isCurrent {
            applyChanges()
            finishItemsIfSafe()
            didChangeSleep()
        } else {
            notify(.changes)
        }
    }

    private func apply(_ taken: TakenChange) {
        switch taken.change {
        case .source(let change):
            if taken.isDead { applyEnd(of: change.membership) } else { apply(change, modes: taken.modes) }
        case .timerJoined(let timer, let membership):
            if taken.isMember { file(timer, membership) }
        case .timerLeft(_, let membership):
            modeTable.withMode(membership.modeIndex) { mode in
                mode.timers.remove(membership.slot)
                shared.withLock { _ in mode.timerSlots.giveBack(membership.slot) }
            }
        case .timerChanged(let timer):
            fileAgain(timer)
        case .timerDied(let timer):
            // A date that this thread set while another one moved the timer is not lost.
            let loopID = timer.state.latest.loopID
            if loopID != 0 && loopID != id { timer.submitRedate(loopID) }
            endUse(of: timer)
        case .observerDied(let observer):
            forgetSeenObservers()
            if observer.isFiring.load(ordering: .relaxed) { owned.ended.hold(observer) } else { endUse(of: observer) }
        }
    }

    private func apply(_ change: SourceChange, modes: ModeSet) {
        let membership = change.membership
        change.left.forEach { unregister(membership, modeIndex: $0) }
        // No-op for modes that have it already.
        modes.forEach { if !membership.parkedModes.contains($0) { register(membership, in: modeTable[$0]) } }
        if change.isRewatched { updateRegistrations(membership) }
    }

    /// Takes the source off every base, then ends the membership's use of it.
    func applyEnd(of membership: SourceMembership) {
        forgetParked(membership)
        // Ends: one goes a turn.
        while let last = membership.anyRegistration { unregister(membership, modeIndex: Int(last.pointee.tag)) }
        if isServing(membership.source) { endUseAfterCalls(of: membership.source) } else { endUse(of: membership.source) }
    }

    func endUse(of timer: Timer) {
        if timer.state.exit() {
            owned.ended.append(.timer(timer))
            owned.pending.insert(.finishing)
        }
    }

    func endUse(of source: Source) {
        if source.rundown.exit() {
            owned.ended.append(.source(source))
            owned.pending.insert(.finishing)
        }
    }

    func endUse(of observer: Observer) {
        if observer.rundown.exit() {
            owned.ended.append(.observer(observer))
            owned.pending.insert(.finishing)
        }
    }

    /// Makes the last callouts of items that have ended, and releases their handlers.
    func finishItems() { /* DOES CALLOUT */
        owned.pending.remove(.finishing)
        while !owned.ended.isEmpty {  // ends: each item ends once
            for item in owned.ended.takeAll() {
                switch item {
                case .source(let source): finish(source)
                case .timer(let timer): timer.finish()
                case .observer(let observer): observer.finish()
                }
            }
        }
    }

    private func finish(_ source: Source) { /* DOES CALLOUT */
        guard isObserved && source.hasInvalidationBodies else { return source.finish() }
        let span = Observed.open(self, modeTable[max(0, runs.modeIndex)], source.callout(.invalidation))
        source.finish()
        Observed.close(self, span)
    }

    /// As `finishItems`, unless the owner is on its way to sleep, where no callout may be made: then the next pass does it.
    func finishItemsIfSafe() { /* DOES CALLOUT */
        if mayCallOut && !owned.changeBatch.isApplying { finishItems() }
    }
}
