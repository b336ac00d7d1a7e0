extension RunLoop {
    /// The loop's time as a clock for tasks. Thread-safe.
    public var clock: Clock { Clock(loop: self) }

    /// A clock whose sleeps are timers of one run loop, with no thread of their own.
    ///
    /// A sleep is a timer in the common modes, so it ends only while the loop runs in one of them. If the loop uses a `ManualClock`, sleeps
    /// follow that clock.
    public struct Clock: _Concurrency.Clock {
        let loop: RunLoop

        /// The present in the loop's time. Thread-safe.
        public var now: Instant { loop.now() }

        /// One nanosecond: sleeps end when the kernel's timer does.
        public var minimumResolution: Swift.Duration { .nanoseconds(1) }

        /// Suspends until `deadline`, at most `tolerance` longer when the loop is free.
        ///
        /// Cancelled, it throws `CancellationError` at once, and the timer is gone. Throws `RunLoopEnded` when the loop's thread exits first.
        public func sleep(until deadline: Instant, tolerance: Swift.Duration? = nil) async throws {
            try Task.checkCancellation()
            let end = SleepEnd()
            let timer = Timer(
                date: deadline.nanoseconds, interval: 0, tolerance: (tolerance ?? .zero).saturatedNanoseconds, order: 0,
                endsWithLoop: true, label: "sleep of a task", site: CreationSite(#fileID, #line)
            ) { _ in end.deliver(.success(())) }
            let isOpen = loop.shared.withLock { shared in
                if shared.phase == .ended { return false }
                shared.sleeps[ObjectIdentifier(end)] = end
                return true
            }
            if !isOpen || !loop.add(timer, forMode: .common) { end.deliver(.failure(RunLoopEnded())) }
            let outcome = await end.outcome(until: nil) {
                end.deliver(.failure(CancellationError()))
                timer.invalidate()
            }
            loop.shared.withLockIfOwn { $0.sleeps[ObjectIdentifier(end)] = nil }
            timer.invalidate()
            try outcome.get()
        }
    }
}

/// Where a task that sleeps waits for its timer, its cancellation, or the end of the loop.
typealias SleepEnd = TaskWait<Result<Void, any Error>>
