// Timers in modes: add, remove, contains, and where they are filed. RunLoop+Firing.swift fires them.

import Synchronization

extension RunLoop {
    /// Adds a timer to a mode, or with `.common` to every mode that is or becomes a common one.
    ///
    /// False when the timer is invalid, belongs to another loop, or the loop has ended. Reaches a sleeping loop at once, without
    /// `wakeUp()`. In several modes there is still one fire for each date. O(log n) on the owning thread. Thread-safe. See
    /// `CFRunLoopAddTimer`.
    @discardableResult
    public func add(_ timer: Timer, forMode mode: Mode = .default) -> Bool {
        preconditionNotForked()
        let isOwner = isCurrent
        let (isAdded, joined) = shared.withLock { shared -> (Bool, JoinedModes) in
            guard claimLocked(timer, &shared) else { return (false, .none) }
            let joined = shared.join(timer, mode)
            rememberPlaceLocked(timer)
            if isOwner && shared.changes.isEmpty {
                timer.memberships.isKnownToOwner = true
                return (true, joined)
            }
            joined.forEach { shared.changes.enqueueJoin(timer, $0) }
            return (true, isOwner ? .queued : joined.isNone ? .none : .queued)
        }
        if !isAdded { return false }
        switch joined {
        case .none: break
        case .queued: isOwner ? applyChanges() : notify(.changes)
        case .one(let membership): fileNew(timer, membership)
        case .several(let memberships): for membership in memberships { fileNew(timer, membership) }
        }
        // Inside a C library's callback the wait may go on with the old deadline.
        if isOwner { notifyIfElsewhere(.wake) }
        return true
    }

    /// Takes a timer out of a mode; with `.common`, out of every common mode. Out of its last mode, it may join another loop. Stays
    /// valid. Nothing when it is not there. Thread-safe. See `CFRunLoopRemoveTimer`.
    public func remove(_ timer: Timer, forMode mode: Mode = .default) {
        leave(timer) { shared in
            guard timer.memberships.isEmpty == false || timer.memberships.isCommon else { return [] }
            guard mode == .common else {
                return shared.modes.find(mode).flatMap { timer.memberships.remove($0.index) }.map { [$0] } ?? []
            }
            guard timer.memberships.isCommon else { return [] }
            timer.memberships.isCommon = false
            return shared.modes.commonNames.compactMap { name in shared.modes.find(name).flatMap { timer.memberships.remove($0.index) } }
        }
    }

    /// Whether the timer is in the mode; for `.common`, whether it was added to the common modes. Thread-safe.
    public func contains(_ timer: Timer, forMode mode: Mode = .default) -> Bool {
        shared.withLock { shared in
            guard isHereLocked(timer) else { return false }
            if mode == .common { return timer.memberships.isCommon }
            return shared.modes.find(mode).map { timer.memberships.contains($0.index) } ?? false
        }
    }

    /// Takes an invalid timer out of every mode.
    func expel(_ timer: Timer) {
        leave(timer) { _ in
            timer.memberships.isCommon = false
            defer { timer.memberships.clear() }
            return timer.memberships.all
        }
    }

    /// The same on the owning thread, for a timer in one mode: nothing need be queued. False when a mode that the owner has not seen yet has
    /// it, or another thread has moved it meanwhile.
    func expelAtOnce(_ timer: Timer, _ place: TimerPlace) -> Bool {
        guard !belongsToParentProcess, place.modeIndex < modeTable.count else { return false }
        return modeTable.withMode(place.modeIndex) { expelAtOnce(timer, place, $0) }
    }

    @inline(__always)
    private func expelAtOnce(_ timer: Timer, _ place: TimerPlace, _ mode: ModeState) -> Bool {
        let locked = shared.lockValue()
        guard timer.place.load(ordering: .relaxed) == place.word else {
            shared.unlock()
            return false
        }
        timer.place.store(0, ordering: .releasing)
        locked.pointee.changes.cancelJoin(of: timer, in: place.modeIndex)
        timer.memberships.clear()
        mode.changePopulationLocked(by: -1)
        mode.timerSlots.giveBack(place.slot)
        let held = locked.pointee.forget(timer)
        shared.unlock()
        mode.timers.remove(place.slot)
        let isLast = timer.rundown.exit()
        let isWorking = waker.isWorking
        let isSafe = isWorking || mayCallOut
        if isLast && isSafe && owned.ended.isEmpty && !owned.changeBatch.isApplying {
            timer.finish()
        } else if isLast {
            owned.ended.append(.timer(timer))
            owned.pending.insert(.finishing)
        }
        // Inside a C library's callback the wait would go on with the old deadline, or in an empty mode.
        if !isWorking { notifyIfElsewhere(.wake) }
        held.release()
        return true
    }

    /// Takes a timer out of the modes that `taking` finds, and lets it go with the last.
    private func leave(_ timer: Timer, taking: (inout LoopShared) -> [TimerMemberships.Membership]) {
        if belongsToParentProcess { return }
        let (hasLeft, endsUnseen) = shared.withLock { shared -> (Bool, Bool) in
            guard isHereLocked(timer) else { return (false, false) }
            let lost = taking(&shared)
            for membership in lost {
                shared.modes.withMode(membership.modeIndex) {
                    $0.changePopulationLocked(by: -1)
                    if shared.changes.enqueueLeave(timer, membership) { $0.timerSlots.giveBack(membership.slot) }
                }
            }
            if !timer.memberships.isEmpty || timer.memberships.isCommon {
                rememberPlaceLocked(timer)
                return (true, false)
            }
            shared.forget(timer).release()  // the caller holds it
            timer.place.store(0, ordering: .sequentiallyConsistent)
            // The owner's queues do not have it, so its use ends here. Else the queue of changes would hold what other threads add and
            // take away while the owner is busy.
            if !timer.memberships.isKnownToOwner { return (true, true) }
            shared.changes.enqueueEnd(timer)
            return (true, false)
        }
        guard hasLeft else { return }
        removals.increment()
        if isCurrent {
            if endsUnseen { endUse(of: timer) }
            applyChanges()
            finishItemsIfSafe()
        } else if endsUnseen && timer.rundown.exit() {
            timer.finish()
        }
        // The mode may be empty now, and the deadline another.
        notifyIfElsewhere([.changes, .wake])
    }

    // MARK: Under the lock

    /// Makes the timer this loop's, if it is not another's. False when it was refused.
    private func claimLocked(_ timer: Timer, _ shared: inout LoopShared) -> Bool {
        if shared.phase == .ended { return false }
        let place = TimerPlace(word: timer.place.load(ordering: .acquiring))
        if place.loopID == id { return timer.isValid }
        guard place.loopID == 0 else { return false }
        let unplaced = TimerPlace(unplacedIn: id).word
        let (isClaimed, _) = timer.place.compareExchange(expected: 0, desired: unplaced, ordering: .sequentiallyConsistent)
        guard isClaimed else { return false }
        // After the claim: a thread that invalidates the timer from here on finds it in this loop.
        guard timer.rundown.enter() else {
            timer.place.store(0, ordering: .sequentiallyConsistent)
            return false
        }
        // A change that another loop has queued is no concern of this one.
        if timer.flags.load(ordering: .acquiring) & Timer.Flag.redateQueued != 0 {
            timer.flags.bitwiseAnd(~Timer.Flag.redateQueued, ordering: .acquiringAndReleasing)
        }
        timer.memberships.clear()
        timer.memberships.isKnownToOwner = false
        timer.memberships.index = UInt32(shared.timers.count)
        shared.timers.append(timer)
        return true
    }

    func isHereLocked(_ timer: Timer) -> Bool {
        TimerPlace(word: timer.place.load(ordering: .acquiring)).loopID == id
    }

    func isTimer(_ timer: Timer, in modeIndex: Int) -> Bool { isHereLocked(timer) && timer.memberships.contains(modeIndex) }

    /// Under the lock. The slot counts: a timer that left a mode and came back has another one.
    func isTimer(_ timer: Timer, filedAs membership: TimerMemberships.Membership) -> Bool {
        isHereLocked(timer) && timer.memberships.all.contains { $0.modeIndex == membership.modeIndex && $0.slot == membership.slot }
    }

    private func rememberPlaceLocked(_ timer: Timer) {
        timer.place.store(timer.memberships.place(in: id).word, ordering: .releasing)
    }

    // MARK: The owner's queues

    private func fileNew(_ timer: Timer, _ membership: TimerMemberships.Membership) {
        file(timer, membership)
    }

    func file(_ timer: Timer, _ membership: TimerMemberships.Membership) {
        // One that is being fired is filed under its date when its callout has returned, whichever loop's thread is in it.
        let isFiring = timer.flags.load(ordering: .sequentiallyConsistent) & Timer.Flag.firing != 0
        let date = isFiring ? .max : timer.date.load(ordering: .sequentiallyConsistent)
        let tolerance = timer.toleranceNanoseconds.load(ordering: .relaxed)
        modeTable.withMode(membership.modeIndex) {
            $0.timers.file(membership.slot, date: date, tolerance: tolerance, owner: Unmanaged.passUnretained(timer).toOpaque())
        }
    }

    /// Files a timer under its present date and tolerance in every mode that the owner has filed it in. Owning thread only.
    func fileAgain(_ timer: Timer) {
        // Where the change with which it joined is still queued, that one files it: until then others may give its slot away.
        for membership in shared.withLock({ _ in isHereLocked(timer) ? timer.memberships.filed : [] }) { file(timer, membership) }
    }

    /// Files a timer under its present date. Owning thread only; without the lock in the common case.
    @inline(__always)
    func reschedule(_ timer: Timer) {
        let place = TimerPlace(word: timer.place.load(ordering: .acquiring))
        guard place.loopID == id, place.isDirect else { return rescheduleSlowly(timer) }
        reschedule(place, timer.date.load(ordering: .acquiring))
    }

    @inline(__always)
    @discardableResult
    func reschedule(_ place: TimerPlace, _ date: Int64) -> Bool {
        // A mode that the owner has not seen yet has a queued change that files the timer.
        guard place.modeIndex < modeTable.count else { return false }
        let isFiled = modeTable.withMode(place.modeIndex) { $0.timers.reschedule(place.slot, date: date) }
        didChangeSleep()
        return isFiled
    }

    private func rescheduleSlowly(_ timer: Timer) {
        for membership in shared.withLock({ _ in isHereLocked(timer) ? timer.memberships.filed : [] }) {
            modeTable[membership.modeIndex].timers.reschedule(membership.slot, date: timer.date.load(ordering: .acquiring))
        }
        didChangeSleep()
    }

    // MARK: Asking

    /// When the next timer of a mode is due; nil when no timer of it has a date. O(n) in the loop's timers. Thread-safe.
    /// See `CFRunLoopGetNextTimerFireDate`.
    public func nextTimerFire(forMode mode: Mode = .default) -> Instant? {
        let earliest = shared.withLock { shared -> Int64 in
            if mode == .common {
                return shared.timers.earliestDate { $0.memberships.isCommon }
            }
            guard let state = shared.modes.find(mode) else { return .max }
            return shared.timers.earliestDate { $0.memberships.contains(state.index) }
        }
        return earliest == .max ? nil : Instant(nanoseconds: earliest)
    }
}

extension UnorderedBag<RunLoop.Timer> {
    fileprivate func earliestDate(of isMeant: (RunLoop.Timer) -> Bool) -> Int64 {
        var earliest = Int64.max
        forEach { if isMeant($0) && $0.isValid { earliest = min(earliest, $0.date.load(ordering: .acquiring)) } }
        return earliest
    }
}

/// The modes that a timer has gained, without an array in the common cases.
enum JoinedModes: Sendable {
    case none
    case one(TimerMemberships.Membership)
    case several([TimerMemberships.Membership])
    /// The owner finds them among its changes.
    case queued

    var isNone: Bool { if case .none = self { true } else { false } }

    func forEach(_ body: (TimerMemberships.Membership) -> Void) {
        switch self {
        case .none, .queued: break
        case .one(let membership): body(membership)
        case .several(let memberships): memberships.forEach(body)
        }
    }
}

extension LoopShared {
    mutating func join(_ timer: RunLoop.Timer, _ name: RunLoop.Mode) -> JoinedModes {
        // The first mode of every loop.
        if name == .default {
            let joined = modes.withMode(0) { Self.put(timer, in: $0) }
            return joined.map { .one($0) } ?? .none
        }
        if name != .common { return Self.put(timer, in: modes.makeLocked(name)).map { .one($0) } ?? .none }
        timer.memberships.isCommon = true
        let joined = modes.commonNames.compactMap { Self.put(timer, in: modes.makeLocked($0)) }
        return joined.isEmpty ? .none : joined.count == 1 ? .one(joined[0]) : .several(joined)
    }

    /// The membership, when the timer was not in the mode.
    static func put(_ timer: RunLoop.Timer, in mode: ModeState) -> TimerMemberships.Membership? {
        if timer.memberships.contains(mode.index) { return nil }
        let membership = TimerMemberships.Membership(modeIndex: mode.index, slot: mode.timerSlots.take())
        timer.memberships.insert(membership)
        mode.changePopulationLocked(by: 1)
        return membership
    }

    /// Takes a timer off the list, and returns the list's reference: it must not be released under the lock.
    mutating func forget(_ timer: RunLoop.Timer) -> Unmanaged<RunLoop.Timer> {
        let index = timer.memberships.index
        return timers.remove(timer, at: Int(index)) { $0.memberships.index = index }
    }
}
