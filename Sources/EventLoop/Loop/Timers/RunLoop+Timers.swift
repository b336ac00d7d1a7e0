// Timers in modes: add, remove, contains, and where they are filed. Firing.swift fires them. The owner has short ways of its own (`addAtOnce`,
// `takeOut`): one way for all threads takes 731 instructions to add and remove a timer instead of 622.

import Synchronization

extension RunLoop {
    /// Adds a timer to a mode, or with `.common` to every mode that is or becomes a common one.
    ///
    /// False when the timer is invalid, belongs to another loop, or the loop has ended. Reaches a sleeping loop at once, without `wakeUp()`. In
    /// several modes there is still one fire for each date. O(log n) on the owning thread. Thread-safe. See `CFRunLoopAddTimer`.
    @discardableResult
    public func add(_ timer: Timer, forMode mode: Mode = .default) -> Bool {
        if LoopID.current == id && addAtOnce(timer, mode) { return true }
        return addSlowly(timer, mode)
    }

    /// The same on the owning thread, for a timer that is in no loop and joins one mode, while no changes are queued, which come first: it is filed
    /// without a change of its own. False, with nothing done, if that does not apply.
    @inline(__always) private func addAtOnce(_ timer: Timer, _ name: Mode) -> Bool {
        let isDefault = name == .default
        let isCommon = !isDefault && name == .common
        // Most loops have one common mode, the default one.
        guard let mode = isDefault || isCommon ? modeTable.reference(0) : modeTable.referenceAmongFirst(name) else { return false }
        let locked = shared.lockValue()
        guard locked.pointee.phase != .ended, locked.pointee.changes.isEmpty,
            !isCommon || locked.pointee.modes.commonNames.count == 1, timer.state.join(id)
        else {
            shared.unlock()
            return false
        }
        locked.pointee.list(timer)
        timer.listing.isKnownToOwner = true
        if isCommon { timer.listing.isCommon = true }
        return mode.use { mode in
            let slot = mode.locked.timerSlots.take()
            if let location = TimerLocation(loopID: id, modeIndex: mode.index, slot: slot) {
                timer.location.store(location.word, ordering: .releasing)
            } else {
                timer.setMemberships([TimerMembership(modeIndex: mode.index, slot: slot)], in: id)
            }
            mode.changePopulationLocked(by: 1)
            shared.unlock()
            file(timer, slot, mode)
            didChangeDeadline()
            return true
        }
    }

    @inline(never) private func addSlowly(_ timer: Timer, _ mode: Mode) -> Bool {
        let isOwner = isCurrent
        var mustFile = false
        let joined = shared.withLock { shared -> [TimerMembership]? in
            guard claimLocked(timer, &shared) else { return nil }
            if mode == .common { timer.listing.isCommon = true }
            let joined = shared.modes.namesLocked(mode).compactMap { LoopShared.put(timer, in: shared.modes.makeLocked($0), id) }
            mustFile = isOwner && shared.changes.isEmpty
            if mustFile { timer.listing.isKnownToOwner = true }
            for membership in joined where !mustFile { shared.changes.enqueueJoin(timer, membership) }
            return joined
        }
        guard let joined else { return refuse(timer) }
        if isOwner {
            if mustFile { for membership in joined { file(timer, membership) } } else { applyChanges() }
            didChangeDeadline()
        } else if !joined.isEmpty {
            notify(.changes)
        }
        return true
    }

    /// Takes a timer out of a mode; with `.common`, out of every common mode. Out of its last mode, it may join another loop. Stays
    /// valid. Nothing when it is not there. O(log n) on the owning thread. Thread-safe. See `CFRunLoopRemoveTimer`.
    public func remove(_ timer: Timer, forMode mode: Mode = .default) {
        let location = TimerLocation(word: timer.location.load(ordering: .acquiring))
        if location.loopID == id && LoopID.current == id && location.isDirect && takeOutAtOnce(timer, location, mode) { return }
        removeSlowly(timer, mode)
    }

    @inline(never) private func removeSlowly(_ timer: Timer, _ mode: Mode) {
        leave(timer) { shared in
            if mode == .common && !timer.listing.isCommon { return [] }
            if mode == .common { timer.listing.isCommon = false }
            let indices = shared.modes.namesLocked(mode).compactMap { shared.modes.findLocked($0)?.index }
            let memberships = timer.memberships
            timer.setMemberships(memberships.filter { !indices.contains($0.modeIndex) }, in: id)
            return memberships.filter { indices.contains($0.modeIndex) }
        }
    }

    /// Whether the timer is in the mode; for `.common`, whether it was added to the common modes. Thread-safe.
    public func contains(_ timer: Timer, forMode mode: Mode = .default) -> Bool {
        shared.withLockIfOwn { shared in
            if mode == .common { return isHereLocked(timer) && timer.listing.isCommon }
            return shared.modes.findLocked(mode).map { isTimer(timer, in: $0.index) } ?? false
        } ?? false
    }

    func expel(_ timer: Timer) {
        leave(timer) { _ in
            defer { timer.setMemberships([], in: id) }
            timer.listing.isCommon = false
            return timer.memberships
        }
    }

    @inline(__always) private func takeOutAtOnce(_ timer: Timer, _ location: TimerLocation, _ name: Mode) -> Bool {
        modeTable.reference(location.modeIndex).use { mode in
            if name == mode.name { return takeOut(timer, location, mode, ending: .membership, isCommon: false) }
            // Its only mode need not be one of those that `.common` stands for.
            guard name == .common, mode.isCommon.load(ordering: .acquiring) else { return false }
            return takeOut(timer, location, mode, ending: .membership, isCommon: true)
        }
    }

    /// Ends a timer that is in one mode of this loop, on the owning thread. False, with nothing done, if another thread has moved it meanwhile.
    func expelAtOnce(_ timer: Timer, _ location: TimerLocation, ending end: TimerState.End) -> Bool { /* DOES CALLOUT */
        modeTable.reference(location.modeIndex).use { takeOut(timer, location, $0, ending: end, isCommon: nil) }
    }

    /// `isCommon`: what the timer has to be; nil if that does not matter.
    private func takeOut(_ timer: Timer, _ location: TimerLocation, _ mode: ModeState, ending end: TimerState.End, isCommon: Bool?) -> Bool
    { /* DOES CALLOUT */
        let locked = shared.lockValue()
        guard timer.location.load(ordering: .relaxed) == location.word, isCommon == nil || timer.listing.isCommon == isCommon else {
            shared.unlock()
            return false
        }
        timer.location.store(0, ordering: .releasing)
        locked.pointee.changes.cancelChange(of: timer)
        mode.changePopulationLocked(by: -1)
        mode.locked.timerSlots.giveBack(location.slot)
        let held = locked.pointee.forget(timer)
        let isLast = timer.state.leave(ending: end)
        shared.unlock()
        mode.owned.timers.remove(location.slot)
        let isWorking = waker.isWorking
        if isLast {
            let isSafe = (isWorking || mayCallOut) && owned.ended.isEmpty && !owned.changeBatch.isApplying
            if isSafe { timer.finish() } else { finishLater(.timer(timer)) }
        }
        // Inside a C library's callback the wait would go on with the old deadline, or in an empty mode.
        if !isWorking { notifyIfElsewhere(.wake) }
        held.release()
        return true
    }

    /// Takes a timer out of the modes that `taking` finds, and lets it go with the last.
    private func leave(_ timer: Timer, taking: (inout LoopShared) -> [TimerMembership]) {
        let ending = shared.withLockIfOwn { shared -> Bool? in
            guard isHereLocked(timer) else { return nil }
            let isRedated = shared.changes.cancelRedate(of: timer)
            for membership in taking(&shared) {
                shared.modes.reference(membership.modeIndex).use {
                    $0.changePopulationLocked(by: -1)
                    if shared.changes.enqueueLeave(timer, membership) { $0.locked.timerSlots.giveBack(membership.slot) }
                }
            }
            if !timer.memberships.isEmpty || timer.listing.isCommon {
                if isRedated { _ = shared.changes.enqueueRedate(timer) }  // the owner is notified below
                return false
            }
            timer.clearMemberships()
            let held = shared.forget(timer)
            // If the owner has never filed it, its use ends here, so that adding and removing does not fill the queue while the owner is busy.
            let endsUnseen = !timer.listing.isKnownToOwner
            if !endsUnseen { shared.changes.enqueueEnd(timer) }
            timer.state.leave()
            held.release()  // the caller holds it
            return endsUnseen
        }
        guard let endsUnseen = ending ?? nil else { return }
        if isCurrent {
            if endsUnseen { endUse(of: timer) }
            applyChanges()
            finishItemsIfSafe()
        } else if endsUnseen && timer.state.exit() {
            timer.finish()
        }
        // The mode may be empty now, and the deadline another.
        notifyIfElsewhere([.changes, .wake])
    }

    // MARK: Under the lock
    /// Makes the timer this loop's, if it is not another's. False when it was refused.
    private func claimLocked(_ timer: Timer, _ shared: inout LoopShared) -> Bool {
        if shared.phase == .ended { return false }
        let state = timer.state.value
        if state.loopID == id { return state.isValid }
        guard timer.state.join(id) else { return false }
        shared.list(timer)
        timer.setMemberships([], in: id)
        return true
    }

    func isHereLocked(_ timer: Timer) -> Bool { timer.state.value.loopID == id }
    func isTimer(_ timer: Timer, in modeIndex: Int) -> Bool { isHereLocked(timer) && timer.isInMode(modeIndex) }

    /// The slot counts: a timer that left a mode and came back has another one.
    func isTimer(_ timer: Timer, filedAs membership: TimerMembership) -> Bool {
        isHereLocked(timer) && timer.memberships.contains { $0.modeIndex == membership.modeIndex && $0.slot == membership.slot }
    }

    // MARK: The owner's queues
    func file(_ timer: Timer, _ membership: TimerMembership) {
        modeTable.reference(membership.modeIndex).use { file(timer, membership.slot, $0) }
    }

    @inline(__always) private func file(_ timer: Timer, _ slot: UInt32, _ mode: ModeState) {
        // One that is being fired is filed under its date when its callout has returned, whichever loop's thread is in it.
        let isFiring = timer.state.latest.isFiring
        if isFiring { owned.timersFireOutside = true }
        if timer.hasDetails { timer.compareDateAgain(present: now().nanoseconds) }
        let date = isFiring ? .max : timer.date.load(ordering: .sequentiallyConsistent)
        let owner = Borrowed(timer, keptBy: .record).address
        mode.owned.timers.file(slot, date: date, tolerance: timer.toleranceNanoseconds, owner: owner)
    }

    /// Calls `body` with the slot of the timer in each mode that the owner has filed it in. Owning thread only.
    private func forEachFiling(_ timer: Timer, _ body: (UInt32, ModeState) -> Void) {
        // Skips modes whose addition is still queued: the queued change files the timer, and its slot may be reassigned before.
        for membership in shared.withLock({ _ in isHereLocked(timer) ? timer.memberships.filter { $0.isFiled } : [] }) {
            modeTable.reference(membership.modeIndex).use { body(membership.slot, $0) }
        }
    }

    /// Files a timer under its present date and tolerance. Owning thread only.
    func fileAgain(_ timer: Timer) { forEachFiling(timer) { file(timer, $0, $1) } }

    /// Files a timer that was taken to be fired, and was not called, unless the call that set its date has filed it. Owning thread only.
    func putBack(_ timer: Timer) {
        if !timer.isValid { return }  // another thread is ending it, and until then its date would keep the loop from sleeping
        let date = timer.date.load(ordering: .acquiring)
        forEachFiling(timer) { $1.owned.timers.putBack($0, date: date) }
    }

    /// Files a timer under its present date. Owning thread only; without the lock in the common case.
    @inline(__always) func reschedule(_ timer: Timer) {
        let location = TimerLocation(word: timer.location.load(ordering: .acquiring))
        let date = timer.date.load(ordering: .acquiring)
        if location.loopID == id && location.isDirect { reschedule(location, date) } else { rescheduleSlowly(timer, date) }
    }

    @inline(never) private func rescheduleSlowly(_ timer: Timer, _ date: Int64) {
        forEachFiling(timer) { $1.owned.timers.reschedule($0, date: date) }
        didChangeDeadline()
    }

    /// False if the owner has not filed the timer yet: a queued change does.
    @inline(__always)
    @discardableResult
    func reschedule(_ location: TimerLocation, _ date: Int64) -> Bool {
        let isFiled = modeTable.reference(location.modeIndex).use { $0.owned.timers.reschedule(location.slot, date: date) }
        didChangeDeadline()
        return isFiled
    }

    /// Inside a C library's callback the wait may go on with the old deadline, and the host of a hosted loop waits for the old one.
    @inline(__always) func didChangeDeadline() { if !waker.isWorking { notifyIfElsewhere(.wake) } }
}

extension LoopShared {
    /// The membership, when the timer was not in the mode.
    static func put(_ timer: RunLoop.Timer, in mode: ModeState, _ loopID: UInt64) -> TimerMembership? {
        if timer.isInMode(mode.index) { return nil }
        let membership = TimerMembership(modeIndex: mode.index, slot: mode.locked.timerSlots.take())
        timer.setMemberships(timer.memberships + [membership], in: loopID)
        mode.changePopulationLocked(by: 1)
        return membership
    }

    /// Puts a timer that has joined on the list, which retains it.
    @inline(__always) mutating func list(_ timer: RunLoop.Timer) {
        timer.listing = TimerListing(index: timers.count)
        timers.append(timer)
    }

    /// Takes a timer off the list, and returns the list's reference: it must not be released under the lock.
    @inline(__always) mutating func forget(_ timer: RunLoop.Timer) -> Unmanaged<RunLoop.Timer> {
        let index = timer.listing.index
        return timers.remove(timer, at: index) { $0.listing.index = index }
    }
}

// MARK: - When the next timer of a mode is due
extension RunLoop {
    /// When the next timer of a mode is due; nil when no timer of it has a date. Thread-safe. See `CFRunLoopGetNextTimerFireDate`.
    ///
    /// O(log n) on the owning thread, for one mode. O(n) in the loop's timers elsewhere, and while what other threads have changed is queued.
    public func nextTimerFire(forMode mode: Mode = .default) -> Instant? {
        let earliest = earliestForOwner(mode) ?? earliestInList(mode)
        return earliest == .max ? nil : Instant(nanoseconds: earliest)
    }

    /// The earliest date, from the owner's queue. Nil on other threads, and if the queue does not know it: then the list does.
    private func earliestForOwner(_ name: Mode) -> Int64? {
        guard LoopID.current == id, name != .common else { return nil }
        // Under the lock, which also orders what other threads did before.
        let isQueueRight = shared.withLock { shared in
            // Not a key path: the runtime may wait for a lock of its own at the first use (decision 24).
            if owned.timersFireOutside { owned.timersFireOutside = shared.timers.contains { $0.isFiring } }
            return shared.changes.isEmpty && !owned.timersFireOutside
        }
        guard isQueueRight else { return nil }
        guard let mode = modeTable.referenceAmongFirst(name) ?? shared.withLock({ $0.modes.referenceLocked(name) }) else { return .max }
        return mode.use { mode in
            var earliest = Int64.max
            if let first = mode.owned.timers.earliest() {
                guard isValidAndHere(first.owner) else { return nil }
                earliest = first.date
            }
            // Passes in progress have taken some from the queue: the timer that is being called, and the rest of the batch, which is in order.
            runs.forEachFrame { frame in
                if let timer = frame.owned.timers.reached { _ = lower(&earliest, to: timer, mode) }
                if frame.owned.timers.hasRest { for timer in frame.owned.timers.rest where lower(&earliest, to: timer, mode) { break } }
            }
            return earliest
        }
    }

    private func isValidAndHere(_ owner: UnsafeRawPointer) -> Bool {
        let state = Borrowed<Timer>(at: owner, keptBy: .record).use { $0.state.value }
        return state.isValid && state.loopID == id
    }

    private func lower(_ earliest: inout Int64, to timer: Timer, _ mode: ModeState) -> Bool {
        let date = timer.date.load(ordering: .acquiring)
        guard date < earliest, timer.isValid, shared.withLock({ _ in isTimer(timer, in: mode.index) }) else { return false }
        earliest = date
        return true
    }

    @inline(never) private func earliestInList(_ mode: Mode) -> Int64 {
        var earliest = Int64.max
        shared.withLockIfOwn { shared in
            let index = shared.modes.findLocked(mode)?.index
            shared.timers.forEach { timer in
                let isMeant = mode == .common ? timer.listing.isCommon : index.map { timer.isInMode($0) } ?? false
                if isMeant && timer.isValid { earliest = min(earliest, timer.date.load(ordering: .acquiring)) }
            }
        }
        return earliest
    }
}
