// Waiting for the end of a thread.

extension RunLoopThread {
    /// Blocks until the thread has ended. Returns false if `timeout` (real time) passes first. Calling it on the thread itself is a
    /// precondition failure, because the thread would wait for itself. Async code has a form that suspends, and the compiler
    /// prefers that in async functions. In the top-level code of `main.swift` it takes this one, even behind `await`, so it must be allowed
    /// there; it warns then, and the main thread waits.
    @discardableResult
    public func join(timeout: Duration? = nil) -> Bool {
        precondition(!runLoop.isCurrent, "a run loop thread cannot join itself; call join from another thread, or stop() to end this one")
        return threadEnd.wait(until: timeout.map { RunLoop.Instant.now.advanced(by: $0) })
    }

    /// Suspends the task until the thread has ended. Returns false if `timeout` (real time) passes or the task is cancelled first; the
    /// thread continues as if nobody had waited.
    ///
    /// Any number of tasks may wait, and none of them occupies a thread. A task on the thread's own loop may wait, too: it resumes on the
    /// thread for ended loops. Thread-safe.
    @discardableResult
    public func join(timeout: Duration? = nil) async -> Bool {
        await threadEnd.suspend(until: timeout.map { RunLoop.Instant.now.advanced(by: $0) })
    }
}
