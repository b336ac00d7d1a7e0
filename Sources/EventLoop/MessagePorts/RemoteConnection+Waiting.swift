// Waiting for a reply without blocking: by running a loop, or as a task.

extension RemoteConnection {
    /// Runs the caller's loop in `mode` until the reply has come.
    func runUntilReply(
        _ waiter: ReplyWaiter, _ source: RunLoop.CustomSource, _ loop: RunLoop, _ mode: RunLoop.Mode, _ timeout: Duration
    ) throws(RunLoop.PortError) -> [UInt8]? { /* DOES CALLOUT */
        let deadline = loop.now().advanced(by: timeout)
        loop.add(source, forMode: mode)
        defer { source.invalidate() }
        while true {  // ends: with the reply, the end of the connection, or the deadline
            if let outcome = state.withLock({ _ in waiter.outcome }) { return try outcome.get() }
            let result = loop.run(mode, limit: timeout <= .zero ? .min : deadline.nanoseconds, returnsAfterSource: true)
            if let outcome = state.withLock({ _ in waiter.outcome }) { return try outcome.get() }
            // The loop ends, and runs no more: its thread has nothing else to do than to wait.
            if loop.isOver || result == .finished {
                return try waitWithoutLoop(waiter, until: .now.advanced(by: loop.now().duration(to: deadline))).get()
            }
            if result == .timedOut || loop.now() >= deadline { return try giveUp(waiter, .replyTimedOut).get() }
        }
    }

    /// In real time, whatever the clock of the loop: nothing moves a clock of tests for a loop that has ended.
    private func waitWithoutLoop(_ waiter: ReplyWaiter, until deadline: RunLoop.Instant) -> ReplyWaiter.Outcome {
        let gate = Gate()
        let isOver = state.withLock { _ in
            waiter.gate = gate
            return waiter.outcome != nil
        }
        if !isOver { _ = gate.wait(until: deadline) }
        return giveUp(waiter, .replyTimedOut)
    }

    /// Suspends until the reply has come.
    func requestOfTask(
        id: Int32, data: [UInt8], descriptors: [Int32], deadline: RunLoop.Instant
    ) async throws(RunLoop.PortError) -> [UInt8]? {
        try check(data, descriptors)
        if Task.isCancelled { throw .sendTimedOut }
        let waiter = ReplyWaiter(.task)
        switch state.withLock({ beginRequest(waiter, id, data, descriptors, gate: nil, &$0) }) {
        case .whole, .partly: break
        case .failed(let error): throw error
        case .ended:
            end(.becameInvalid)
            throw .invalidPort
        }
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
