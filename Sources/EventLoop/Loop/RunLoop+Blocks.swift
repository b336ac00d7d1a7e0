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
        _ item: __owned WorkItem, _ modes: [Mode], _ shared: inout LoopShared, isBlock: Bool
    ) {
        if modes.count == 1 {
            if modes[0] == .common {
                if isBlock { shared.blocks.common.append(item) } else { shared.performs.common.append(item) }
                noteCommonQueueingLocked()
                changeCommonPopulationLocked(by: 1)
                return
            }
            let mode = shared.makeMode(modes[0])
            if isBlock { mode.blocks.append(item) } else { mode.performs.append(item) }
            mode.changePopulationLocked(by: 1)
            mode.noteQueueingLocked()
            return
        }
        if modes.isEmpty { return }
        noteCommonQueueingLocked()
        var named = ModeSet()
        for name in modes where name != .common {
            let mode = shared.makeMode(name)
            if named.insert(mode.index) { mode.changePopulationLocked(by: 1) }
        }
        let isCommon = modes.contains(.common)
        if isCommon { changeCommonPopulationLocked(by: 1) }
        let mixed = MixedWorkItem(item: item, modes: named, isCommon: isCommon)
        if isBlock { shared.blocks.mixed.append(mixed) } else { shared.performs.mixed.append(mixed) }
    }

    /// Performs the jobs of actors and tasks, then the blocks, that were queued for the mode when this begins: what they queue waits for the
    /// next point. True when there was a block.
    @inline(__always)
    @discardableResult
    func performBlocks(in mode: ModeState) -> Bool { /* DOES CALLOUT */
        hasNews && performQueuedBlocks(in: mode)
    }

    @inline(never)
    private func performQueuedBlocks(in mode: ModeState) -> Bool { /* DOES CALLOUT */
        takeAttention(mode)
        if owned.pending.contains(.jobs) { performJobs(in: mode) }
        guard owned.pending.contains(.blocks) else { return false }
        owned.pending.remove(.blocks)
        var batch = WorkQueue()
        swap(&batch, &owned.spareBlocks)
        shared.withLock { takeBlocks(&$0, mode, &batch) }
        if hasNews { carryOutNews(mode) }
        let isPerformed = !batch.isEmpty
        while !batch.isEmpty {  // ends: the batch is fixed
            counters.blocksPerformed.increment()
            callOutToBlock(batch.popFirst().body)
        }
        swap(&batch, &owned.spareBlocks)
        return isPerformed
    }

    private func takeBlocks(_ shared: inout LoopShared, _ mode: ModeState, _ batch: inout WorkQueue) {
        mode.changePopulationLocked(by: -mode.blocks.count)
        batch.takeAll(from: &mode.blocks)
        var isSorted = true
        if mode.isCommon.load(ordering: .relaxed) && !shared.blocks.common.isEmpty {
            changeCommonPopulationLocked(by: -shared.blocks.common.count)
            isSorted = batch.isEmpty
            batch.takeAll(from: &shared.blocks.common)
        }
        let mixed = shared.blocks.mixed.isEmpty ? [] : takeMixedLocked(&shared.blocks, mode, shared.modes)
        if !mixed.isEmpty {
            isSorted = false
            for item in mixed { batch.append(item) }
        }
        if !isSorted { batch.sort() }
    }

    @inline(__always)
    func noteCommonQueueingLocked() { commonQueueings.store(commonQueueings.load(ordering: .relaxed) &+ 1, ordering: .releasing) }

    /// Under the lock, so a load and a store will do.
    @inline(__always)
    func changeCommonPopulationLocked(by change: Int) {
        commonPopulation.store(commonPopulation.load(ordering: .relaxed) &+ change, ordering: .releasing)
    }

    /// Takes the closures for several modes that may be performed in this one, in order. Under the lock.
    func takeMixedLocked(
        _ queues: inout WorkQueues, _ mode: ModeState, _ modes: ContiguousArray<ModeState>
    ) -> [WorkItem] {
        var taken: [WorkItem] = []
        queues.mixed.removeAll { mixed in
            guard mixed.isEligible(in: mode) else { return false }
            mixed.modes.forEach { modes[$0].changePopulationLocked(by: -1) }
            if mixed.isCommon { changeCommonPopulationLocked(by: -1) }
            taken.append(mixed.item)
            return true
        }
        return taken
    }
}
