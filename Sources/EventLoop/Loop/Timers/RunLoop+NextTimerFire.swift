// When the next timer of a mode is due.

import Synchronization

extension RunLoop {
    /// When the next timer of a mode is due; nil when no timer of it has a date. Thread-safe. See `CFRunLoopGetNextTimerFireDate`.
    ///
    /// O(log n) on the owning thread, for a mode other than `.common`. O(n) in the loop's timers on other threads, and while the owner has
    /// not carried out what other threads have changed.
    public func nextTimerFire(forMode mode: Mode = .default) -> Instant? {
        let earliest = earliestForOwner(mode) ?? earliestInList(mode)
        return earliest == .max ? nil : Instant(nanoseconds: earliest)
    }

    /// The earliest date, from the owner's queue. Nil on other threads, and if the queue does not know it: then the list does.
    private func earliestForOwner(_ name: Mode) -> Int64? {
        guard LoopID.current == id, !belongsToParentProcess, name != .common else { return nil }
        // Under the lock, which also orders what other threads did before.
        let isQueueRight = shared.withLock { shared in
            if owned.timersFireOutside { owned.timersFireOutside = shared.timers.contains { timer in timer.isFiring } }
            return shared.changes.isEmpty && !owned.timersFireOutside
        }
        guard isQueueRight else { return nil }
        guard let reference = modeTable.reference(name) else { return .max }
        return reference._withUnsafeGuaranteedRef { mode in
            var earliest = Int64.max
            if let first = mode.timers.earliest() {
                guard isValidAndHere(first.owner) else { return nil }
                earliest = first.date
            }
            // Those that passes in progress have taken from the queue. The one that is being called comes back, and the rest is in order:
            // one that was given another date is in the queue again.
            runs.forEachFrame { frame in
                if let timer = frame.timers.reached { _ = lower(&earliest, to: timer, mode) }
                if frame.timers.hasRest { for timer in frame.timers.rest where lower(&earliest, to: timer, mode) { break } }
            }
            return earliest
        }
    }

    private func lower(_ earliest: inout Int64, to timer: Timer, _ mode: ModeState) -> Bool {
        let date = timer.date.load(ordering: .acquiring)
        guard date < earliest, timer.isValid, shared.withLock({ _ in isTimer(timer, in: mode.index) }) else { return false }
        earliest = date
        return true
    }

    private func isValidAndHere(_ owner: UnsafeRawPointer) -> Bool {
        Unmanaged<Timer>.fromOpaque(owner)._withUnsafeGuaranteedRef {
            let state = $0.state.value
            return state.isValid && state.loopID == id
        }
    }

    /// The earliest date, from the list of all timers.
    @inline(never)
    private func earliestInList(_ mode: Mode) -> Int64 {
        shared.withLock { shared -> Int64 in
            if mode == .common {
                return shared.timers.earliestDate { $0.listing.isCommon }
            }
            guard let state = shared.modes.find(mode) else { return .max }
            return shared.timers.earliestDate { $0.isInMode(state.index) }
        }
    }
}

extension UnorderedBag<RunLoop.Timer> {
    fileprivate func earliestDate(of isMeant: (RunLoop.Timer) -> Bool) -> Int64 {
        var earliest = Int64.max
        forEach { if isMeant($0) && $0.isValid { earliest = min(earliest, $0.date.load(ordering: .acquiring)) } }
        return earliest
    }
}
