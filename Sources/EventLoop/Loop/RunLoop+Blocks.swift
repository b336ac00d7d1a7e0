// Blocks: closures that are queued without waking anybody (CFRunLoopPerformBlock).

import Synchronization

extension RunLoop {
    /// Queues a block as CFRunLoopPerformBlock does: it wakes nobody and is not a handled source, but a loop does not sleep over it.
    ///
    /// It is performed once, in the first run of any of `modes`, first in first out. False when the loop has ended: the block will not
    /// be performed. An empty list of modes performs nothing. Thread-safe.
    @discardableResult
    public func performBlock(inModes modes: [Mode] = Mode.onlyDefault, _ block: @escaping @Sendable () -> Void) -> Bool {
        preconditionNotForked()
        let isAccepted = shared.withLock { shared -> Bool in
            if shared.phase != .open { return false }
            let item = WorkItem(sequence: shared.nextWork(), body: block, waiter: nil)
            enqueueLocked(item, modes, &shared, isBlock: true)
            return true
        }
        if isAccepted { mark(.blocks) }
        return isAccepted
    }

    /// Puts a closure where its modes find it. Under the lock.
    func enqueueLocked(
        _ item: WorkItem, _ modes: [Mode], _ shared: inout LoopShared, isBlock: Bool
    ) {
        if modes.count == 1 {
            if modes[0] == .common {
                if isBlock { shared.blocks.common.append(item) } else { shared.performs.common.append(item) }
                commonPopulation.add(1, ordering: .acquiringAndReleasing)
                return
            }
            let mode = shared.makeMode(modes[0])
            if isBlock { mode.blocks.append(item) } else { mode.performs.append(item) }
            mode.changePopulation(by: 1)
            return
        }
        if modes.isEmpty { return }
        var named = ModeSet()
        for name in modes where name != .common {
            let mode = shared.makeMode(name)
            if named.insert(mode.index) { mode.changePopulation(by: 1) }
        }
        let isCommon = modes.contains(.common)
        if isCommon { commonPopulation.add(1, ordering: .acquiringAndReleasing) }
        let mixed = MixedWorkItem(item: item, modes: named, isCommon: isCommon)
        if isBlock { shared.blocks.mixed.append(mixed) } else { shared.performs.mixed.append(mixed) }
    }

    /// Performs what was queued for the mode when this begins: what a block queues waits for the next point. True when there was one.
    @discardableResult
    func performBlocks(in mode: ModeState) -> Bool { /* DOES CALLOUT */
        takeAttention(mode)
        guard owned.pending.contains(.blocks) else { return false }
        owned.pending.remove(.blocks)
        var batch = owned.spareBlocks.popLast() ?? []
        shared.withLock { takeBlocks(&$0, mode, &batch) }
        for index in batch.indices {
            counters.blocksPerformed.increment()
            let block = batch[index].body
            // The closure must not outlive its call in the batch.
            batch[index] = WorkFIFO.spent
            callOutToBlock(block)
        }
        let isPerformed = !batch.isEmpty
        batch.removeAll(keepingCapacity: true)
        owned.spareBlocks.append(batch)
        return isPerformed
    }

    private func takeBlocks(_ shared: inout LoopShared, _ mode: ModeState, _ batch: inout ContiguousArray<WorkItem>) {
        swap(&batch, &mode.blocks)
        if !batch.isEmpty { mode.changePopulation(by: -batch.count) }
        var isSorted = true
        if mode.isCommon.load(ordering: .relaxed) && !shared.blocks.common.isEmpty {
            commonPopulation.subtract(shared.blocks.common.count, ordering: .acquiringAndReleasing)
            isSorted = batch.isEmpty
            batch.append(contentsOf: shared.blocks.common)
            shared.blocks.common.removeAll(keepingCapacity: true)
        }
        let mixed = shared.blocks.mixed.isEmpty ? [] : takeMixedLocked(&shared.blocks, mode, shared.modes)
        if !mixed.isEmpty {
            isSorted = false
            batch.append(contentsOf: mixed)
        }
        if !isSorted { batch.sort { $0.sequence < $1.sequence } }
    }

    /// Takes the closures for several modes that may be performed in this one, in order. Under the lock.
    func takeMixedLocked(
        _ queues: inout WorkQueues, _ mode: ModeState, _ modes: ContiguousArray<ModeState>
    ) -> [WorkItem] {
        var taken: [WorkItem] = []
        queues.mixed.removeAll { mixed in
            guard mixed.isEligible(in: mode) else { return false }
            mixed.modes.forEach { modes[$0].changePopulation(by: -1) }
            if mixed.isCommon { commonPopulation.subtract(1, ordering: .acquiringAndReleasing) }
            taken.append(mixed.item)
            return true
        }
        return taken
    }
}
