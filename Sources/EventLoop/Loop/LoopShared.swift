// What a loop's lock guards, and what its thread owns.

import Synchronization

/// The state of a loop that other threads may change. Under the lock only, never across a callout.
struct LoopShared: ~Copyable, Sendable {
    enum Phase: Sendable {
        case open
        /// The loop's thread was told to end: what was accepted is still performed, nothing more is accepted.
        case closing
        case ended
    }

    var phase = Phase.open
    /// Every mode that was ever made, by index.
    private(set) var modes: ContiguousArray<ModeState> = []
    /// The same, to be lent.
    private var modeTable = PlainList<Unmanaged<ModeState>>()
    var commonModes: Set<RunLoop.Mode> = [.default]
    /// The loop holds its sources and timers here; observers stand in their modes.
    var sources = UnorderedBag<SourceMembership>()
    var timers = UnorderedBag<RunLoop.Timer>()
    /// Observers that were added to the common modes; the others follow from their modes.
    var commonObservers: ContiguousArray<RunLoop.Observer> = []
    /// What the owner must do before it waits next.
    var changes = LinkedQueue<LoopChange>()
    /// For the common modes; each mode has those that are for it.
    var blocks = WorkQueues()
    var performs = WorkQueues()
    /// How many places in queues closures with a ticket were put into or taken out of: tests look at how it grows.
    var workSteps = 0
    /// Jobs of actors and tasks, in the order in which they came. After the loop's end they wait here for `AfterEnd`.
    var jobs: ContiguousArray<QueuedJob> = []
    /// The loop's thread has performed its last job: those that come now are for `AfterEnd`.
    var jobsGoElsewhere = false
    var lastWork: UInt64 = 0
    /// Tasks that sleep on a timer of this loop, to be told when it ends.
    var sleeps: [ObjectIdentifier: PerformRequest] = [:]
    /// Values that the loop's thread must release: see `RunLoop.releaseOnThread`.
    var released: ContiguousArray<any LoopReleased> = []
    /// The loop's thread releases nothing more.
    var releasesElsewhere = false
    /// Delayed performs by their targets.
    var delayed: [ObjectIdentifier: [RunLoop.DelayedPerform]] = [:]

    func mode(_ name: RunLoop.Mode) -> ModeState? {
        // A handful of modes: comparing short strings beats hashing one.
        if name == .default { return modes.first }
        for mode in modes where mode.name == name { return mode }
        return nil
    }

    /// Lends a mode: modes live as long as their loop.
    @inline(__always)
    func lendMode(_ index: Int, _ body: (ModeState) -> Void) { modeTable[index]._withUnsafeGuaranteedRef(body) }

    mutating func makeMode(_ name: RunLoop.Mode) -> ModeState {
        if let mode = mode(name) { return mode }
        let mode = ModeState(name: name, index: modes.count, isCommon: commonModes.contains(name))
        modes.append(mode)
        modeTable.append(.passUnretained(mode))
        return mode
    }

    mutating func nextWork() -> UInt64 {
        lastWork += 1
        return lastWork
    }
}

/// What only the owning thread touches.
///
/// No access spans a callout, so the run-time check for overlapping accesses would only cost: it was a quarter of a pass's instructions.
final class LoopOwned {
    /// A copy of `LoopShared.modes`, as far as the owner has seen it.
    @exclusivity(unchecked) var modes: ContiguousArray<ModeState> = [] {
        didSet { if modes.count != modeTable.count { fillModeTable() } }
    }
    /// The same for those who need no hold on a mode: it lives as long as the loop.
    @exclusivity(unchecked) private(set) var modeTable = UnsafeMutableBufferPointer<Unmanaged<ModeState>>.allocate(capacity: 0)

    /// Lends one of the modes that the owner has seen.
    @inline(__always)
    func withMode<R>(_ index: Int, _ body: (ModeState) -> R) -> R { modeTable[index]._withUnsafeGuaranteedRef(body) }

    private func fillModeTable() {
        modeTable.deallocate()
        modeTable = .allocate(capacity: modes.count)
        _ = modeTable.initialize(from: modes.map { Unmanaged.passUnretained($0) })
    }

    deinit { modeTable.deallocate() }

    /// One for each level of nesting that there ever was; the first `depth` are in progress.
    @exclusivity(unchecked) var activations = UnorderedBag<Activation>()
    @exclusivity(unchecked) var depth = 0
    /// The only mode that has run since what is pending was noted; -1 when there were several.
    @exclusivity(unchecked) var lastModeIndex = -1
    /// Counts the changes of the mode that runs; the mode that ran last, -1 for several.
    @exclusivity(unchecked) var modeEpoch: UInt32 = 0
    @exclusivity(unchecked) var epochMode = -1
    /// Attention that was taken note of and not looked after yet.
    @exclusivity(unchecked) var pending = Attention()
    /// Performs for the common modes that were taken from under the lock and have not run yet.
    @exclusivity(unchecked) var commonPerforming = WorkQueue()
    @exclusivity(unchecked) var manualClock: RunLoop.ManualClock?
    @exclusivity(unchecked) var isApplyingChanges = false
    /// How many changes the batch in progress has left; nil before the first.
    @exclusivity(unchecked) var changesInBatch: Int?
    /// Sources that turned out not to be watchable while changes were applied.
    @exclusivity(unchecked) var failures: [(RunLoop.Source, RunLoop.SourceError)] = []
    /// Observers that have left the loop in their own call.
    @exclusivity(unchecked) var observersToEnd: [RunLoop.Observer] = []
    /// Items whose last use has ended; their last callouts are made at the next safe point.
    @exclusivity(unchecked) var finishing: ContiguousArray<FinishedItem> = []
    @exclusivity(unchecked) var isDrainingMainQueue = false
    /// What was found ready in a mode without a base.
    @exclusivity(unchecked) var polled = PolledSources()
    /// Dispatch has made the main queue's handle.
    @exclusivity(unchecked) var hasMainQueueHandle = false
    /// What step 9 has to look at although the wait does not tell of it.
    @exclusivity(unchecked) var owed = Owed()
    /// Emptied, and kept for their memory.
    @exclusivity(unchecked) var spareBlocks = WorkQueue()
    @exclusivity(unchecked) var spareJobs: ContiguousArray<QueuedJob> = []
    /// Counts the steps that have handed out messages.
    @exclusivity(unchecked) var messageStep: UInt64 = 0
    /// A job is on the stack: nested runs perform none.
    @exclusivity(unchecked) var isPerformingJobs = false
    /// When a pass that had only jobs to do last asked the kernel, in real time.
    @exclusivity(unchecked) var lastPoll: Int64 = 0
}

/// What the wait does not tell of.
struct Owed: OptionSet {
    let rawValue: UInt8
    /// The main queue's handle was read while the queue was being drained further out.
    static let mainQueueDrain = Owed(rawValue: 1 << 0)
    /// `Attention.messages` is pending, in a word that step 9 reads anyway.
    static let messages = Owed(rawValue: 1 << 1)
}

enum FinishedItem {
    case source(RunLoop.Source)
    case timer(RunLoop.Timer)
    case observer(RunLoop.Observer)
}

/// What the owner has to look at. Set by any thread, after the fact it tells of; taken by the owner, before it looks.
struct Attention: OptionSet {
    let rawValue: UInt32
    static let changes = Attention(rawValue: 1 << 0)
    static let signals = Attention(rawValue: 1 << 1)
    static let blocks = Attention(rawValue: 1 << 2)
    static let performs = Attention(rawValue: 1 << 3)
    /// `wakeUp()`, a stop, a mode that may be empty now, manual time that moved: nothing to look up, but no reason to sleep on.
    static let wake = Attention(rawValue: 1 << 4)
    static let finishing = Attention(rawValue: 1 << 5)
    static let jobs = Attention(rawValue: 1 << 6)
    /// A run of another mode has begun or ended: what waits in the queues may be for the present one.
    static let lookAgain = Attention(rawValue: 1 << 7)
    /// A port has messages that it had not before.
    static let messages = Attention(rawValue: 1 << 8)
    /// What may wait in queues: looked at when another mode begins or goes on.
    static let queues: Attention = [.changes, .signals, .blocks, .performs, .finishing, .jobs, .messages]
}

enum SleepState {
    static let working: UInt8 = 0
    static let asleep: UInt8 = 1
    /// Asleep, and the wake-up has been written.
    static let woken: UInt8 = 2
}

/// One run in progress. Kept for the next run at the same depth, as long as the loop lives.
final class Activation: Sendable {
    /// What `stop` does to the run: see `StopWord`. The only part that other threads touch.
    let stopWord = Atomic<UInt8>(StopWord.idle)

    // MARK: Owned by the loop's thread
    // SAFETY: each of these is touched on the owning thread only.

    // SAFETY: owning thread; modes live as long as their loop
    @exclusivity(unchecked) nonisolated(unsafe) var modeReference: Unmanaged<ModeState>?
    /// Set by every run before anything else; nil before the first.
    var mode: ModeState! {
        get { modeReference?.takeUnretainedValue() }
        set { modeReference = .passUnretained(newValue) }
    }
    @exclusivity(unchecked) nonisolated(unsafe) var limit = Int64.max  // SAFETY: owning thread
    @exclusivity(unchecked) nonisolated(unsafe) var returnsAfterSource = false  // SAFETY: owning thread
    @exclusivity(unchecked) nonisolated(unsafe) var pollsOnly = false  // SAFETY: owning thread
    /// The custom sources of the pass in progress, from `nextSignal` on.
    @exclusivity(unchecked) nonisolated(unsafe) var signals: ContiguousArray<SourceMembership> = []  // SAFETY: owning thread
    @exclusivity(unchecked) nonisolated(unsafe) var nextSignal = 0  // SAFETY: owning thread
    /// The due timers of the pass in progress, from `nextTimer` on.
    @exclusivity(unchecked) nonisolated(unsafe) var timers: ContiguousArray<RunLoop.Timer> = []  // SAFETY: owning thread
    @exclusivity(unchecked) nonisolated(unsafe) var nextTimer = 0  // SAFETY: owning thread
    /// A nested run has begun since the pass began to serve ready sources: what is left is not this pass's any more.
    @exclusivity(unchecked) nonisolated(unsafe) var lostItsBatch = false  // SAFETY: owning thread
    /// The run further out had been woken when this one began.
    @exclusivity(unchecked) nonisolated(unsafe) var outerWasWoken = false  // SAFETY: owning thread
}

enum StopWord {
    static let idle: UInt8 = 0
    static let running: UInt8 = 1
    static let stopRequested: UInt8 = 2
    static let isSticky: UInt8 = 4
}
