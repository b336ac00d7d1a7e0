// Observers in modes, and notifying them.

import Synchronization

extension RunLoop {
    /// Adds an observer to a mode, or with `.common` to every mode that is or becomes a common one.
    ///
    /// False when the observer is invalid, belongs to another loop, or the loop has ended. Added during a notification it is notified from the next
    /// one on. O(n) in the mode's observers. Thread-safe. See `CFRunLoopAddObserver`.
    @discardableResult
    public func add(_ observer: Observer, forMode mode: Mode = .default) -> Bool {
        let isAdded = shared.withLock { shared in
            guard claimLocked(observer, shared) else { return false }
            if LoopID.current == id { observer.wasSeen = true }
            if mode == .common && !observer.isCommon {
                shared.commonObservers.append(observer)
                observer.isCommon = true
            }
            for name in shared.modes.namesLocked(mode) { shared.modes.makeLocked(name).insertObserverLocked(observer) }
            return true
        }
        return isAdded || refuse(observer)
    }

    /// Takes an observer out of a mode; with `.common`, out of every common mode. On the owning thread it is not notified again once this returns.
    /// Out of its last mode, it may join another loop. Nothing when it is not there. Thread-safe. See `CFRunLoopRemoveObserver`.
    public func remove(_ observer: Observer, forMode mode: Mode = .default) {
        leave(observer) { shared in
            if mode == .common && !forgetCommonLocked(observer, &shared) { return }
            for name in shared.modes.namesLocked(mode) { shared.modes.findLocked(name)?.removeObserverLocked(observer) }
        }
    }

    /// Whether the observer is in the mode; for `.common`, whether it was added to the common modes. Thread-safe.
    public func contains(_ observer: Observer, forMode mode: Mode = .default) -> Bool {
        shared.withLockIfOwn { shared in
            guard observer.loopID.load(ordering: .acquiring) == id else { return false }
            if mode == .common { return observer.isCommon }
            return shared.modes.findLocked(mode).map { observer.modes.contains($0.index) } ?? false
        } ?? false
    }

    fileprivate func expel(_ observer: Observer) {
        leave(observer) { shared in
            forgetCommonLocked(observer, &shared)
            shared.modes.forEach { $0.removeObserverLocked(observer) }
        }
    }

    private func leave(_ observer: Observer, taking: (inout LoopShared) -> Void) {
        // Whether an owner has seen it, if it has left its last mode.
        let isSeen = shared.withLockIfOwn { shared -> Bool? in
            guard observer.loopID.load(ordering: .acquiring) == id else { return nil }
            taking(&shared)
            guard observer.modes.isEmpty && !observer.isCommon else { return nil }
            let isSeen = observer.wasSeen || LoopID.current == id
            observer.loopID.store(0, ordering: .sequentiallyConsistent)
            return isSeen
        }
        removals.add(1, ordering: .acquiringAndReleasing)
        // If no owner has seen it, its use ends here, so that adding and removing does not fill the queue while the owner is busy.
        if let isSeen = isSeen ?? nil, !(isSeen && submitEnd(of: observer)), observer.rundown.exit() { observer.finish() }
    }

    private func claimLocked(_ observer: Observer, _ shared: borrowing LoopShared) -> Bool {
        if shared.phase == .ended { return false }
        let (isClaimed, owner) = observer.loopID.compareExchange(expected: 0, desired: id, ordering: .sequentiallyConsistent)
        if !isClaimed { return owner == id && observer.isValid }
        // After the claim: a thread that invalidates the observer from here on finds it in this loop.
        guard observer.rundown.enter() else {
            observer.loopID.store(0, ordering: .sequentiallyConsistent)
            return false
        }
        observer.modes = ModeSet()
        observer.isCommon = false
        return true
    }

    /// False if the observer was not added to the common modes.
    @discardableResult
    private func forgetCommonLocked(_ observer: Observer, _ shared: inout LoopShared) -> Bool {
        defer { observer.isCommon = false }
        if observer.isCommon { shared.commonObservers.removeAll { $0 === observer } }
        return observer.isCommon
    }

    // MARK: Notifying
    /// Notifies the observers of a mode. One test of a bit when there is none.
    @inline(__always) func notifyObservers(_ activity: Activity, in mode: ModeState) { /* DOES CALLOUT */
        if mode.observed.intersects(activity) { callObservers(activity, in: mode) }
    }

    @inline(never) private func callObservers(_ activity: Activity, in mode: ModeState) { /* DOES CALLOUT */
        // The last pass of the run is over; what follows belongs to the run.
        if activity == .exit { owned.observation?.use { $0.endPass(SpanMark(.pass, depth: runs.depth, modeIndex: mode.index)) } }
        let generation = removals.load(ordering: .acquiring)
        // A snapshot, which keeps them: an observer that is added meanwhile is notified from the next notification on.
        observersNow(mode).withUnsafeBufferPointer { observers in
            for index in observers.indices { Borrowed(observers[index], keptBy: .batch).use { call($0, activity, mode, generation) } }
        }
    }

    @inline(__always)
    private func call(_ observer: Observer, _ activity: Activity, _ mode: ModeState, _ generation: UInt64) { /* DOES CALLOUT */
        if observer.activities.isDisjoint(with: activity) { return }
        if removals.load(ordering: .acquiring) != generation && !isMember(observer, of: mode) { return }
        // In this order, and in one step: another loop that it was moved to may be about to call it (Tests/Models/moving.pml).
        if !observer.callingLoop.compareExchange(expected: 0, desired: id, ordering: .acquiring).exchanged { return }
        if !observer.isValid { return observer.callingLoop.store(0, ordering: .releasing) }
        let span = openSpan(mode, CalloutItem(kind: .observer, site: observer.site, label: observer.label))
        callOutToObserver(observer, activity)
        closeSpan(span)
        endCall(of: observer)
    }

    @inline(__always) private func endCall(of observer: Observer) { /* DOES CALLOUT */
        // An observer that does not repeat is invalid before its call ends: a loop that the handler has moved it to would call it again.
        let end = observer.repeats ? nil : observer.rundown.invalidate()
        observer.callingLoop.store(0, ordering: .releasing)
        if let end { observer.leaveLoop(after: end) }
        if !owned.observersInCall.isEmpty { endObserver(observer) }
    }

    /// The thread ends inside calls of observers: they have returned.
    func endCallsOfObservers() { /* DOES CALLOUT */
        // One that has left the loop in its call is held. The loop has carried out all changes.
        let observers = shared.withLock { shared in shared.modes.all.flatMap { $0.locked.observers } } + owned.observersInCall
        for observer in observers where observer.callingLoop.load(ordering: .relaxed) == id { endCall(of: observer) }
    }

    private func observersNow(_ mode: ModeState) -> ContiguousArray<Observer> {
        if mode.observed.version != mode.owned.observerSnapshot.version {
            // The old list is released outside the lock.
            mode.owned.observerSnapshot = shared.withLock { _ -> ObserverSnapshot in
                for observer in mode.locked.observers { observer.wasSeen = true }
                return ObserverSnapshot(list: mode.locked.observers, version: mode.observed.version)
            }
        }
        return mode.owned.observerSnapshot.list
    }

    /// Drops the snapshots, which may hold an observer that has left.
    func forgetSeenObservers() { modeTable.forEach { $0.owned.observerSnapshot = ObserverSnapshot() } }

    /// Ends the loop's uses of an observer that has left the loop in its own call: one for each time, if it came back in between.
    private func endObserver(_ observer: Observer) { /* DOES CALLOUT */
        while let index = owned.observersInCall.firstIndex(where: { $0 === observer }) {  // ends: each iteration removes one
            owned.observersInCall.remove(at: index)
            endUse(of: observer)
        }
        finishItems()
    }

    private func isMember(_ observer: Observer, of mode: ModeState) -> Bool {
        shared.withLock { _ in observer.loopID.load(ordering: .acquiring) == id && observer.modes.contains(mode.index) }
    }
}

extension RunLoop.Observer {
    /// Takes the observer out of every mode, for good, and releases its handler. In its own handler: there are no more calls. A second
    /// call does nothing. Thread-safe. See `CFRunLoopObserverInvalidate`.
    public func invalidate() { leaveLoop(after: rundown.invalidate()) }

    fileprivate func leaveLoop(after end: (first: Bool, last: Bool)) {
        if !end.first { return }
        if end.last { return finish() }
        let loopID = loopID.load(ordering: .sequentiallyConsistent)
        if loopID != 0 { LoopRegistry.loop(loopID)?.expel(self) }
    }
}
