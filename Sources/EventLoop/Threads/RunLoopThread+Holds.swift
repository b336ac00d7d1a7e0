import Synchronization

extension RunLoopThread {
    /// Delays the end of a thread that is stopping, until `release()`.
    ///
    /// While there is a hold, the thread runs its loop, and the loop accepts work: an answer that a task owes can still reach the C library with
    /// `perform`. `teardown` comes after the last release, or when the drain limit has passed. What a thread queues before it releases a hold is
    /// performed before `teardown`. Releasing the object releases the hold. Thread-safe.
    public final class Hold: Sendable {
        private let loop: RunLoop
        private let isTaken: Atomic<Bool>

        fileprivate init(_ loop: RunLoop) {
            self.loop = loop
            isTaken = Atomic(loop.takeHold())
        }

        deinit { release() }
        /// Whether the hold delays the end: false once it is released, or if the loop already refused work when it was taken.
        public var isValid: Bool { isTaken.load(ordering: .acquiring) }
        /// No-op if already released.
        public func release() { if isTaken.exchange(false, ordering: .acquiringAndReleasing) { loop.releaseHold() } }
    }

    /// Takes a hold, which delays the thread's end: one for each request of a C library that is to be answered before it is freed. Thread-safe.
    public func hold() -> Hold { runLoop.holdThread() }
}

extension RunLoop {
    /// Takes a hold, which delays the end of the loop's `RunLoopThread`; on any other loop it has no effect. Thread-safe.
    public func holdThread() -> RunLoopThread.Hold { RunLoopThread.Hold(self) }
}
