// Sources that the loop's own thread adds and removes: the change is carried out at once, without a place in the queue of changes.
//
// That is possible while no change is queued: the owner carries out changes in their order. A change that another thread queues after the lock
// was released is carried out later, as it would be behind a change in the queue. Only for `DescriptorSource`, whose class is called neither
// when it joins nor when it leaves: nothing can run the loop between the lock and the change.

import Synchronization

extension RunLoop {
    /// Whether a change of this source can be carried out in place, if the queue of changes is empty. Any thread.
    @inline(__always)
    private func mayChangeInPlace(_ source: Source, _ mode: Mode) -> Bool {
        source.kind == .descriptor && mode != .common && LoopID.current == id && !owned.changeBatch.isApplying
    }

    /// Adds a source to a mode. False if that must take the way of other threads, or the source cannot be added. The caller holds a use
    /// of the source.
    func addInPlace(_ source: Source, _ membership: SourceMembership, forMode name: Mode) -> Bool { /* DOES CALLOUT */
        guard mayChangeInPlace(source, name) else { return false }
        var gained: Unmanaged<ModeState>?
        let isDone = shared.withLock { $0.joinInPlace(membership, name, &gained) }
        // Modes live as long as their loop.
        guard isDone, let gained else { return isDone }
        _ = owned.changeBatch.beginHoldingFailures()
        gained._withUnsafeGuaranteedRef { register(membership, in: $0) }
        endChangeInPlace()
        return true
    }

    /// Takes a source out of a mode. False if that must take the way of other threads. The caller holds a use of the source.
    func removeInPlace(_ source: Source, _ membership: SourceMembership, forMode name: Mode) -> Bool { /* DOES CALLOUT */
        guard mayChangeInPlace(source, name) else { return false }
        var lost: LostMode?
        let isDone = shared.withLock { $0.leaveInPlace(membership, name, &lost) }
        guard isDone, let lost else { return isDone }
        removals.increment()
        _ = owned.changeBatch.beginHoldingFailures()
        if lost.wasLast {
            source.forget(membership)
            applyEnd(of: membership)
        } else {
            unregister(membership, modeIndex: lost.index)
        }
        endChangeInPlace()
        // The mode may be empty now.
        notifyIfElsewhere(.wake)
        return true
    }

    private func endChangeInPlace() { /* DOES CALLOUT */
        owned.changeBatch.end()
        if owned.changeBatch.hasFailures { failSources() }
        finishItemsIfSafe()
        didChangeSleep()
    }

    /// Ends the use of a dead membership of a source that the kernel does not watch, without a change in the queue: nothing else of it can be
    /// queued. False on another thread.
    func endInPlace(_ membership: SourceMembership) -> Bool { /* DOES CALLOUT */
        guard LoopID.current == id, !owned.changeBatch.isApplying else { return false }
        applyEnd(of: membership)
        finishItemsIfSafe()
        didChangeSleep()
        return true
    }
}

/// What a source that leaves a mode in place has left. `wasLast`: this has ended its membership.
private struct LostMode {
    let index: Int
    let wasLast: Bool
}

extension LoopShared {
    /// As `join`, without a queued change. `gained` is the mode, if the source was not in it. False if nothing was done.
    fileprivate mutating func joinInPlace(
        _ membership: SourceMembership, _ name: RunLoop.Mode, _ gained: inout Unmanaged<ModeState>?
    ) -> Bool {
        guard changes.isEmpty, !membership.isDead, phase != .ended, membership.source.isValid else { return false }
        let mode = modes.makeLocked(name)
        if membership.modes.contains(mode.index) { return true }
        if membership.modes.isEmpty && !membership.isCommon { insert(membership) }
        membership.modes.insert(mode.index)
        mode.changePopulationLocked(by: 1)
        mode.watchedSources.add(1, ordering: .acquiringAndReleasing)
        gained = .passUnretained(mode)
        return true
    }

    /// As `leave`, without a queued change. `lost` is the mode, if the source was in it. False if nothing was done.
    fileprivate mutating func leaveInPlace(_ membership: SourceMembership, _ name: RunLoop.Mode, _ lost: inout LostMode?) -> Bool {
        guard changes.isEmpty, !membership.isDead else { return false }
        guard let mode = modes.find(name), membership.modes.remove(mode.index) else { return true }
        mode.changePopulationLocked(by: -1)
        mode.watchedSources.subtract(1, ordering: .acquiringAndReleasing)
        let wasLast = membership.modes.isEmpty && !membership.isCommon
        if wasLast { endLocked(membership) }
        lost = LostMode(index: mode.index, wasLast: wasLast)
        return true
    }

    /// A membership that has come to life.
    mutating func insert(_ membership: SourceMembership) {
        membership.index = Int32(sources.count)
        sources.append(membership)
    }

    /// A membership that has lost its last mode.
    mutating func endLocked(_ membership: SourceMembership) {
        membership.isDead = true
        let index = membership.index
        if sources.contains(membership, at: Int(index)) {
            // The caller holds the membership, so it does not end here.
            sources.remove(membership, at: Int(index)) { $0.index = index }.release()
        }
    }
}
