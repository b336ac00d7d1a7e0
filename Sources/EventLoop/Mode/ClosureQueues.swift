import Synchronization

/// Blocks are performed at three points of a pass and wake nobody; performs are handled like sources.
enum ClosureKind: CaseIterable, Sendable { case block, perform }

/// The closures that wait for one mode, and the two counts that spare the owner the lock. Each `ModeState` is one. Another one, in `ModeTable`, is
/// for `.common`: any common mode may perform its closures.
class ClosureQueues: @unchecked Sendable {
    // SAFETY: atomics, what the loop's lock guards, and what its thread owns, in this order.
    // MARK: Read by any thread, written under the loop's lock
    private final let populationWord = Atomic<Int>(0)
    private final let queueingsWord = Atomic<UInt64>(0)
    /// How many sources, timers, keep-alives and queued closures keep the mode from being empty.
    @inline(__always) final var population: Int { populationWord.load(ordering: .acquiring) }
    /// Counts what was ever queued: at the same count, a queue that was empty is empty.
    @inline(__always) final var queueings: UInt64 { queueingsWord.load(ordering: .acquiring) }

    // SAFETY: read and written under the loop's lock only.
    @exclusivity(unchecked) private(set) final var queued = Queued()
    // SAFETY: touched on the loop's thread only.
    /// Performs that the owner has taken from under the lock and not called yet. A run that is nested in one of them performs the rest.
    @exclusivity(unchecked) final var performing = WorkQueue()

    struct Queued: ~Copyable {
        fileprivate(set) var blocks = ClosureQueue(), performs = ClosureQueue()
    }

    // MARK: Under the lock. The lock orders the writes, so a load and a store will do.
    @inline(__always) final func changePopulationLocked(by change: Int) {
        let new = populationWord.load(ordering: .relaxed) &+ change
        assert(new >= 0, "an item left a mode that it was not in")
        populationWord.store(new, ordering: .releasing)
    }

    @inline(__always)
    final func countQueueingLocked() { queueingsWord.store(queueingsWord.load(ordering: .relaxed) &+ 1, ordering: .releasing) }
    @inline(__always)
    final func isEmptyLocked(_ kind: ClosureKind) -> Bool { kind == .block ? queued.blocks.isEmpty : queued.performs.isEmpty }
    @inline(__always) final func countLocked(_ kind: ClosureKind) -> Int { kind == .block ? queued.blocks.count : queued.performs.count }

    /// The sequence number of the first closure with a ticket; greater than any other if there is none.
    @inline(__always) final func firstTicketedLocked(_ kind: ClosureKind) -> UInt64 {
        kind == .block ? queued.blocks.ticketed.firstSequence : queued.performs.ticketed.firstSequence
    }

    /// Queues a closure that is in no other queue and that nobody withdraws.
    @inline(__always) final func enqueueLocked(_ item: __owned WorkItem, _ kind: ClosureKind) {
        if kind == .block { queued.blocks.plain.append(item) } else { queued.performs.plain.append(item) }
        countQueueingLocked()
        changePopulationLocked(by: 1)
    }

    final func enqueueTicketedLocked(_ item: WorkItem, _ kind: ClosureKind) -> ClosureQueue.Index {
        countQueueingLocked()
        changePopulationLocked(by: 1)
        return kind == .block
            ? queued.blocks.ticketed.append(item, sequence: item.sequence) : queued.performs.ticketed.append(item, sequence: item.sequence)
    }

    final func removeLocked(_ index: ClosureQueue.Index, _ kind: ClosureKind) -> WorkItem {
        changePopulationLocked(by: -1)
        return kind == .block ? queued.blocks.ticketed.remove(index) : queued.performs.ticketed.remove(index)
    }

    /// Takes the first closure with a ticket out of this queue only. Nil if there is none.
    final func removeFirstTicketedLocked(_ kind: ClosureKind) -> WorkItem? {
        if kind == .block ? queued.blocks.ticketed.isEmpty : queued.performs.ticketed.isEmpty { return nil }
        changePopulationLocked(by: -1)
        return kind == .block ? queued.blocks.ticketed.popFirst() : queued.performs.ticketed.popFirst()
    }

    @inline(__always) final func takePlainBlocksLocked(into batch: inout WorkQueue) {
        changePopulationLocked(by: -queued.blocks.plain.count)
        batch.takeAll(from: &queued.blocks.plain)
    }

    @inline(__always) final func takePlainPerformsLocked() {
        if queued.performs.plain.isEmpty { return }
        changePopulationLocked(by: -queued.performs.plain.count)
        performing.takeAll(from: &queued.performs.plain)
    }
}
