// Signals of custom sources. Serving.swift performs them.

import Synchronization

extension RunLoop.CustomSource {
    /// Marks the source as ready to be performed. Wakes nobody: follow it with the loop's `wakeUp()`.
    ///
    /// Signals before the perform are one; one during it is new. Nothing on an invalid source. Thread-safe. See `CFRunLoopSourceSignal`.
    public func signal() {
        guard isValid, let claim = signalWord.claim() else { return }
        if !isValid { return didInvalidate() }  // takes it back
        signaledAt.store(TickClock.ticks, ordering: .relaxed)
        let posted = RecordedPosts.present
        if posted != 0 { recordPost(at: posted) }
        // A loop's lock inside the source's: never the other way round. It spares a copy of the list.
        _ = state.withLockIfOwn { $0.forEachMembership { $0.loop.enqueueSignal($0) } }
        // Not before: a thread that finds the signal enqueued relies on it, and may wake the loop at once.
        signalWord.markEnqueued(claim)
    }
}

extension RunLoop {
    @inline(__always) fileprivate func enqueueSignal(_ membership: SourceMembership) {
        shared.withLockIfOwn { _ in
            if membership.locked.isDead { return }
            // Not a closure for all modes: it would retain what it captures, and the set of modes.
            var word = membership.locked.modes.low
            while word != 0 {  // ends: each iteration clears a bit
                modeTable.reference(word.trailingZeroBitCount).use { $0.enqueueSignalLocked(of: membership) }
                word &= word &- 1
            }
            if membership.locked.modes.hasHighWords { enqueueSignalInHighModesLocked(membership) }
        }
        waker.mark(.signals)
    }

    @inline(never) private func enqueueSignalInHighModesLocked(_ membership: SourceMembership) {
        membership.locked.modes.forEachHigh { modeTable.reference($0).use { $0.enqueueSignalLocked(of: membership) } }
    }

    /// Notes a signal again that another loop's thread was in the way of.
    func enqueueSignalAndWake(_ membership: SourceMembership) {
        enqueueSignal(membership)
        notify(.signals)
    }
}

extension ModeState {
    @inline(__always) func enqueueSignalLocked(of membership: SourceMembership) {
        locked.signaled.add(membership, inMode: index)
        countQueueingLocked()
    }
}
