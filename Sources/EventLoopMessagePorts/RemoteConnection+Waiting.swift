// Waiting for a reply without blocking the thread: by running a loop, or as a task.

internal import EventLoop

extension RemoteConnection {
    /// Runs the caller's loop in `mode` until the request is sent and its reply has arrived.
    ///
    /// The loop also runs while there is no room for the request: the server may be waiting for this loop, or be served by this thread.
    func runUntilReply(
        _ waiter: ReplyWaiter, _ source: RunLoop.CustomSource, _ loop: RunLoop, _ mode: RunLoop.Mode, sendDeadline: RunLoop.Instant,
        replyTimeout: Duration
    ) throws(RunLoop.PortError) -> [UInt8]? { /* DOES CALLOUT */
        let depth = loop.runDepth + 1
        let observer = RunLoop.Observer(activities: .exit, label: "reply") { [weak self] _, _ in
            if loop.runDepth > depth { self?.wakeAgain(waiter) }
        }
        loop.add(observer, forMode: mode)
        loop.add(source, forMode: mode)
        defer {
            source.invalidate()
            observer.invalidate()
        }
        if let result = runUntilSent(waiter, loop, mode, sendDeadline) { return try result.get() }
        state.withLock { _ in waiter.unsent = nil }
        let deadline = loop.now().advanced(by: replyTimeout)
        while true {  // ends: with the reply, the end of the connection, or the deadline
            if let result = state.withLock({ _ in waiter.result }) { return try result.get() }
            let runResult = loop.run(mode, limit: replyTimeout <= .zero ? .min : deadline.nanoseconds, returnsAfterSource: true)
            if let result = state.withLock({ _ in waiter.result }) { return try result.get() }
            // The loop has ended and does not run any more, so its thread blocks.
            if loop.isOver || runResult == .finished {
                block(waiter, until: .now.advanced(by: loop.now().duration(to: deadline)))
                return try abandon(waiter, .replyTimedOut).get()
            }
            if runResult == .timedOut || loop.now() >= deadline { return try abandon(waiter, .replyTimedOut).get() }
        }
    }

    /// A nested run in the same mode has ended. It may have performed the source, so this signals the source again for the run that waits.
    private func wakeAgain(_ waiter: ReplyWaiter) {
        var wakeUps = DeferredWakeUps()
        state.withLock { _ in
            if waiter.result != nil || waiter.unsent?.isFinished == true { wakeUps.wake(waiter.kind) }
        }
        wakeUps.performAll()
    }

    /// Runs the loop until the request is sent. Returns the result if there is one before that.
    private func runUntilSent(
        _ waiter: ReplyWaiter, _ loop: RunLoop, _ mode: RunLoop.Mode, _ deadline: RunLoop.Instant
    ) -> ReplyWaiter.ReplyResult? { /* DOES CALLOUT */
        if isSent(waiter) { return nil }
        // In real time, whatever clock the loop has.
        let timer = RunLoop.Timer(fireAt: deadline, label: "room for a request") { [weak self] _ in self?.abandonSending(waiter) }
        if deadline != .distantFuture { engine.runLoop.add(timer) }
        defer { timer.invalidate() }
        while !isSent(waiter) {  // ends: with the last byte, the end of the connection, or the deadline
            if RunLoop.Instant.now >= deadline { abandonSending(waiter) }
            if let result = state.withLock({ _ in waiter.result }) { return result }
            let runResult = loop.run(mode, limit: .max, returnsAfterSource: true)
            if loop.isOver || runResult == .finished {
                block(waiter, until: deadline)
                abandonSending(waiter)
                return state.withLock { _ in waiter.result }
            }
        }
        return nil
    }

    private func isSent(_ waiter: ReplyWaiter) -> Bool { state.withLock { _ in waiter.unsent?.isFinished ?? true } }

    /// Completes the waiter with `.sendTimedOut`. No-op if the request is sent or the waiter has a result. One step under the lock:
    /// otherwise a request could be sent between the check and the cancellation.
    private func abandonSending(_ waiter: ReplyWaiter) {
        var wakeUps = DeferredWakeUps()
        state.withLock { state in
            guard let unsent = waiter.unsent, !unsent.isFinished, removeWaiter(waiter, &state) else { return }
            cancel(unsent, &state)
            wakeUps.complete(waiter, .failure(.sendTimedOut))
        }
        wakeUps.performAll()
    }

    /// Blocks until the request is sent, or if it is, until the reply has arrived: for a thread whose loop does not run any more. In real time,
    /// whatever clock the loop has: nothing advances the manual clock of a loop that has ended.
    private func block(_ waiter: ReplyWaiter, until deadline: RunLoop.Instant) {
        let latch = Latch()
        let isFinished = state.withLock { _ in
            waiter.unsent?.latch = latch
            waiter.latch = latch
            return waiter.result != nil || waiter.unsent?.isFinished == true
        }
        if !isFinished { _ = latch.wait(until: deadline) }
    }

    /// Sends a request and suspends the task until the reply has arrived.
    func requestOfTask(
        id: Int32, data: [UInt8], descriptors: [Int32], deadline: RunLoop.Instant
    ) async throws(RunLoop.PortError) -> [UInt8]? {
        try check(data, descriptors)
        if Task.isCancelled { throw .sendTimedOut }
        let waiter = ReplyWaiter(.task)
        try startRequest(waiter, id: id, data: data, descriptors: descriptors)
        var timer: RunLoop.Timer?
        if deadline != .distantFuture {
            let made = RunLoop.Timer(fireAt: deadline, label: "reply to a task") { [weak self] _ in
                self?.abandon(waiter, .replyTimedOut)
            }
            engine.runLoop.add(made)
            timer = made
        }
        let result = await withTaskCancellationHandler {
            await withCheckedContinuation { continuation in
                let result = state.withLock { _ in
                    if waiter.result == nil { waiter.continuation = continuation }
                    return waiter.result
                }
                if let result { continuation.resume(returning: result) }
            }
        } onCancel: {
            abandon(waiter, .replyTimedOut)
        }
        timer?.invalidate()
        return try result.get()
    }
}
