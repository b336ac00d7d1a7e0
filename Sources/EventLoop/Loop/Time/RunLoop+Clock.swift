import Synchronization

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
            let request = PerformRequest(perform: {})
            let perform = request.perform
            let timer = Timer(
                date: deadline.nanoseconds, interval: 0, tolerance: (tolerance ?? .zero).saturatedNanoseconds, order: 0,
                endsWithLoop: true, label: "sleep of a task", site: CreationSite(#fileID, #line)
            ) { _ in perform() }
            await withTaskCancellationHandler {
                await withCheckedContinuation { (continuation: CheckedContinuation<Void, Never>) in
                    request.onCompletion { continuation.resume() }
                    if !loop.addSleep(timer, request) { request.workWasDropped() }
                }
            } onCancel: {
                request.cancel()
                timer.invalidate()
            }
            loop.forgetSleep(request)
            timer.invalidate()
            if request.wasDropped { throw RunLoopEnded() }
            if request.wasCancelled { throw CancellationError() }
        }
    }

    /// False when the loop has ended.
    fileprivate func addSleep(_ timer: Timer, _ request: PerformRequest) -> Bool {
        let isOpen = shared.withLock { shared in
            if shared.phase == .ended { return false }
            shared.sleeps[ObjectIdentifier(request)] = request
            return true
        }
        guard isOpen else { return false }
        // A timer that was cancelled meanwhile is refused; its request has been completed.
        return add(timer, forMode: .common) || !timer.isValid
    }

    fileprivate func forgetSleep(_ request: PerformRequest) {
        shared.withLockIfOwn { $0.sleeps[ObjectIdentifier(request)] = nil }
    }
}
