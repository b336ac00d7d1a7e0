// Waiting for a reply without blocking: by running a loop, or as a task.

extension RemoteConnection {
    /// Runs the caller's loop in `mode` until the request has gone and its reply has come. The loop runs while there is no room too: whoever is
    /// to make room may be waiting for this loop, and may be this thread.
    func runUntilReply(
        _ waiter: ReplyWaiter, _ source: RunLoop.CustomSource, _ loop: RunLoop, _ mode: RunLoop.Mode, sendDeadline: RunLoop.Instant,
        replyTimeout: Duration
    ) throws(RunLoop.PortError) -> [UInt8]? { /* DOES CALLOUT */
        loop.add(source, forMode: mode)
        defer { source.invalidate() }
        if let outcome = runUntilSent(waiter, loop, mode, sendDeadline) { return try outcome.get() }
        let deadline = loop.now().advanced(by: replyTimeout)
        while true {  // ends: with the reply, the end of the connection, or the deadline
            if let outcome = state.withLock({ _ in waiter.outcome }) { return try outcome.get() }
            let result = loop.run(mode, limit: replyTimeout <= .zero ? .min : deadline.nanoseconds, returnsAfterSource: true)
            if let outcome = state.withLock({ _ in waiter.outcome }) { return try outcome.get() }
            // The loop ends, and runs no more: its thread has nothing else to do than to wait.
            if loop.isOver || result == .finished {
                return try waitWithoutLoop(waiter, until: .now.advanced(by: loop.now().duration(to: deadline))).get()
            }
            if result == .timedOut || loop.now() >= deadline { return try giveUp(waiter, .replyTimedOut).get() }
        }
    }

    /// Runs the loop until the request has gone. The outcome, if there is one before that.
    private func runUntilSent(
        _ waiter: ReplyWaiter, _ loop: RunLoop, _ mode: RunLoop.Mode, _ deadline: RunLoop.Instant
    ) -> ReplyWaiter.Outcome? { /* DOES CALLOUT */
        if hasGone(waiter) { return nil }
        // In real time, whatever the clock of the loop.
        let timer = RunLoop.Timer(fireAt: deadline, label: "room for a request") { [weak self] _ in self?.giveUpSending(waiter) }
        if deadline != .distantFuture { engine.runLoop.add(timer) }
        defer { timer.invalidate() }
        while !hasGone(waiter) {  // ends: with the last byte, the end of the connection, or the deadline
            if RunLoop.Instant.now >= deadline { giveUpSending(waiter) }
            if let outcome = state.withLock({ _ in waiter.outcome }) { return outcome }
            let result = loop.run(mode, limit: .max, returnsAfterSource: true)
            if loop.isOver || result == .finished { return waitForRoom(waiter, until: deadline) }
        }
        return nil
    }

    private func hasGone(_ waiter: ReplyWaiter) -> Bool { state.withLock { _ in waiter.unsent?.isOver ?? true } }

    /// Nothing when the request has gone meanwhile, or there is an outcome: one step, or a request that has gone could be said not to have.
    private func giveUpSending(_ waiter: ReplyWaiter) {
        var tidings = Tidings()
        state.withLock { state in
            guard let unsent = waiter.unsent, !unsent.isOver, removeWaiter(waiter, &state) else { return }
            withdraw(unsent, &state)
            tidings.finish(waiter, .failure(.sendTimedOut))
        }
        tidings.tell()
    }

    /// For a loop that runs no more: its thread blocks.
    private func waitForRoom(_ waiter: ReplyWaiter, until deadline: RunLoop.Instant) -> ReplyWaiter.Outcome? {
        let latch = Latch()
        let isOver = state.withLock { _ in
            waiter.unsent?.latch = latch
            waiter.latch = latch
            return waiter.outcome != nil || waiter.unsent?.isOver ?? true
        }
        if !isOver { _ = latch.wait(until: deadline) }
        giveUpSending(waiter)
        return state.withLock { _ in waiter.outcome }
    }

    /// In real time, whatever the clock of the loop: nothing moves a clock of tests for a loop that has ended.
    private func waitWithoutLoop(_ waiter: ReplyWaiter, until deadline: RunLoop.Instant) -> ReplyWaiter.Outcome {
        let latch = Latch()
        let isOver = state.withLock { _ in
            waiter.latch = latch
            return waiter.outcome != nil
        }
        if !isOver { _ = latch.wait(until: deadline) }
        return giveUp(waiter, .replyTimedOut)
    }

    /// Suspends until the reply has come.
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
                self?.giveUp(waiter, .replyTimedOut)
            }
            engine.runLoop.add(made)
            timer = made
        }
        let outcome = await withTaskCancellationHandler {
            await withCheckedContinuation { continuation in
                let outcome = state.withLock { _ in
                    if waiter.outcome == nil { waiter.continuation = continuation }
                    return waiter.outcome
                }
                if let outcome { continuation.resume(returning: outcome) }
            }
        } onCancel: {
            giveUp(waiter, .replyTimedOut)
        }
        timer?.invalidate()
        return try outcome.get()
    }
}
