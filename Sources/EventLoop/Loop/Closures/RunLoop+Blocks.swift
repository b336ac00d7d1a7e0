// Blocks: closures that are queued without waking anybody (CFRunLoopPerformBlock).

import Synchronization

extension RunLoop {
    /// Queues a block as CFRunLoopPerformBlock does: it wakes nobody and is not a handled source, but a loop does not sleep over it.
    ///
    /// It is performed once, in the first run of any of `modes`, first in first out. False when the loop has ended: the block will not
    /// be performed. An empty list of modes performs nothing. Thread-safe.
    @discardableResult
    public func performBlock(
        inModes modes: [Mode] = Mode.onlyDefault, file: StaticString = #fileID, line: UInt = #line, _ block: @escaping @Sendable () -> Void
    ) -> Bool {
        let site = CreationSite(file, line)
        guard enqueueClosure(modes, block, site, Self.ticket(for: modes), .block) else { return refuseClosure(site) }
        waker.mark(.blocks)
        return true
    }

    /// Performs the jobs of actors and tasks, then the blocks, that were queued for the mode when this begins: what they queue waits for the
    /// next point. True when there was a block.
    @inline(__always)
    @discardableResult
    func performBlocks(in mode: ModeState) -> Bool { /* DOES CALLOUT */
        hasWork(.forBlocks) && performQueuedBlocks(in: mode)
    }

    @inline(never)
    private func performQueuedBlocks(in mode: ModeState) -> Bool { /* DOES CALLOUT */
        takeAttention(mode)
        if owned.pending.contains(.jobs) { performJobs(in: mode) }
        guard owned.pending.contains(.blocks) else { return false }
        owned.pending.remove(.blocks)
        var batch = WorkQueue()
        swap(&batch, &owned.spareBlocks)
        let hasMore = shared.withLock { _ in takeBlocksLocked(mode, &batch) }
        if hasMore { takeMoreBlocks(mode, &batch) }
        if hasPendingWork { carryOutPendingChanges(mode) }
        let isPerformed = !batch.isEmpty
        if isObserved { perform(&batch, mode, Observed.self) } else { perform(&batch, mode, Unobserved.self) }
        swap(&batch, &owned.spareBlocks)
        return isPerformed
    }

    @inline(__always)
    private func perform<Observer: CalloutObserver>(_ batch: inout WorkQueue, _ mode: ModeState, _: Observer.Type) { /* DOES CALLOUT */
        while !batch.isEmpty {  // ends: the batch is fixed
            counters.blocksPerformed.increment()
            let item = batch.popFirst()
            let span = Observer.open(self, mode, .block, item.sequence, item.site)
            callOutToBlock(item.body)
            Observer.close(self, span)
        }
    }

    /// True if there is more than can be taken by exchanging two queues.
    private func takeBlocksLocked(_ mode: ModeState, _ batch: inout WorkQueue) -> Bool {
        mode.takePlainBlocksLocked(into: &batch)
        let isCommon = mode.isCommon.load(ordering: .relaxed)
        if isCommon && batch.isEmpty { common.takePlainBlocksLocked(into: &batch) }
        return !mode.isEmptyLocked(.block) || (isCommon && !common.isEmptyLocked(.block))
    }

    /// Adds the blocks for the common modes and those with a ticket. Only so many at a time under the lock, which others wait for.
    @inline(never)
    private func takeMoreBlocks(_ mode: ModeState, _ batch: inout WorkQueue) {
        let isCommon = mode.isCommon.load(ordering: .acquiring)
        var plain = WorkQueue()
        let last = shared.withLock { shared -> UInt64 in
            if isCommon { common.takePlainBlocksLocked(into: &plain) }
            return shared.lastWork
        }
        while !plain.isEmpty { batch.append(plain.popFirst()) }  // ends: one goes a turn
        var taken: [WorkItem] = []
        repeat {  // ends: what is queued from here on has a later place
            taken.removeAll(keepingCapacity: true)
            shared.withLock { shared in
                while taken.count < 64,  // ends: one goes a turn
                    let item = modeTable.popTicketedLocked(mode, isCommon: isCommon, .block, before: last + 1)
                {
                    taken.append(item)
                }
            }
            for item in taken { batch.append(item) }
        } while !taken.isEmpty
        batch.sort()
    }
}
