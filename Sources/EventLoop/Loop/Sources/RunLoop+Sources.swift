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

    /// The same for a source that may be invalid, or for a loop that may have ended, without the caller's mistake: a refusal is not reported.
    @discardableResult
    package func addIfPossible(_ source: Source, forMode mode: Mode) -> Bool { /* DOES CALLOUT */
        if source.isOfParent { source.invalidate() }
        // Without `schedule` the call holds no use: the loop may make a last callout of another item inside, which may end the thread.
        if !source.callsOutWhenJoining { return source.isValid && join(source, mode) }
        guard source.rundown.enter() else { return false }
        var isAdded = false
        CallInProgress.call({ isAdded = join(source, mode) }, then: { source.endUse() })
        return isAdded
    }

    /// The caller holds the source.
    @inline(__always) private func join(_ source: Source, _ mode: Mode) -> Bool { /* DOES CALLOUT */
        while true {  // ends: each iteration means that another thread has ended the membership meanwhile
            guard let membership = source.membership(joining: self) else { return false }
            let mayApply = mayApplyAtOnce(source)
            switch shared.withLock({ $0.join(membership, mode, mayApply: mayApply) }) {
            case .isDead: source.forget(membership)
            case .refused(let isDead):
                if isDead {
                    source.forget(membership)
                    source.endUse()
                }
                return false
            case .joined(let gained, let isQueued):
                afterJoining(membership, gained, isQueued: isQueued)
                return true
            }
        }
    }

    /// Takes a source out of a mode; with `.common`, out of every common mode. Nothing when it is not there.
    ///
    /// On the owning thread there are no further calls of the handler once this returns; on another, at most the one in progress.
    /// Validity and a pending signal stay. Calls `cancel` of a custom source, on the calling thread. Thread-safe.
    public func remove(_ source: Source, forMode mode: Mode = .default) { /* DOES CALLOUT */
        // The thread that invalidated a source is taking it out of every mode.
        if !source.isValid { return }
        if !source.callsOutWhenLeaving { return leave(source, mode) }
        if source.rundown.enter() { CallInProgress.call({ leave(source, mode) }, then: { source.endUse() }) }
    }

    /// The caller holds the source.
    @inline(__always) private func leave(_ source: Source, _ mode: Mode) { /* DOES CALLOUT */
        guard let membership = source.existingMembership(of: self) else { return }
        let way = wayOut(of: source, isAwaited: false)
        afterLeaving(membership, leaveMarked { $0.leave(membership, mode, way) })
    }

    /// Whether the source is in the mode; for `.common`, whether it was added to the common modes. Thread-safe.
    public func contains(_ source: Source, forMode mode: Mode = .default) -> Bool {
        guard let membership = source.existingMembership(of: self) else { return false }
        return shared.withLockIfOwn { shared in
            if membership.locked.isDead { return false }
            if mode == .common { return membership.locked.isCommon }
            return shared.modes.findLocked(mode).map { membership.locked.modes.contains($0.index) } ?? false
        } ?? false
    }

    /// Takes an invalid source out of every mode. True if this is the owner's thread, and no other one has ended the membership.
    fileprivate func expel(_ membership: SourceMembership) -> Bool { /* DOES CALLOUT */
        let isOwner = LoopID.current == id
        let way = wayOut(of: membership.source, isAwaited: membership.source.hasInvalidationBodies)
        let departure = leaveMarked { $0.expel(membership, way) }
        afterLeaving(membership, departure)
        return isOwner && departure.isDead
    }

    /// Whether the owner may carry out a change of this source at once, if none is queued: changes have an order. Any thread. Only for
    /// `DescriptorSource`, which is called neither when it joins nor when it leaves: nothing can run the loop between the lock and the change.
    private func mayApplyAtOnce(_ source: Source) -> Bool {
        source.kind == .descriptor && LoopID.current == id && !owned.changeBatch.isApplying
    }

    /// `isAwaited`: somebody waits for the end of the source.
    private func wayOut(of source: Source, isAwaited: @autoclosure () -> Bool) -> LoopShared.WayOut {
        if LoopID.current != id { return isAwaited() ? .queued : .unseen }
        return mayApplyAtOnce(source) ? .atOnce : .queued
    }

    /// Marks the queued change before another thread can know of it: an owner that sees the new count of removals carries it out before its batch.
    private func leaveMarked(_ body: (inout LoopShared) -> LoopShared.Departure) -> LoopShared.Departure {
        shared.withLockIfOwn { shared -> LoopShared.Departure in
            let departure = body(&shared)
            if departure.isQueued && LoopID.current != id { waker.mark(.changes) }
            return departure
        } ?? LoopShared.Departure()
    }

    /// The caller holds the source.
    func afterJoining(_ membership: SourceMembership, _ gained: ModeSet, isQueued: Bool) { /* DOES CALLOUT */
        if gained.isEmpty { return }
        // The loop asks a guest before it sleeps, also if it has asked the others already.
        if membership.source.kind == .guest { waker.mark(.wake) }
        if isQueued {
            carryOutChanges()
        } else if membership.source.kind.isWatched {
            applyAtOnce(membership, modes: gained)
        } else {
            // "Adding an input source to the run loop wakes it up" (the Guide).
            waker.mark(membership.source.kind == .messages ? .messages : .signals)
            notifyIfElsewhere(.wake)
        }
        if membership.source.kind == .descriptor { return }
        let source = membership.source
        if source.callsOutWhenJoining { return callForEachMode(of: gained) { source.didJoin(self, $0.name) } }
        gained.forEach { source.didJoin(self, modeTable[$0].name) }
    }

    /// Calls `body`, which calls the program, with each mode of a set, in order. If the thread ends inside, the other calls follow.
    private func callForEachMode(of set: ModeSet, _ body: @escaping (ModeState) -> Void) { /* DOES CALLOUT */
        var left = shared.withLockIfOwn { $0.modes.inOrderLocked(set) } ?? []
        CallInProgress.callForEach({ left.popFirst() }, body)
    }

    /// Recorded on the loop's thread only: the others have no recording of this loop.
    func callDidLeave(_ source: Source, _ mode: ModeState) { /* DOES CALLOUT */
        guard LoopID.current == id, source.callsOutWhenLeaving else { return source.didLeave(self, mode.name) }
        let span = openSpan(mode, source.callout(.invalidation))
        source.didLeave(self, mode.name)
        closeSpan(span)
    }

    private func afterLeaving(_ membership: SourceMembership, _ departure: LoopShared.Departure) { /* DOES CALLOUT */
        let lost = departure.lost
        if lost.isEmpty && !departure.isDead { return }
        if !lost.isEmpty { removals.add(1, ordering: .acquiringAndReleasing) }
        if membership.source.kind == .descriptor { return finishLeaving(membership, departure) }
        let source = membership.source
        if !source.callsOutWhenLeaving {
            lost.forEach { source.didLeave(self, modeTable[$0].name) }
            return finishLeaving(membership, departure)
        }
        let rest = { self.finishLeaving(membership, departure) }
        CallInProgress.call({ callForEachMode(of: lost) { self.callDidLeave(source, $0) } }, then: rest)
    }

    @inline(__always) private func finishLeaving(_ membership: SourceMembership, _ departure: LoopShared.Departure) { /* DOES CALLOUT */
        let (lost, isDead) = (departure.lost, departure.isDead)
        if isDead { membership.source.forget(membership) }
        if departure.isQueued {
            carryOutChanges()
        } else if membership.source.kind.isWatched {
            if !departure.isUnseen { applyAtOnce(membership, left: lost, isDead: isDead) }
        } else if isDead {
            end(membership)
        }
        // The mode may be empty now.
        if !lost.isEmpty { notifyIfElsewhere(.wake) }
        // Last, because it releases the handler: what the handler holds may wait for the loop in its deinit.
        if departure.isUnseen { membership.source.endUse() }
    }
}

extension LoopShared {
    enum JoinOutcome: Sendable {
        /// `isQueued`: a change waits for the owner.
        case joined(ModeSet, isQueued: Bool)
        case isDead
        /// `isDead`: the membership never came to life.
        case refused(isDead: Bool)
    }

    /// `mayApply`: the caller carries out the change at once, if none is queued before it.
    fileprivate mutating func join(_ membership: SourceMembership, _ name: RunLoop.Mode, mayApply: Bool) -> JoinOutcome {
        if membership.locked.isDead { return .isDead }
        let isNew = membership.locked.modes.isEmpty && !membership.locked.isCommon
        if phase == .ended || !membership.source.isValid {
            if isNew { membership.locked.isDead = true }
            return .refused(isDead: isNew)
        }
        if isNew {
            membership.locked.index = Int32(sources.count)
            sources.append(membership)
        }
        let before = membership.locked.modes
        if name == .common {
            membership.locked.isCommon = true
            for name in modes.commonNames { modes.madeLocked(name).use { _ = put(membership, in: $0) } }
        } else {
            modes.madeLocked(name).use { _ = put(membership, in: $0) }
        }
        let gained = membership.locked.modes.subtracting(before)
        let isChange = membership.source.kind.isWatched && !gained.isEmpty
        let isQueued = isChange && !(mayApply && changes.isEmpty)
        if isQueued { changes.enqueueChange(of: membership) } else if isChange { membership.locked.isKnownToOwner = true }
        return .joined(gained, isQueued: isQueued)
    }

    /// False when the source was in the mode. The caller sees to it that the kernel watches the source.
    func put(_ membership: SourceMembership, in mode: ModeState) -> Bool {
        guard membership.locked.modes.insert(mode.index) else { return false }
        mode.changePopulationLocked(by: 1)
        switch membership.source.kind {
        case .watched, .descriptor, .guest:
            mode.changeWatchedLocked(by: 1)
            if membership.source.kind == .guest {
                // The owner asks it before each poll, whether the kernel watches it or not.
                membership.locked.isKnownToOwner = true
                mode.addGuestLoopLocked(membership)
            }
        case .messages:
            if membership.source.hasMessage { mode.enqueueMessagesLocked(of: membership) }
        case .custom:
            if membership.custom.isSignaled { mode.enqueueSignalLocked(of: membership) }
        }
        return true
    }

    /// What a membership has lost. `isQueued`: a change waits for the owner. `isUnseen`: the owner never saw it, and its queued change is cancelled.
    struct Departure: Sendable {
        var lost = ModeSet()
        var isDead = false, isQueued = false, isUnseen = false
    }

    /// How a source may leave.
    enum WayOut {
        /// The owner carries out the change at once, if none is queued before it.
        case atOnce
        /// Another thread ends the membership if the owner has never seen it. Otherwise as `queued`.
        case unseen
        /// The owner carries out a change. Other threads leave it all ends of sources that somebody waits for (rule 4.20).
        case queued
    }

    fileprivate mutating func leave(_ membership: SourceMembership, _ name: RunLoop.Mode, _ way: WayOut) -> Departure {
        if membership.locked.isDead { return Departure() }
        let before = membership.locked.modes
        if name == .common {
            guard membership.locked.isCommon else { return Departure() }
            membership.locked.isCommon = false
            for name in modes.commonNames { modes.referenceLocked(name)?.use { takeOut(membership, of: $0) } }
        } else {
            modes.referenceLocked(name)?.use { takeOut(membership, of: $0) }
        }
        return endIfUnused(membership, before.subtracting(membership.locked.modes), way)
    }

    fileprivate mutating func expel(_ membership: SourceMembership, _ way: WayOut) -> Departure {
        if membership.locked.isDead { return Departure() }
        membership.locked.isCommon = false
        let lost = membership.locked.modes
        lost.forEach { modes.reference($0).use { takeOut(membership, of: $0) } }
        return endIfUnused(membership, lost, way)
    }

    /// Nothing if the source is not in the mode.
    private func takeOut(_ membership: SourceMembership, of mode: ModeState) {
        guard membership.locked.modes.remove(mode.index) else { return }
        mode.changePopulationLocked(by: -1)
        switch membership.source.kind {
        case .watched, .descriptor: mode.changeWatchedLocked(by: -1)
        case .guest:
            mode.changeWatchedLocked(by: -1)
            mode.removeGuestLoopLocked(membership)
        case .messages: mode.locked.messaged.remove(membership, inMode: mode.index)
        case .custom: mode.locked.signaled.remove(membership, inMode: mode.index)
        }
    }

    /// Ends a membership that has lost its last mode. The change for the kernel is queued with it, so that no run finishes between the two; a custom
    /// source's `cancel` comes before. If the owner has never seen it, nothing stays queued: adding and invalidating must not fill the queue.
    private mutating func endIfUnused(_ membership: SourceMembership, _ lost: ModeSet, _ way: WayOut) -> Departure {
        let isDead = membership.locked.modes.isEmpty && !membership.locked.isCommon
        let isWatched = membership.source.kind.isWatched
        let isUnseen = way == .unseen && isWatched && isDead && !membership.locked.isKnownToOwner
        let isQueued = isWatched && !isUnseen && (isDead || !lost.isEmpty) && !(way == .atOnce && changes.isEmpty)
        if isUnseen { changes.cancelChange(of: membership) }
        if isQueued { changes.enqueueChange(of: membership, left: isDead ? ModeSet() : lost) }
        if isDead {
            membership.locked.isDead = true
            let index = membership.locked.index
            if sources.contains(membership, at: Int(index)) {
                sources.remove(membership, at: Int(index)) { $0.locked.index = index }.release()  // the caller holds it
            }
        }
        return Departure(lost: lost, isDead: isDead, isQueued: isQueued, isUnseen: isUnseen)
    }

    /// The sources that the kernel is to watch for a mode, whether or not the owner has carried out the changes with which they joined.
    mutating func sourcesToWatch(inMode index: Int) -> [SourceMembership] {
        let members = sources.filter { $0.source.kind.isWatched && $0.locked.modes.contains(index) }
        for membership in members { membership.locked.isKnownToOwner = true }
        return members
    }
}

extension RunLoop.Source {
    /// Removes the source from every loop and mode, for good. Pending signals are forgotten; a second call does nothing.
    ///
    /// From another thread than a loop's it does not wait for a call of the handler in progress there: `onInvalidation` says when the last is over.
    /// Calls `cancel` of a custom source for each mode, on the calling thread. Thread-safe. See `CFRunLoopSourceInvalidate`.
    public func invalidate() { /* DOES CALLOUT */
        let (isFirst, isLast) = rundown.invalidate()
        // Not only the first caller: it may have been preempted, and every caller relies on the end when this returns.
        if isFirst { didInvalidate() }
        if isLast { return finish() }
        // Most sources are in one loop: no list is made for it.
        let (first, several) = state.withLockIfOwn { ($0.first, $0.several) } ?? (nil, nil)
        var isEndedHere = false
        if let several {
            isEndedHere = Self.expel(several)
        } else if let first {
            isEndedHere = Borrowed(first.loop, keptBy: .membership).use { $0.expel(first) }
        }
        // Another thread may have taken it out of this thread's loop, whose caller may close the descriptor next.
        if kind.isWatched && !isEndedHere && LoopID.current != 0 { LoopLifetime.withCurrent { $0.applyQueuedChanges() } }
    }

    /// The same for several loops: for each, also if a callout ends the thread.
    private static func expel(_ memberships: [SourceMembership]) -> Bool { /* DOES CALLOUT */
        var left: ArraySlice<SourceMembership> = []
        SourceMembership.ownLoopLast(memberships) { left.append($0) }
        var isEndedHere = false
        CallInProgress.callForEach({ left.popFirst() }, { if $0.loop.expel($0) { isEndedHere = true } })
        return isEndedHere
    }

    /// The membership of `loop`, made, with a use of its own, if there is none; nil when the source is invalid, or goes by another loop's clock.
    fileprivate func membership(joining loop: RunLoop) -> SourceMembership? {
        state.withLock { state in
            if let membership = state.membership(of: loop) { return membership }
            if let first = state.first, goesByWallTime, first.loop.time.manualClock !== loop.time.manualClock { return nil }
            guard rundown.enter() else { return nil }
            let membership = SourceMembership(source: self, loop: loop)
            // Removed and added by its own handler, it has had its turn in this step.
            if kind == .messages && loop.isCurrent && core.pointee.servingLoop.load(ordering: .relaxed) == loop.id {
                membership.owned.messageStep = loop.owned.messageSteps
            }
            state.add(membership)
            return membership
        }
    }

    /// The loops that the source is in, and its modes there; a copy.
    package var loopsAndModes: [(loop: RunLoop, modes: [RunLoop.Mode])] {
        state.withLock { $0.memberships }.map { membership in
            let modes = membership.loop.shared.withLockIfOwn { shared in
                shared.modes.all.filter { membership.locked.modes.contains($0.index) }.map(\.name)
            }
            return (membership.loop, modes ?? [])
        }
    }

    func existingMembership(of loop: RunLoop) -> SourceMembership? { state.withLockIfOwn { $0.membership(of: loop) } ?? nil }
    func forget(_ membership: SourceMembership) { state.withLock { $0.remove(membership) } }
}
