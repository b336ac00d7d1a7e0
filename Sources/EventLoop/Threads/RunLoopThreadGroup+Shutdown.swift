extension RunLoopThreadGroup {
    /// Stops and joins every thread. While a thread is stuck in a handler or waits for holds, reports it on standard error every ten seconds.
    /// On a member thread it is a precondition failure. Async code has a form that suspends; top-level code calls this one, as it does `join`.
    public func shutdown() { shutdown(reportingEvery: Self.reportInterval, writeToStandardError) }

    /// As `shutdown()`, but each thread waits for its holds no longer than `limit` (`RunLoopThread.stop(drainingFor:)`).
    public func shutdown(drainingFor limit: Duration) {
        preconditionOutside()
        for thread in threads { thread.stop(drainingFor: limit) }
        shutdown()
    }

    /// Stops every thread, and waits at most `timeout` (for all together, in real time). Returns the threads that have not ended.
    public func shutdown(timeout: Duration) -> [RunLoopThread] {
        preconditionOutside()
        stopAll()
        let deadline = RunLoop.Instant.now.advanced(by: timeout)
        return threads.filter { !$0.join(timeout: RunLoop.Instant.now.duration(to: deadline)) }
    }

    /// Like `shutdown()`, but calls `report` with the message each `interval` while a thread is stuck: for tests, which do not wait for so long.
    @available(*, noasync)
    package func shutdown(reportingEvery interval: Duration, _ report: (String) -> Void) { /* DOES CALLOUT */
        preconditionOutside()
        stopAll()
        for thread in threads {
            // Ends when the handler returns or the draining is over; until then it is reported.
            while !thread.join(timeout: interval) { report(Self.complaint(thread)) }
        }
    }

    private func preconditionOutside() {
        precondition(
            !threads.contains { $0.runLoop.isCurrent },
            "shutdown joins the group's threads, so it cannot be called on one of them; call it from another thread")
    }

    // MARK: For tasks
    /// Stops every thread, and suspends the task until all have ended. Reports stuck threads as the form that blocks does.
    ///
    /// If the task is cancelled, also before the call, returns false at once; the threads have been stopped by then, and end on their own. The task
    /// may be on a member thread's loop; it resumes on the thread for ended loops.
    @discardableResult
    public func shutdown() async -> Bool { await shutdown(reportingEvery: Self.reportInterval, writeToStandardError) }

    /// As `shutdown()`, but each thread waits for its holds no longer than `limit` (`RunLoopThread.stop(drainingFor:)`).
    @discardableResult
    public func shutdown(drainingFor limit: Duration) async -> Bool {
        for thread in threads { thread.stop(drainingFor: limit) }
        return await shutdown()
    }

    /// Stops every thread, and suspends the task until all have ended, or `timeout` (for all together, in real time) has passed, or the task is
    /// cancelled. Returns the threads that have not ended.
    public func shutdown(timeout: Duration) async -> [RunLoopThread] {
        stopAll()
        let deadline = RunLoop.Instant.now.advanced(by: timeout)
        var left: [RunLoopThread] = []
        for thread in threads where !(await thread.join(timeout: RunLoop.Instant.now.duration(to: deadline))) { left.append(thread) }
        return left
    }

    /// The async form of the one for tests.
    @discardableResult
    package func shutdown(reportingEvery interval: Duration, _ report: @Sendable (String) -> Void) async -> Bool { /* DOES CALLOUT */
        stopAll()
        for thread in threads {
            // Ends when the handler returns, the draining is over or the task is cancelled; until then it is reported.
            while !(await thread.join(timeout: interval)) {
                if Task.isCancelled { return false }
                report(Self.complaint(thread))
            }
        }
        return true
    }

    // MARK: Parts of both
    private func stopAll() { for thread in threads { thread.stop() } }
    private static var reportInterval: Duration { .seconds(10) }

    private static func complaint(_ thread: RunLoopThread) -> String {
        let holds = thread.runLoop.holdsThatDelayTheEnd
        let obstacle = holds.map { "waits for \($0) hold\($0 == 1 ? "" : "s")" } ?? "is still in a handler"
        return "run loop thread \"\(thread.name)\" was asked to stop and \(obstacle)\n"
    }
}
