// Observers in modes, and telling them.

import Synchronization

extension RunLoop {
    /// Adds an observer to a mode, or with `.common` to every mode that is or becomes a common one.
    ///
    /// False when the observer is invalid, belongs to another loop, or the loop has ended. Added during a notification it is told from
    /// the next one on. O(n) in the mode's observers. Thread-safe. See `CFRunLoopAddObserver`.
    @discardableResult
    public func add(_ observer: Observer, forMode mode: Mode = .default) -> Bool {
        preconditionNotForked()
        return shared.withLock { shared in
            guard claimLocked(observer, shared) else { return false }
            if mode == .common {
                if !observer.isCommon { shared.commonObservers.append(observer) }
                observer.isCommon = true
                for name in shared.commonModes { shared.put(observer, in: shared.makeMode(name)) }
            } else {
                shared.put(observer, in: shared.makeMode(mode))
            }
            return true
        }
    }

    /// Takes an observer out of a mode; with `.common`, out of every common mode. On the owning thread it is not told again once this
    /// returns. Out of its last mode, it may join another loop. Nothing when it is not there. Thread-safe. See
    /// `CFRunLoopRemoveObserver`.
    public func remove(_ observer: Observer, forMode mode: Mode = .default) {
        leave(observer) { shared in
            if mode != .common {
                if let state = shared.mode(mode) { shared.takeOut(observer, of: state) }
                return
            }
            guard observer.isCommon else { return }
            shared.forgetCommon(observer)
            for name in shared.commonModes { if let state = shared.mode(name) { shared.takeOut(observer, of: state) } }
        }
    }

    /// Whether the observer is in the mode; for `.common`, whether it was added to the common modes. Thread-safe.
    public func contains(_ observer: Observer, forMode mode: Mode = .default) -> Bool {
        shared.withLock { shared in
            guard observer.loopID.load(ordering: .acquiring) == id else { return false }
            if mode == .common { return observer.isCommon }
            return shared.mode(mode).map { observer.modes.contains($0.index) } ?? false
        }
    }

    /// Takes an invalid observer out of every mode.
    fileprivate func expel(_ observer: Observer) {
        leave(observer) { shared in
            shared.forgetCommon(observer)
            for mode in shared.modes { shared.takeOut(observer, of: mode) }
        }
    }

    private func leave(_ observer: Observer, taking: (inout LoopShared) -> Void) {
        if belongsToParentProcess { return }
        let isDead = shared.withLock { shared in
            guard observer.loopID.load(ordering: .acquiring) == id else { return false }
            taking(&shared)
            guard observer.modes.isEmpty && !observer.isCommon else { return false }
            observer.loopID.store(0, ordering: .sequentiallyConsistent)
            return true
        }
        removals.add(1, ordering: .acquiringAndReleasing)
        if isDead && !submitEnd(of: observer) && observer.rundown.exit() { observer.finish() }
    }

    private func claimLocked(_ observer: Observer, _ shared: borrowing LoopShared) -> Bool {
        if shared.phase == .ended { return false }
        let (isClaimed, owner) = observer.loopID.compareExchange(expected: 0, desired: id, ordering: .sequentiallyConsistent)
        if !isClaimed { return owner == id && observer.isValid }
        // After the claim: whoever invalidates the observer from here on finds it in this loop.
        guard observer.rundown.enter() else {
            observer.loopID.store(0, ordering: .sequentiallyConsistent)
            return false
        }
        observer.modes = ModeSet()
        observer.isCommon = false
        return true
    }

    // MARK: Telling

    /// Tells the observers of a mode. One test of a bit when nobody wants to know.
    @inline(__always)
    func notifyObservers(_ activity: Activity, in mode: ModeState) { /* DOES CALLOUT */
        if mode.observedActivities.load(ordering: .relaxed) & activity.rawValue != 0 { tellObservers(activity, in: mode) }
    }

    @inline(never)
    private func tellObservers(_ activity: Activity, in mode: ModeState) { /* DOES CALLOUT */
        let stamp = removals.load(ordering: .acquiring)
        // A snapshot: what is added meanwhile is told from the next notification on.
        let observers = observersNow(mode)
        // The snapshot holds them, so they are lent from it without counting.
        observers.withUnsafeBufferPointer { observers in
            for index in observers.indices {
                Unmanaged.passUnretained(observers[index])._withUnsafeGuaranteedRef { tell($0, activity, mode, stamp) }
            }
        }
    }

    @inline(__always)
    private func tell(_ observer: Observer, _ activity: Activity, _ mode: ModeState, _ stamp: UInt64) { /* DOES CALLOUT */
        if observer.activities.isDisjoint(with: activity) || observer.isFiring.load(ordering: .relaxed) { return }
        if removals.load(ordering: .acquiring) != stamp && !isMember(observer, of: mode) { return }
        if !observer.isValid { return }
        observer.isFiring.store(true, ordering: .relaxed)
        callOutToObserver(observer, activity)
        observer.isFiring.store(false, ordering: .relaxed)
        if !observer.repeats { observer.invalidate() }
        if !owned.observersToEnd.isEmpty { endObserver(observer) }
    }

    private func observersNow(_ mode: ModeState) -> ContiguousArray<Observer> {
        if mode.observersVersion.load(ordering: .acquiring) != mode.seenObservers.version {
            // What is replaced is let go of outside of the lock.
            let now = shared.withLock { _ in (mode.observers, mode.observersVersion.load(ordering: .relaxed)) }
            mode.seenObservers = now
        }
        return mode.seenObservers.list
    }

    /// Lets go of the snapshots, which may hold an observer that has left.
    func forgetSeenObservers() {
        for mode in owned.modes { mode.seenObservers = ([], .max) }
    }

    /// Ends the loop's uses of an observer that has left the loop in its own call: one for each time, if it came back in between.
    private func endObserver(_ observer: Observer) { /* DOES CALLOUT */
        while let place = owned.observersToEnd.firstIndex(where: { $0 === observer }) {  // ends: one goes a turn
            owned.observersToEnd.remove(at: place)
            endUse(of: observer)
        }
        finishItems()
    }

    private func isMember(_ observer: Observer, of mode: ModeState) -> Bool {
        shared.withLock { _ in observer.loopID.load(ordering: .acquiring) == id && observer.modes.contains(mode.index) }
    }
}

extension RunLoop.Observer {
    /// Takes the observer out of every mode, for good, and lets go of its handler. In its own handler: there are no more calls. A second
    /// call does nothing. Thread-safe. See `CFRunLoopObserverInvalidate`.
    public func invalidate() {
        let (isFirst, isLast) = rundown.invalidate()
        if !isFirst { return }
        if isLast { return finish() }
        let loopID = loopID.load(ordering: .sequentiallyConsistent)
        if loopID != 0 { LoopRegistry.loop(loopID)?.expel(self) }
    }
}

extension LoopShared {
    func put(_ observer: RunLoop.Observer, in mode: ModeState) {
        if observer.modes.insert(mode.index) { mode.insertObserverLocked(observer) }
    }

    func takeOut(_ observer: RunLoop.Observer, of mode: ModeState) {
        if observer.modes.remove(mode.index) { mode.removeObserverLocked(observer) }
    }

    mutating func forgetCommon(_ observer: RunLoop.Observer) {
        guard observer.isCommon else { return }
        observer.isCommon = false
        commonObservers.removeAll { $0 === observer }
    }
}
