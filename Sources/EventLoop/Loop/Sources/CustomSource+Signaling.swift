// Signals of custom sources. RunLoop+Serving.swift performs them.

import Synchronization

extension RunLoop.CustomSource {
    /// Marks the source as ready to be performed. Wakes nobody: follow it with the loop's `wakeUp()`.
    ///
    /// Signals before the perform are one; a signal given while the source is being performed is a new one. On an invalid source
    /// nothing happens. Thread-safe. See `CFRunLoopSourceSignal`.
    public func signal() {
        guard isValid, let claim = signalWord.claim() else { return }
        if !isValid {
            signalWord.take()
            return
        }
        recordSignalTime()
        // A loop's lock inside the source's: never the other way round. It spares a copy of the list.
        _ = state.withLockUnlessInherited { state in
            state.forEachMembership { $0.loop.enqueueSignal($0) }
        }
        // Not before: a thread that finds the signal enqueued relies on it, and may wake the loop at once.
        signalWord.markEnqueued(claim)
    }
}

extension RunLoop {
    fileprivate func enqueueSignal(_ membership: SourceMembership) {
        if belongsToParentProcess { return }
        shared.withLock { _ in
            if membership.isDead { return }
            membership.modes.forEach { modeTable.reference($0)._withUnsafeGuaranteedRef { $0.enqueueSignalLocked(of: membership) } }
        }
        waker.mark(.signals)
    }

    /// Notes a signal again that another loop's thread was in the way of.
    func enqueueSignalAndWake(_ membership: SourceMembership) {
        enqueueSignal(membership)
        notify(.signals)
    }
}

extension ModeState {
    /// Notes a pending signal under the loop's lock.
    @inline(__always)
    func enqueueSignalLocked(of membership: SourceMembership) {
        signaled.add(membership, inMode: index)
        countQueueingLocked()
    }
}
