// Waiting for the end of a thread.

extension RunLoopThread {
    /// Blocks until the thread has ended. Returns false if `timeout` (real time) passes first. Calling it on the thread itself is a
    /// precondition failure, because the thread would wait for itself. In a child of fork the thread does not exist, and `join` returns
    /// true at once. Async code has a form that suspends.
    @available(*, noasync, message: "join blocks the thread; write `await join(timeout:)`, which suspends the task")
    @discardableResult
    public func join(timeout: Duration? = nil) -> Bool {
        if runLoop.belongsToParentProcess { return true }
        precondition(!runLoop.isCurrent, "a run loop thread cannot join itself; call join from another thread, or stop() to end this one")
        return threadEnd.wait(until: timeout.map { RunLoop.Instant.now.advanced(by: $0) })
    }

    /// Suspends the task until the thread has ended. Returns false if `timeout` (real time) passes or the task is cancelled first; the
    /// thread continues as if nobody had waited.
    ///
    /// Any number of tasks may wait, and none of them occupies a thread. A task on the thread's own loop may wait, too: it resumes on the
    /// thread for ended loops. In a child of fork returns true at once. Thread-safe.
    @discardableResult
    public func join(timeout: Duration? = nil) async -> Bool {
        if runLoop.belongsToParentProcess { return true }
        return await threadEnd.suspend(until: timeout.map { RunLoop.Instant.now.advanced(by: $0) })
    }
}
