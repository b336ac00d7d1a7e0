// The perform family (the Guide's Table 3-2): closures with the semantics of input sources; and step 4.

import Synchronization

extension RunLoop {
    /// Performs `body` in the next pass of any of `modes`, and wakes the loop.
    ///
    /// All that are queued for a mode are performed in one pass, in order; they count as a handled source and keep the mode from being empty. False
    /// when the loop has ended, or its `RunLoopThread` was stopped: `body` will not be performed. An empty list of modes performs nothing. Also on
    /// the owning thread `body` is queued, not called. Thread-safe; no system call when the loop works, one when it sleeps. See
    /// `performSelector:onThread:withObject:waitUntilDone:modes:`.
    @discardableResult
    public func perform(
        inModes modes: [Mode] = Mode.onlyCommon, file: StaticString = #fileID, line: UInt = #line, _ body: @escaping @Sendable () -> Void
    ) -> Bool {
        let site = CreationSite(file, line)
        return enqueueClosure(.perform, modes, body, site) || refuseClosure(site)
    }

    /// The same in the common modes. A function of its own, because passing a list of modes, even of one, costs more than the closure.
    @discardableResult
    public func perform(file: StaticString = #fileID, line: UInt = #line, _ body: __owned @escaping @Sendable () -> Void) -> Bool {
        let site = CreationSite(file, line)
        let posted = RecordedPosts.present
        let locked = shared.lockValue()
        guard locked.pointee.phase == .open else {
            shared.unlock()
            return refuseClosure(site)
        }
        let sequence = locked.pointee.nextWork()
        common.enqueueLocked(WorkItem(sequence: sequence, body: body, site: site, ticket: nil), .perform)
        shared.unlock()
        if posted != 0 { RecordedPosts.record(to: id, FlowKey.closure(sequence), at: posted) }
        notify(.performs)
        return true
    }

    /// The same, handing over a value that is not Sendable.
    @discardableResult
    public func perform<Value>(
        inModes modes: [Mode] = Mode.onlyCommon, sending value: sending Value, file: StaticString = #fileID, line: UInt = #line,
        _ body: @escaping @Sendable (sending Value) -> Void
    ) -> Bool {
        let parcel = Parcel(value)
        let site = CreationSite(file, line)
        return enqueueClosure(.perform, modes, { body(parcel.take()) }, site) || refuseClosure(site)
    }

    /// `ticket`: of somebody who waits for the closure. False when the loop takes no more, which is not reported.
    func enqueueClosure(
        _ kind: ClosureKind, _ modes: [Mode], _ body: @escaping @Sendable () -> Void, _ site: CreationSite, _ ticket: WorkTicket? = nil
    ) -> Bool {
        let posted = RecordedPosts.present
        let ticket = ticket ?? (modes.count > 1 ? WorkTicket() : nil)
        let queued = shared.withLockIfOwn { shared -> UInt64? in
            if shared.phase != .open { return nil }
            let item = WorkItem(sequence: shared.nextWork(), body: body, site: site, ticket: ticket)
            modeTable.enqueueLocked(item, modes, kind)
            return item.sequence
        }
        guard let sequence = queued ?? nil else { return false }
        if posted != 0 { RecordedPosts.record(to: id, FlowKey.closure(sequence), at: posted) }
        if kind == .block { waker.mark(.blocks) } else if !modes.isEmpty { notify(.performs) }
        return true
    }

    /// Performs what `perform` has queued, then the custom sources that were signaled before. When the run returns after a source, only the first.
    @inline(__always) func performCustomSources(_ frame: RunFrame, _ mode: ModeState) -> Bool { /* DOES CALLOUT */
        hasWork(.forSources) && performPending(frame, mode)
    }

    @inline(never) private func performPending(_ frame: RunFrame, _ mode: ModeState) -> Bool { /* DOES CALLOUT */
        takeAttention(mode)
        var isPerformed = false
        if owned.pending.contains(.performs) {
            isPerformed = performQueued(in: mode)
            if isPerformed && frame.owned.returnsAfterSource { return true }
            takeAttention(mode)
        }
        return owned.pending.contains(.signals) && performSignaled(frame, mode) || isPerformed
    }

    /// Performs what was queued for the mode when this begins, in order. One at a time from the owner's queues, so that a run nested in one of them
    /// performs the rest. Closures with a ticket stay under the lock until their turn: nested runs find them there, and their waiters take them back.
    private func performQueued(in mode: ModeState) -> Bool { /* DOES CALLOUT */
        owned.pending.subtract(.performs)
        let isCommon = mode.isCommon.load(ordering: .acquiring)
        let (last, firstTicketed) = shared.withLock { shared -> (UInt64, UInt64) in
            mode.takePlainPerformsLocked()
            if isCommon { common.takePlainPerformsLocked() }
            return (shared.lastWork, modeTable.firstTicketedLocked(mode, isCommon: isCommon, .perform))
        }
        // Changes that were made before they were queued take effect before they are performed.
        finishPendingEnds(mode)
        var ticketed = firstTicketed
        var isPerformed = false
        while true {  // ends: what is queued from here on has a later sequence number
            let isOwn = !isCommon || mode.performing.firstSequence < common.performing.firstSequence
            let next = isOwn ? mode.performing.firstSequence : common.performing.firstSequence
            let item: WorkItem
            if ticketed < next && ticketed <= last {
                let taken: WorkItem?
                (taken, ticketed) = shared.withLock { shared in
                    let taken = modeTable.popTicketedLocked(mode, isCommon: isCommon, .perform, before: min(next, last + 1))
                    return (taken, modeTable.firstTicketedLocked(mode, isCommon: isCommon, .perform))
                }
                guard let taken else { continue }  // it was withdrawn, or performed by a nested run
                item = taken
            } else if next <= last {
                item = isOwn ? mode.performing.popFirst() : common.performing.popFirst()
            } else {
                break
            }
            if let ticket = item.ticket, ticket.state != .waiting { continue }  // withdrawn after the owner took it
            isPerformed = true
            counters.sourcesHandled.increment()
            perform(item, mode)
        }
        return isPerformed
    }

    @inline(__always) func perform(_ item: WorkItem, _ mode: ModeState) { /* DOES CALLOUT */
        if let ticket = item.ticket {
            ticket.outer = owned.performing
            owned.performing = .passUnretained(ticket)
        }
        let span = openSpan(mode, .perform, item.sequence, item.site)
        callOutToPerform(item.body)
        closeSpan(span)
        if let ticket = item.ticket { owned.performing = ticket.outer }
    }

    /// Takes a withdrawn closure out of the queues, so that it keeps no mode from being empty.
    func dequeue(_ ticket: WorkTicket) {
        let item = shared.withLockIfOwn { $0.modes.takeTicketedLocked(ticket) }
        withExtendedLifetime(item) {}  // released outside the lock
        notifyIfElsewhere(.wake)
    }

    // MARK: Blocks: closures that are queued without waking anybody (CFRunLoopPerformBlock)
    /// Queues a block as CFRunLoopPerformBlock does: it wakes nobody and is not a handled source, but a loop does not sleep over it.
    ///
    /// It is performed once, in the first run of any of `modes`, first in first out. False when the loop has ended: the block will not be performed.
    /// An empty list of modes performs nothing. Thread-safe.
    @discardableResult
    public func performBlock(
        inModes modes: [Mode] = Mode.onlyDefault, file: StaticString = #fileID, line: UInt = #line, _ block: @escaping @Sendable () -> Void
    ) -> Bool {
        let site = CreationSite(file, line)
        return enqueueClosure(.block, modes, block, site) || refuseClosure(site)
    }

    /// Performs the jobs, then the blocks, that were queued for the mode when this begins. True when there was a block.
    @inline(__always)
    @discardableResult
    func performBlocks(in mode: ModeState) -> Bool { /* DOES CALLOUT */ hasWork(.forBlocks) && performQueuedBlocks(in: mode) }

    @inline(never) private func performQueuedBlocks(in mode: ModeState) -> Bool { /* DOES CALLOUT */
        takeAttention(mode)
        if owned.pending.contains(.jobs) { performJobs(in: mode) }
        guard owned.pending.contains(.blocks) else { return false }
        owned.pending.subtract(.blocks)
        var batch = WorkQueue()
        swap(&batch, &owned.spareBlocks)
        let hasMore = shared.withLock { _ in
            mode.takePlainBlocksLocked(into: &batch)
            let isCommon = mode.isCommon.load(ordering: .relaxed)
            if isCommon && batch.isEmpty { common.takePlainBlocksLocked(into: &batch) }
            return !mode.isEmptyLocked(.block) || (isCommon && !common.isEmptyLocked(.block))
        }
        if hasMore { takeMoreBlocks(mode, &batch) }  // than can be taken by exchanging two queues
        if hasPendingWork { carryOutPendingChanges(mode) }
        let isPerformed = !batch.isEmpty
        while !batch.isEmpty {  // ends: the batch is fixed
            counters.blocksPerformed.increment()
            let item = batch.popFirst()
            let span = openSpan(mode, .block, item.sequence, item.site)
            callOutToBlock(item.body)
            closeSpan(span)
        }
        swap(&batch, &owned.spareBlocks)
        return isPerformed
    }

    /// Adds the blocks for the common modes and those with a ticket, one at a time under the lock, which others wait for.
    @inline(never) private func takeMoreBlocks(_ mode: ModeState, _ batch: inout WorkQueue) {
        let isCommon = mode.isCommon.load(ordering: .acquiring)
        var plain = WorkQueue()
        let last = shared.withLock { shared -> UInt64 in
            if isCommon { common.takePlainBlocksLocked(into: &plain) }
            return shared.lastWork
        }
        while !plain.isEmpty { batch.append(plain.popFirst()) }  // ends: each iteration removes one
        // Ends: what is queued from here on has a later sequence number.
        while let item = shared.withLock({ _ in modeTable.popTicketedLocked(mode, isCommon: isCommon, .block, before: last + 1) }) {
            batch.append(item)
        }
        batch.sort { $0.sequence < $1.sequence }
    }
}

/// Carries a value that is not Sendable to a loop's thread.
final class Parcel<Value>: @unchecked Sendable {
    // SAFETY: written before the parcel is shared, and then accessed by one thread at a time. Nil when the value was taken.
    var value: Value?

    init(_ value: sending Value) { self.value = consume value }
    func take() -> sending Value {
        nonisolated(unsafe) let taken = value.take()!  // SAFETY: taken once, so nobody else can reach it
        return taken
    }
}
