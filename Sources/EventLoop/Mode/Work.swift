import Synchronization

/// A queued closure. `sequence` is its position among all that were queued on the loop.
struct WorkItem: Sendable {
    var sequence: UInt64
    let body: @Sendable () -> Void
    /// Where it was queued.
    let site: CreationSite
    /// For a closure that may leave its queues before its turn.
    let ticket: WorkTicket?
}

/// Where a queued closure is in the queues of its modes, if it may leave them early: it is queued for several modes and performed in one, or a waiter
/// may withdraw it. Made with the closure, held by its queues.
@usableFromInline class WorkTicket: @unchecked Sendable {
    // SAFETY: `word` is atomic; the loop's lock guards the positions, its thread `outer`; a subclass says so for what it has.
    /// `starting`: the task that awaits the closure does not wait yet. `cancelled`: the waiter has withdrawn the closure, which had not begun.
    /// The ticket of a closure that nobody waits for never leaves `waiting`.
    enum State: UInt8, AtomicRepresentable { case starting, waiting, begun, done, cancelled, dropped, abandoned }

    final let word: Atomic<State>
    /// One for each queue that has the closure.
    @exclusivity(unchecked) final private(set) var positions: (first: WorkPosition?, others: [WorkPosition]) = (nil, [])
    // SAFETY: the loop's thread, while it performs the closure. The frames around the call hold the ticket, for ever if the thread ends inside.
    /// The ticket of the closure in which this one is performed.
    @exclusivity(unchecked) final var outer: Unmanaged<WorkTicket>?
    init(_ state: State = .waiting) { word = Atomic(state) }
    final var state: State { word.load(ordering: .acquiring) }

    /// False if the state is not `old`.
    final func move(from old: State, to new: State) -> Bool {
        word.compareExchange(expected: old, desired: new, ordering: .acquiringAndReleasing).exchanged
    }

    /// The loop has refused the closure, or has ended; it will not be performed.
    func workWasDropped() {}
    /// The thread has ended inside the closure, which will not return.
    func workWasAbandoned() {}
    final func add(_ position: WorkPosition) {
        if positions.first == nil { positions.first = position } else { positions.others.append(position) }
    }

    final func removePositions() {
        positions.first = nil
        if !positions.others.isEmpty { positions.others = [] }
    }

    final func isIn(_ modeIndex: Int) -> Bool {
        positions.first?.modeIndex == modeIndex || positions.others.contains { $0.modeIndex == modeIndex }
    }
}

/// Where the queue of a mode has a closure.
struct WorkPosition: Sendable {
    /// `ModeTable.common` for the common modes.
    let modeIndex: Int
    let queueIndex: ClosureQueue.Index
    let kind: ClosureKind
}

/// The closures of one kind, blocks or performs, that are queued for one mode, or for the common modes. Under the loop's lock.
struct ClosureQueue: ~Copyable, Sendable {
    typealias Index = LinkedQueue<WorkItem>.Index
    /// For this mode alone.
    var plain = WorkQueue()
    /// Those with a ticket.
    var ticketed = LinkedQueue<WorkItem>()
    var isEmpty: Bool { plain.isEmpty && ticketed.isEmpty }
    var count: Int { plain.count + ticketed.count }
}

/// Queued closures. One owner at a time: the loop's lock, or its thread.
typealias WorkQueue = Deque<WorkItem>

extension Deque where Element == WorkItem {
    /// Greater than any other when the queue is empty.
    @inline(__always) var firstSequence: UInt64 { withFirst { $0.sequence } ?? .max }
}
