import Synchronization

extension RunLoop {
    /// Counters since the loop was made. Thread-safe; the values are read one after another.
    public var statistics: Statistics {
        var statistics = counters.statistics
        statistics.slowest = observation.load()?.slowest.list() ?? []
        statistics.loopID = id
        return statistics
    }

    /// Two of the counters, for a thread that asks whether the loop makes progress. Thread-safe.
    package var passesAndWaits: (passes: UInt64, waits: UInt64) { (counters.passes.current, counters.waits.current) }

    /// What a loop has done since it was made. A value: taken once, it does not change.
    public struct Statistics: Sendable, Hashable {
        /// Passes (steps 2 to 9), how often the thread slept, and how often another thread woke it.
        public var passes: UInt64, waits: UInt64, wakeUps: UInt64
        /// Handled sources (performs included), fired timers, performed blocks.
        public var sourcesHandled: UInt64, timersFired: UInt64, blocksPerformed: UInt64
        /// Jobs of actors and tasks that the loop has run: a job is a task's stretch between two suspensions.
        public var jobsPerformed: UInt64
        /// Real time asleep, real time at work inside runs, and the longest work between two sleeps. Work in progress counts up to the last poll.
        public var timeWaiting: Duration, timeWorking: Duration, longestPass: Duration
        /// How long the thread was away from the kernel between two polls, inside runs (and inside `HostedLoop.step()`): a descriptor that became
        /// ready waited at most that long. Real time. Always on.
        public var responseDelays = Histogram()
        /// How much later than its date each timer was called, in the loop's time. Always on.
        public var timerLateness = Histogram()
        /// Only the first reader of the list has the loop find it: timing each callout is a few per cent of the work of a busy loop.
        var slowest: [SlowCallout] = []
        var loopID: UInt64 = 0

        /// The longest callouts since the first read or `resetSlowestCallouts()`, slowest first, at most eight, one for each place of creation.
        ///
        /// The first read of this property has the loop time its callouts from then on, until it ends; before that the list is empty. Real time;
        /// nested runs are included. Callouts without a place of creation (jobs, the main queue) are one place for each kind.
        public var slowestCallouts: [SlowCallout] {
            if let loop = LoopRegistry.loop(loopID), loop.observation.load()?.wishes.withLock({ $0.wantsSlowest }) != true {
                loop.observationForWishes().wishes.withLock { $0.wantsSlowest = true }
                loop.notifyOfObservers()
            }
            return slowest
        }
    }

    /// Empties the list of the slowest callouts. Later callouts enter it again. Thread-safe.
    public func resetSlowestCallouts() { observation.load()?.slowest.reset() }
}

/// Raised by the owning thread, read by any.
struct Counters: ~Copyable, Sendable {
    let passes = Counter(), waits = Counter(), wakeUps = Counter()
    let sourcesHandled = Counter(), timersFired = Counter(), blocksPerformed = Counter(), jobsPerformed = Counter()
    let ticksWaiting = Counter()
    private let ticksWorking = Counter(), longestWork = Counter()
    /// Of the stretches between two polls of the kernel, in ticks.
    private let responseDelays = LiveHistogram()
    /// In nanoseconds of the loop's time.
    private let timerLateness = LiveHistogram(), latenessSum = Counter()
    /// When the owner last went to sleep, or came back, in ticks.
    let changedAt = Counter()
    private let polledAt = Counter()

    @inline(__always) borrowing func beginRunning(at now: UInt64 = TickClock.ticks) {
        changedAt.set(now)
        polledAt.set(now)
    }

    @inline(__always) borrowing func endWaiting() {
        let now = TickClock.ticks
        ticksWaiting.add(TickClock.passed(changedAt.current, now))
        beginRunning(at: now)
    }

    /// The owner polls the kernel without waiting. The time of the poll itself belongs to the next stretch.
    @inline(__always) borrowing func poll() { endStretch(TickClock.ticks) }

    @inline(__always) borrowing func fireTimer(late nanoseconds: Int64) {
        timersFired.increment()
        let lateness = UInt64(max(0, min(nanoseconds, 1 << 62)))
        timerLateness.record(lateness)
        latenessSum.add(lateness)
    }

    /// The owner is about to wait, or its outermost run has ended.
    @inline(__always) borrowing func endWork() {
        let now = TickClock.ticks
        let worked = TickClock.passed(changedAt.current, now)
        if worked > longestWork.current { longestWork.set(worked) }
        changedAt.set(now)
        endStretch(now)
    }

    /// The stretches between two polls are the work between two sleeps, so that the time of a loop that never sleeps is counted, too.
    @inline(__always) private borrowing func endStretch(_ now: UInt64) {
        let stretch = TickClock.passed(polledAt.current, now)
        ticksWorking.add(stretch)
        responseDelays.record(stretch)
        polledAt.set(now)
    }

    var statistics: RunLoop.Statistics {
        let unit = TickClock.nanosecondsPerTick
        func time(_ ticks: UInt64) -> Duration { .nanoseconds(Int64(clamping: Double(ticks) * unit)) }
        // The work in progress up to the last poll. The order is the reverse of the owner's, so that no sleep is taken for work.
        let polledAt = polledAt.current
        atomicMemoryFence(ordering: .acquiring)
        let present = TickClock.passed(changedAt.current, polledAt)
        return RunLoop.Statistics(
            passes: passes.current, waits: waits.current, wakeUps: wakeUps.current, sourcesHandled: sourcesHandled.current,
            timersFired: timersFired.current, blocksPerformed: blocksPerformed.current, jobsPerformed: jobsPerformed.current,
            timeWaiting: time(ticksWaiting.current), timeWorking: time(ticksWorking.current),
            longestPass: time(max(longestWork.current, present)),
            responseDelays: responseDelays.histogram(nanosecondsPerUnit: unit, sum: ticksWorking.current),
            timerLateness: timerLateness.histogram(nanosecondsPerUnit: 1, sum: latenessSum.current))
    }
}
