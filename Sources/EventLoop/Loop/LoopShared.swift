/// The state of a loop that other threads may change. Under the lock only, never across a callout.
struct LoopShared: ~Copyable, Sendable {
    /// `closing`: the loop's thread was stopped. What was accepted is still performed, nothing more is accepted.
    enum Phase: Sendable { case open, closing, ended }

    var phase = Phase.open
    /// How often the loop has refused work since the stop of its thread was asked for, as far as that counts.
    var refusals: UInt32 = 0
    var threadName: String?
    var drain = Drain()
    let modes: ModeTable
    /// The loop holds its sources and timers here; observers are in their modes.
    var sources = UnorderedBag<SourceMembership>()
    var timers = UnorderedBag<RunLoop.Timer>()
    /// Observers that were added to the common modes; the others follow from their modes.
    var commonObservers: ContiguousArray<RunLoop.Observer> = []
    var changes = ChangeQueue()
    var jobs = JobQueue()
    var delayed: [ObjectIdentifier: [RunLoop.Timer]] = [:]
    private(set) var lastWork: UInt64 = 0

    init(_ modes: ModeTable) { self.modes = modes }

    @inline(__always) mutating func nextWork() -> UInt64 {
        lastWork += 1
        return lastWork
    }
}

/// The shared state of a loop, its lock, and the process that both belong to: a child of fork leaves its parent's loops alone (decision 24).
struct LockedLoop: ~Copyable, Sendable {
    private let lock: LoopLock<LoopShared>
    private let mark = ProcessMark()

    init(_ shared: consuming sending LoopShared) { lock = LoopLock(shared) }
    @inline(__always) var isOurs: Bool { mark.isOurs }

    @inline(__always) func preconditionOurs() {
        precondition(
            mark.isOurs,
            "this run loop was made before fork, and belongs to the parent process; fork before the first use of run loops, or use a new thread's loop in the child"
        )
    }

    /// Calls `body` under the lock. A precondition failure if the loop is the parent process's.
    @inline(__always) func withLock<R>(_ body: (inout LoopShared) -> R) -> R {
        preconditionOurs()
        return lock.withLock(body)
    }

    /// Calls `body` under the lock; nil, without taking the lock, if the loop is the parent process's.
    @inline(__always)
    @discardableResult
    func withLockIfOwn<R>(_ body: (inout LoopShared) -> R) -> R? { isOurs ? lock.withLock(body) : nil }

    /// As `LoopLock.lockValue`. A precondition failure if the loop is the parent process's.
    @inline(__always) func lockValue() -> UnsafeMutablePointer<LoopShared> {
        preconditionOurs()
        return lock.lockValue()
    }

    @inline(__always) func unlock() { lock.unlock() }
}

/// The state of a loop that only its own thread touches. A struct that cannot be copied, so every access is in place.
struct LoopOwned: ~Copyable {
    /// The bits that the owner has taken from the waker and not handled yet. Changed by `formUnion` and `subtract`, which need no branch.
    var pending = Attention()
    var modeHistory = ModeHistory()
    var changeBatch = ChangeBatch()
    /// Items whose last use has ended. Their last callouts come at the next safe point, one at a time: a run nested in one of them makes the others.
    var ended = Deque<FinishedItem>()
    /// Observers that have left the loop in their own call: their uses end when it returns, one for each entry.
    var observersInCall: [RunLoop.Observer] = []
    /// Sources that this thread is serving, once for each use of them that ends after the call.
    var endingUses: [RunLoop.Source] = []
    /// The ticket of the innermost closure that is being performed.
    var performing: Unmanaged<WorkTicket>?
    var jobs = JobRunner()
    var passEnds = Deque<any PassEndListener>()
    var mainQueue = MainQueue()
    var hosting = Hosting()
    /// The manual clocks that the loop goes by, or has gone by before.
    var clocks: [RunLoop.ManualClock] = []
    /// How many steps have delivered messages: a port has one turn in each.
    var messageSteps: UInt64 = 0
    var finishedRuns = FinishedRuns()
    var remains = LoopRemains()
    var atEnd: (() -> Void)?
    /// A timer was filed while it was firing, perhaps on another loop's thread.
    var timersFireOutside = false
    /// Nil while nobody observes the callouts.
    var observation: Borrowed<Observation>?
    var observationCount: UInt32 = 0
    /// Emptied by the step that performs blocks, and kept for its memory.
    var spareBlocks = WorkQueue()
    var polled = PolledSources()
}
