// What a loop has done since it was made.

import Synchronization

extension RunLoop {
    /// Counters since the loop was made. Thread-safe; the values are read one after another.
    public var statistics: Statistics { counters.statistics }

    public struct Statistics: Sendable, Hashable {
        /// Passes (steps 2 to 9), how often the thread slept, and how often another thread woke it.
        public var passes: UInt64, waits: UInt64, wakeUps: UInt64
        /// Handled sources (performs included), fired timers, performed blocks.
        public var sourcesHandled: UInt64, timersFired: UInt64, blocksPerformed: UInt64
        /// Real time asleep, real time at work inside runs, and the longest stretch of work between two sleeps.
        public var timeWaiting: Duration, timeWorking: Duration, longestPass: Duration
    }
}

/// A number that one thread raises and any thread reads.
struct Counter: ~Copyable, Sendable {
    private let value = Atomic<UInt64>(0)
    var current: UInt64 { value.load(ordering: .relaxed) }

    /// Owning thread only: a load and a store, not a locked instruction.
    @inline(__always)
    borrowing func add(_ amount: UInt64) { value.store(value.load(ordering: .relaxed) &+ amount, ordering: .relaxed) }

    @inline(__always)
    borrowing func increment() { add(1) }

    @inline(__always)
    borrowing func set(_ new: UInt64) { value.store(new, ordering: .relaxed) }
}

/// Raised by the owning thread, read by any.
struct Counters: ~Copyable, Sendable {
    let passes = Counter(), waits = Counter(), wakeUps = Counter()
    let sourcesHandled = Counter(), timersFired = Counter(), blocksPerformed = Counter()
    private let nanosecondsWaiting = Counter(), nanosecondsWorking = Counter(), longestWork = Counter()
    /// When the present stretch of work or sleep began; zero outside any run.
    private let changedAt = Counter()

    borrowing func beginRunning() { changedAt.set(Self.now) }
    borrowing func endRunning() { endWork() }

    borrowing func beginWaiting() { endWork() }

    borrowing func endWaiting() {
        let now = Self.now
        nanosecondsWaiting.add(now &- changedAt.current)
        changedAt.set(now)
    }

    private borrowing func endWork() {
        let now = Self.now
        let worked = now &- changedAt.current
        changedAt.set(now)
        nanosecondsWorking.add(worked)
        if worked > longestWork.current { longestWork.set(worked) }
    }

    private static var now: UInt64 { UInt64(RunLoop.Instant.now.nanoseconds) }

    var statistics: RunLoop.Statistics {
        RunLoop.Statistics(
            passes: passes.current, waits: waits.current, wakeUps: wakeUps.current, sourcesHandled: sourcesHandled.current,
            timersFired: timersFired.current, blocksPerformed: blocksPerformed.current,
            timeWaiting: .nanoseconds(Int64(nanosecondsWaiting.current)), timeWorking: .nanoseconds(Int64(nanosecondsWorking.current)),
            longestPass: .nanoseconds(Int64(longestWork.current)))
    }
}
