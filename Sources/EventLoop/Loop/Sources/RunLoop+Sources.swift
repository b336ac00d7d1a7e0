// Sources in modes: add, remove, contains, invalidate.

import Synchronization

extension RunLoop {
    /// Adds a source to a mode, or with `.common` to every mode that is or becomes a common one. Wakes the loop.
    ///
    /// False when the source is invalid or the loop has ended. A source that is there already stays as it is. Calls `schedule` of a
    /// custom source, on the calling thread, after the fact. Thread-safe. See `CFRunLoopAddSource`.
    @discardableResult
    public func add(_ source: Source, forMode mode: Mode = .default) -> Bool { /* DOES CALLOUT */
        addIfPossible(source, forMode: mode) || refuse(source)
    }

    /// The same for a source that may be invalid, or for a loop that may have ended, without the caller's mistake.
    func addIfPossible(_ source: Source, forMode mode: Mode) -> Bool { /* DOES CALLOUT */
        preconditionNotForked()
        // Held until the callouts below have returned.
        guard source.rundown.enter() else { return false }
        defer { if source.rundown.exit() { source.finish() } }
        while true {  // ends: each turn means that another thread has ended the membership meanwhile
            guard let membership = source.membership(joining: self) else { return false }
            if addInPlace(source, membership, forMode: mode) { return true }
            let outcome = shared.withLock { $0.join(membership, mode) }
            switch outcome {
            case .isDead: source.forget(membership)
            case .refused(let isDead):
                if isDead {
                    source.forget(membership)
                    _ = source.rundown.exit()  // not the last: this call holds one
                }
                return false
            case .joined(let gained):
                afterJoining(membership, gained)
                return true
            }
        }
    }

    /// Takes a source out of a mode; with `.common`, out of every common mode. Nothing when it is not there.
    ///
    /// On the owning thread there are no further calls of the handler once this returns; on another, at most the one in progress.
    /// Validity and a pending signal stay. Calls `cancel` of a custom source, on the calling thread. Thread-safe.
    public func remove(_ source: Source, forMode mode: Mode = .default) { /* DOES CALLOUT */
        if belongsToParentProcess { return }
        // Held until the callouts have returned. The thread that invalidated a source is taking it out of every mode.
        guard source.rundown.enter() else { return }
        defer { if source.rundown.exit() { source.finish() } }
        guard let membership = source.existingMembership(of: self) else { return }
        if removeInPlace(source, membership, forMode: mode) { return }
        let (lost, isDead) = shared.withLock { $0.leave(membership, mode) }
        afterLeaving(membership, lost, isDead: isDead)
    }

    /// Whether the source is in the mode; for `.common`, whether it was added to the common modes. Thread-safe.
    public func contains(_ source: Source, forMode mode: Mode = .default) -> Bool {
        guard let membership = source.existingMembership(of: self) else { return false }
        return shared.withLock { shared in
            if membership.isDead { return false }
            if mode == .common { return membership.isCommon }
            guard let state = shared.modes.find(mode) else { return false }
            return membership.modes.contains(state.index)
        }
    }

    /// Takes an invalid source out of every mode, for good.
    fileprivate func expel(_ membership: SourceMembership) { /* DOES CALLOUT */
        let (lost, isDead) = shared.withLock { $0.expel(membership) }
        afterLeaving(membership, lost, isDead: isDead)
    }

    func afterJoining(_ membership: SourceMembership, _ gained: [ModeState]) { /* DOES CALLOUT */
        if gained.isEmpty { return }
        if membership.source.kind.isWatched {
            carryOutChanges()
        } else {
            // "Adding an input source to the run loop wakes it up" (the Guide).
            waker.mark(membership.source.kind == .messages ? .messages : .signals)
            notifyIfElsewhere(.wake)
        }
        for mode in gained { membership.source.didJoin(self, mode.name) }
    }

    func afterLeaving(_ membership: SourceMembership, _ lost: [ModeState], isDead: Bool) { /* DOES CALLOUT */
        if !lost.isEmpty { removals.increment() }
        for mode in lost { membership.source.didLeave(self, mode.name) }
        if isDead { membership.source.forget(membership) }
        if membership.source.kind.isWatched {
            carryOutChanges()
        } else if isDead && !endInPlace(membership) && !submitEnd(of: membership) && membership.source.rundown.exit() {
            membership.source.finish()
        }
        // The mode may be empty now.
        if !lost.isEmpty { notifyIfElsewhere(.wake) }
    }
}

extension LoopShared {
    enum JoinOutcome: Sendable {
        case joined([ModeState])
        case isDead
        /// `isDead`: the membership never came to life.
        case refused(isDead: Bool)
    }

    mutating func join(_ membership: SourceMembership, _ name: RunLoop.Mode) -> JoinOutcome {
        if membership.isDead { return .isDead }
        let isNew = membership.modes.isEmpty && !membership.isCommon
        if phase == .ended || !membership.source.isValid {
            if isNew { membership.isDead = true }
            return .refused(isDead: isNew)
        }
        if isNew { insert(membership) }
        if name == .common {
            membership.isCommon = true
            return .joined(modes.commonNames.compactMap { put(membership, in: modes.makeLocked($0)) })
        }
        return .joined(put(membership, in: modes.makeLocked(name)).map { [$0] } ?? [])
    }

    /// The mode, when the source was not in it.
    mutating func put(_ membership: SourceMembership, in mode: ModeState) -> ModeState? {
        guard membership.modes.insert(mode.index) else { return nil }
        mode.changePopulationLocked(by: 1)
        switch membership.source.kind {
        case .watched, .descriptor, .guest:
            mode.watchedSources.add(1, ordering: .acquiringAndReleasing)
            if membership.source.kind == .guest { mode.addGuestLoopLocked(membership) }
            changes.enqueueChange(of: membership)
        case .messages:
            if membership.source.hasMessage { mode.enqueueMessagesLocked(of: membership) }
        case .custom:
            if membership.custom.isSignaled { mode.enqueueSignalLocked(of: membership) }
        }
        return mode
    }

    mutating func leave(_ membership: SourceMembership, _ name: RunLoop.Mode) -> (lost: [ModeState], isDead: Bool) {
        if membership.isDead { return ([], false) }
        var lost: [ModeState] = []
        if name == .common {
            guard membership.isCommon else { return ([], false) }
            membership.isCommon = false
            for name in modes.commonNames {
                if let mode = modes.find(name), takeOut(membership, of: mode) { lost.append(mode) }
            }
        } else if let mode = modes.find(name), takeOut(membership, of: mode) {
            lost.append(mode)
        }
        return (lost, endIfUnused(membership, lost))
    }

    mutating func expel(_ membership: SourceMembership) -> (lost: [ModeState], isDead: Bool) {
        if membership.isDead { return ([], false) }
        membership.isCommon = false
        var lost: [ModeState] = []
        modes.forEach { if takeOut(membership, of: $0) { lost.append($0) } }
        return (lost, endIfUnused(membership, lost))
    }

    private mutating func takeOut(_ membership: SourceMembership, of mode: ModeState) -> Bool {
        guard membership.modes.remove(mode.index) else { return false }
        mode.changePopulationLocked(by: -1)
        switch membership.source.kind {
        case .watched, .descriptor: mode.watchedSources.subtract(1, ordering: .acquiringAndReleasing)
        case .guest:
            mode.watchedSources.subtract(1, ordering: .acquiringAndReleasing)
            mode.removeGuestLoopLocked(membership)
        case .messages: mode.messaged.remove(membership, inMode: mode.index)
        case .custom: mode.signaled.remove(membership, inMode: mode.index)
        }
        return true
    }

    /// Ends a membership that has lost its last mode. The change for the kernel is queued with it, so that no run finishes between the
    /// two; a custom source's `cancel` comes before.
    private mutating func endIfUnused(_ membership: SourceMembership, _ lost: [ModeState]) -> Bool {
        guard membership.modes.isEmpty && !membership.isCommon else {
            if membership.source.kind.isWatched {
                for mode in lost { changes.enqueueChange(of: membership, left: mode.index) }
            }
            return false
        }
        if membership.source.kind.isWatched { changes.enqueueChange(of: membership) }
        endLocked(membership)
        return true
    }
}

extension RunLoop.Source {
    /// Removes the source from every loop and mode, for good. Pending signals are forgotten; a second call does nothing.
    ///
    /// From another thread than a loop's it does not wait for a call of the handler in progress there: `onInvalidation` says when the
    /// last one is over. Calls `cancel` of a custom source for each mode, on the calling thread. In a child of fork a source that is in a loop
    /// of the parent's becomes invalid for the child, and nobody is called. Thread-safe. See `CFRunLoopSourceInvalidate`.
    public func invalidate() { /* DOES CALLOUT */
        let (isFirst, isLast) = rundown.invalidate()
        // A second caller goes on as well: the first may have been preempted, and a caller relies on the end when this returns.
        if isFirst { didInvalidate() }
        if isLast { return finish() }
        for membership in state.withLockUnlessInherited({ $0.memberships }) ?? [] where !membership.loop.belongsToParentProcess {
            membership.loop.expel(membership)
        }
    }

    /// The membership of `loop`, made and with a use of its own if there is none; nil when the source is invalid.
    fileprivate func membership(joining loop: RunLoop) -> SourceMembership? {
        state.withLock { state in
            if let membership = state.membership(of: loop) { return membership }
            guard rundown.enter() else { return nil }
            let membership = SourceMembership(source: self, loop: loop)
            // Taken out and put in again by its own handler it has had its turn.
            if kind == .messages && loop.isCurrent && core.pointee.servingLoop.load(ordering: .relaxed) == loop.id {
                membership.messageStep = loop.owned.messageSteps.last
            }
            state.add(membership)
            return membership
        }
    }

    /// The loops that the source is in, and its modes there; a copy.
    var places: [(loop: RunLoop, modes: [RunLoop.Mode])] {
        state.withLock { $0.memberships }.map { membership in
            let modes = membership.loop.shared.withLock { shared in
                shared.modes.all.filter { membership.modes.contains($0.index) }.map(\.name)
            }
            return (membership.loop, modes)
        }
    }

    func existingMembership(of loop: RunLoop) -> SourceMembership? {
        state.withLock { $0.membership(of: loop) }
    }

    func forget(_ membership: SourceMembership) {
        state.withLock { $0.remove(membership) }
    }
}
