// The two parts of a loop's state that are not for every thread: under the lock, and the owner's own.

import Synchronization

/// The state of a loop that other threads may change. Under the lock only, never across a callout.
struct LoopShared: ~Copyable, Sendable {
    enum Phase: Sendable {
        case open
        /// The loop's thread was stopped: what was accepted is still performed, nothing more is accepted.
        case closing
        case ended
    }

    var phase = Phase.open
    var drain = Drain()
    let modes: ModeTable
    /// The loop holds its sources and timers here; observers are in their modes.
    var sources = UnorderedBag<SourceMembership>()
    var timers = UnorderedBag<RunLoop.Timer>()
    /// Observers that were added to the common modes; the others follow from their modes.
    var commonObservers: ContiguousArray<RunLoop.Observer> = []
    var changes = ChangeQueue()
    var jobs = JobQueue()
    var sleeps = SleepingTasks()
    var released = ReleaseQueue()
    var delayed = DelayedPerforms()
    /// The place in line of the closure that was queued last.
    private(set) var lastWork: UInt64 = 0

    init(_ modes: ModeTable) { self.modes = modes }

    /// A place in line for a closure.
    @inline(__always)
    mutating func nextWork() -> UInt64 {
        lastWork += 1
        return lastWork
    }
}

/// The state of a loop that only its own thread touches.
///
/// No access spans a callout, so the run-time check for overlapping accesses would only cost: it was a quarter of a pass's instructions.
final class LoopOwned {
    @exclusivity(unchecked) var pending = PendingWork()
    @exclusivity(unchecked) var modeHistory = ModeHistory()
    @exclusivity(unchecked) var changeBatch = ChangeBatch()
    @exclusivity(unchecked) var ended = EndedItems()
    /// Sources that this thread is serving, once for each use of them that ends after the call.
    @exclusivity(unchecked) var endingUses: [RunLoop.Source] = []
    @exclusivity(unchecked) var jobs = JobRunner()
    @exclusivity(unchecked) var mainQueue = MainQueue()
    @exclusivity(unchecked) var hosting = Hosting()
    @exclusivity(unchecked) var messageSteps = MessageSteps()
    @exclusivity(unchecked) var finishedRuns = FinishedRuns()
    /// A timer was filed while it was firing, perhaps on another loop's thread.
    @exclusivity(unchecked) var timersFireOutside = false
    /// Nil while nobody observes the callouts. Borrowed: the loop holds it to its end.
    @exclusivity(unchecked) var observation: Unmanaged<Observation>?
    /// How often an observation has begun or ended.
    @exclusivity(unchecked) var observationCount: UInt32 = 0
    /// Emptied by the step that performs blocks, and kept for its memory.
    @exclusivity(unchecked) var spareBlocks = WorkQueue()
    /// The sources that were found ready in a mode without a base.
    @exclusivity(unchecked) var polled = PolledSources()
}
