extension RunLoop {
    /// The loop's time as a clock for tasks. Thread-safe.
    public var clock: Clock { Clock(loop: self) }

    /// A clock whose sleeps are timers of one run loop, in its common modes: they end only while it runs in one. They follow a `ManualClock`.
    public struct Clock: _Concurrency.Clock {
        let loop: RunLoop
        /// The present in the loop's time. Thread-safe.
        public var now: Instant { loop.now() }
        /// One nanosecond: sleeps end when the kernel's timer does.
        public var minimumResolution: Swift.Duration { .nanoseconds(1) }

        /// Suspends until `deadline`, at most `tolerance` longer when the loop is free. Cancelled, it throws `CancellationError` at once, and the
        /// timer is gone. Throws `RunLoopEnded` when the loop's thread exits first.
        public func sleep(until deadline: Instant, tolerance: Swift.Duration? = nil) async throws {
            try Task.checkCancellation()
            let end = TaskWait<Result<Void, any Error>>()
            let timer = makeTimer(until: deadline, (tolerance ?? .zero).saturatedNanoseconds, ending: end)
            let outcome = await end.outcome(until: nil) {
                end.deliver(.failure(CancellationError()))
                timer.invalidate()
            }
            timer.invalidate()
            try outcome.get()
        }

        /// The timer of a sleep. A function of its own, so that only the timer retains its handler: its release ends the sleep if the loop has ended.
        private func makeTimer(until deadline: Instant, _ tolerance: Int64, ending end: TaskWait<Result<Void, any Error>>) -> Timer {
            let loopEnd = ReleaseNotifier { end.deliver(.failure(RunLoopEnded())) }
            let timer = Timer(
                date: deadline.nanoseconds, tolerance: tolerance, endsWithLoop: true, label: "sleep of a task",
                site: CreationSite(#fileID, #line)
            ) { _ in withExtendedLifetime(loopEnd) { end.deliver(.success(())) } }
            if !loop.isValid || !loop.add(timer, forMode: .common) { timer.invalidate() }
            return timer
        }
    }
}
