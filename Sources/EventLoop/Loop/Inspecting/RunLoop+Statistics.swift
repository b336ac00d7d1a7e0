// Counters of a loop, since it was made.

internal import CPlatform
import Synchronization

extension RunLoop {
    /// Counters since the loop was made. Thread-safe; the values are read one after another.
    public var statistics: Statistics { counters.statistics }

    public struct Statistics: Sendable, Hashable {
        /// Passes (steps 2 to 9), how often the thread slept, and how often another thread woke it.
        public var passes: UInt64, waits: UInt64, wakeUps: UInt64
        /// Handled sources (performs included), fired timers, performed blocks.
        public var sourcesHandled: UInt64, timersFired: UInt64, blocksPerformed: UInt64
        /// Jobs of actors and tasks that the loop has run: a job is a task's stretch between two suspensions.
        public var jobsPerformed: UInt64
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
    let sourcesHandled = Counter(), timersFired = Counter(), blocksPerformed = Counter(), jobsPerformed = Counter()
    private let ticksWaiting = Counter(), ticksWorking = Counter(), longestWork = Counter()
    private let madeAt = (ticks: Self.now, instant: RunLoop.Instant.now.nanoseconds)
    /// When the present stretch of work or sleep began; zero outside any run.
    private let changedAt = Counter()

    borrowing func beginRunning() { changedAt.set(Self.now) }
    borrowing func endRunning() { endWork() }

    borrowing func beginWaiting() { endWork() }

    borrowing func endWaiting() {
        let now = Self.now
        ticksWaiting.add(Self.passed(changedAt.current, now))
        changedAt.set(now)
    }

    private borrowing func endWork() {
        let now = Self.now
        let worked = Self.passed(changedAt.current, now)
        changedAt.set(now)
        ticksWorking.add(worked)
        if worked > longestWork.current { longestWork.set(worked) }
    }

    /// Not negative, also on a machine whose processors' clocks disagree.
    @inline(__always)
    private static func passed(_ before: UInt64, _ now: UInt64) -> UInt64 { now > before ? now - before : 0 }

    /// In the processor's own units: two readings of a system clock were 30 ns of a pass that takes 1,000 with all its system calls.
    private static var now: UInt64 { cplatform_ticks() }

    var statistics: RunLoop.Statistics {
        // How long the processor's unit is, by what has passed since the loop was made.
        let ticks = Double(Self.passed(madeAt.ticks, Self.now))
        let unit = ticks > 0 ? Double(RunLoop.Instant.now.nanoseconds - madeAt.instant) / ticks : 0
        func time(_ ticks: borrowing Counter) -> Duration {
            .nanoseconds(Int64(exactly: (Double(ticks.current) * unit).rounded(.down)) ?? .max)
        }
        return RunLoop.Statistics(
            passes: passes.current, waits: waits.current, wakeUps: wakeUps.current, sourcesHandled: sourcesHandled.current,
            timersFired: timersFired.current, blocksPerformed: blocksPerformed.current, jobsPerformed: jobsPerformed.current,
            timeWaiting: time(ticksWaiting), timeWorking: time(ticksWorking), longestPass: time(longestWork))
    }
}
