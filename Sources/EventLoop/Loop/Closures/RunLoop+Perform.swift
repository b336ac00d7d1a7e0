// The perform family (the Guide's Table 3-2): closures with the semantics of input sources; and step 4.

import Synchronization

extension RunLoop {
    /// Performs `body` in the next pass of any of `modes`, and wakes the loop.
    ///
    /// All that are queued for a mode are performed in one pass, in order; they count as a handled source and keep the mode from being
    /// empty meanwhile. False when the loop has ended, or its `RunLoopThread` was stopped: `body` will not be performed. An empty
    /// list of modes performs nothing. Also on the owning thread `body` is queued, not called. Thread-safe; no system call when the
    /// loop is working, one when it sleeps. See `performSelector:onThread:withObject:waitUntilDone:modes:`.
    @discardableResult
    public func perform(inModes modes: [Mode] = Mode.onlyCommon, _ body: @escaping @Sendable () -> Void) -> Bool {
        enqueuePerform(modes, body, Self.ticket(for: modes))
    }

    /// The same in the common modes. A function of its own, because passing a list of modes, even of one, costs more than the closure.
    @discardableResult
    public func perform(_ body: __owned @escaping @Sendable () -> Void) -> Bool {
        preconditionNotForked()
        let locked = shared.lockValue()
        guard locked.pointee.phase == .open else {
            shared.unlock()
            return false
        }
        common.enqueueLocked(WorkItem(sequence: locked.pointee.nextWork(), body: body, ticket: nil), .perform)
        shared.unlock()
        notify(.performs)
        return true
    }

    /// The same, handing over a value that is not Sendable.
    @discardableResult
    public func perform<Value>(
        inModes modes: [Mode] = Mode.onlyCommon, sending value: sending Value, _ body: @escaping @Sendable (sending Value) -> Void
    ) -> Bool {
        let parcel = Parcel(value)
        return enqueuePerform(modes, { body(parcel.take()) }, Self.ticket(for: modes))
    }

    /// Queues for step 4. False when the loop takes no more.
    func enqueuePerform(_ modes: [Mode], _ body: @escaping @Sendable () -> Void, _ ticket: WorkTicket?) -> Bool {
        preconditionNotForked()
        let isAccepted = shared.withLock { shared -> Bool in
            if shared.phase != .open { return false }
            let item = WorkItem(sequence: shared.nextWork(), body: body, ticket: ticket)
            modeTable.enqueueLocked(item, modes, .perform)
            return true
        }
        if isAccepted && !modes.isEmpty { notify(.performs) }
        return isAccepted
    }

    /// Performs what is queued for the mode by `perform`, then the custom sources that were signaled before this pass got here. True
    /// when something was performed. When the run returns after a source, the walk ends with the first.
    @inline(__always)
    func performCustomSources(_ frame: RunFrame, _ mode: ModeState) -> Bool { /* DOES CALLOUT */
        hasPendingWork && performPending(frame, mode)
    }

    @inline(never)
    private func performPending(_ frame: RunFrame, _ mode: ModeState) -> Bool { /* DOES CALLOUT */
        takeAttention(mode)
        let performed = performQueued(in: mode)
        if performed && frame.returnsAfterSource { return true }
        return performSignaled(frame, mode) || performed
    }

    /// Performs what was queued for the mode when this begins, in order. True when there was something.
    ///
    /// One at a time from the owner's queues, so that a run nested in one of them performs the rest. Closures with a ticket stay under the lock
    /// until their turn, where a run nested in another of their modes finds them, and their waiters take them back.
    func performQueued(in mode: ModeState) -> Bool { /* DOES CALLOUT */
        guard owned.pending.contains(.performs) else { return false }
        owned.pending.remove(.performs)
        let isCommon = mode.isCommon.load(ordering: .acquiring)
        var (last, ticketed) = shared.withLock { takePerforms(&$0, mode, isCommon) }
        // Changes that were made before they were queued take effect before they are performed.
        settleEnds(mode)
        var isPerformed = false
        while true {  // ends: what is queued from here on has a later place
            let isOwn = !isCommon || mode.performing.firstSequence < common.performing.firstSequence
            let next = isOwn ? mode.performing.firstSequence : common.performing.firstSequence
            let item: WorkItem
            if ticketed < next && ticketed <= last {
                // Nil if it was withdrawn, or performed by a nested run.
                let taken: WorkItem?
                (taken, ticketed) = shared.withLock { shared in
                    let taken = modeTable.popTicketedLocked(mode, isCommon: isCommon, .perform, before: min(next, last + 1))
                    return (taken, modeTable.firstTicketedLocked(mode, isCommon: isCommon, .perform))
                }
                guard let taken else { continue }
                item = taken
            } else if next <= last {
                item = isOwn ? mode.performing.popFirst() : common.performing.popFirst()
            } else {
                break
            }
            // Withdrawn after the owner took it: nothing is left of it.
            if let ticket = item.ticket, !ticket.isWaiting { continue }
            isPerformed = true
            counters.sourcesHandled.increment()
            callOutToPerform(item.body)
        }
        return isPerformed
    }

    /// Takes a withdrawn closure out of the queues, so that it keeps no mode from being empty.
    func dequeue(_ ticket: WorkTicket) {
        if belongsToParentProcess { return }
        // Let go of outside the lock.
        let item = shared.withLock { $0.modes.takeTicketedLocked(ticket) }
        withExtendedLifetime(item) {}
        notifyIfElsewhere(.wake)
    }

    /// Moves what only this mode and the common modes may perform to the owner's queues. The last place that was given out so far, and the
    /// first of a closure with a ticket.
    private func takePerforms(_ shared: inout LoopShared, _ mode: ModeState, _ isCommon: Bool) -> (last: UInt64, ticketed: UInt64) {
        mode.takePlainPerformsLocked()
        if isCommon { common.takePlainPerformsLocked() }
        return (shared.lastWork, modeTable.firstTicketedLocked(mode, isCommon: isCommon, .perform))
    }
}

extension RunLoop {
    /// The ticket of a closure that nobody waits for; nil if it is queued for one mode.
    static func ticket(for modes: [Mode]) -> WorkTicket? { modes.count > 1 ? WorkTicket() : nil }
}

/// Carries a value that is not Sendable to one place, once.
final class Parcel<Value>: @unchecked Sendable {
    // SAFETY: written before the parcel is queued and taken once, by the owning thread; the queue's lock orders the two.
    private var value: Value?

    init(_ value: sending Value) { self.value = consume value }

    func take() -> sending Value {
        nonisolated(unsafe) let taken = value!  // SAFETY: taken once, so nobody else can reach it
        value = nil
        return taken
    }
}
