extension RunLoop.Port {
    /// Sends a message: appends it to the port's queue, and wakes the loops that the port is in.
    ///
    /// If the port is full and `deadline` is later than now, blocks the calling thread until there is room, the deadline passes (in real time,
    /// whatever clock the port's loops use), or the port becomes invalid. Otherwise, as with the default, tries once. Blocked senders get room in the
    /// order in which they came. A blocked call does not run the caller's loop: the handler of a port that only this loop serves should try once.
    ///
    /// - Throws: `.invalidPort` if the port is invalid or becomes so during the wait, `.sendTimedOut` if there was no room in time. In a child
    ///   process, `.invalidPort` also if a thread of the parent is using the port, or if the port is full and only the parent's loops serve it.
    ///
    /// Thread-safe. Takes one lock; no system call while the loop does not sleep or the queue has messages. May release the message if the port is
    /// invalid. Async functions call the form that suspends, top-level code this one. See `-[NSPort sendBeforeDate:…]`, `mach_msg`.
    public func send(_ message: RunLoop.PortMessage, before deadline: RunLoop.Instant = .distantPast) throws(RunLoop.PortError) {
        var outcome = queue.put(message)
        // Reads the clock only if the port is full and the caller would wait.
        if outcome == .full && deadline != .distantPast && deadline > .now {
            if isServedByParentProcessOnly { throw .invalidPort }
            outcome = queue.put(message, before: deadline)
        }
        try finishSending(outcome)
    }

    /// Sends a message, and suspends the task until there is room for it.
    ///
    /// Waiting tasks and threads get room in the order in which they came. If the task is cancelled, the call fails at once, as if its time had
    /// passed; if it was cancelled before, nothing is sent. With a deadline that has passed, tries once. A port makes no room while no loop runs it;
    /// pass a deadline if that may happen. Thread-safe.
    ///
    /// - Throws: `.invalidPort` if the port is invalid or becomes so during the wait, `.sendTimedOut` if there was no room before the deadline (in
    ///   real time) or the cancellation. In both cases the message is not sent.
    public func send(_ message: RunLoop.PortMessage, before deadline: RunLoop.Instant) async throws(RunLoop.PortError) {
        if Task.isCancelled { throw .sendTimedOut }
        var outcome = queue.put(message)
        if outcome == .full && deadline > .now {
            if isServedByParentProcessOnly { throw .invalidPort }
            let wait = TaskWait<Void>()
            let sender = WaitingSender(message) { wait.deliver(()) }
            guard queue.enqueue(sender) else { throw .invalidPort }
            await wait.outcome(until: deadline) { wait.deliver(()) }
            outcome = queue.withdraw(sender)
        }
        try finishSending(outcome)
    }

    @inline(__always) private func finishSending(_ outcome: PortQueue.EnqueueResult) throws(RunLoop.PortError) {
        switch outcome {
        case .first: notifyLoopsOfMessages()
        case .behind: break
        case .full: throw .sendTimedOut
        case .closed: throw .invalidPort
        }
    }

    /// Notifies the loops of the port, or those of its readers, that an empty queue has a message.
    func notifyLoopsOfMessages() {
        if hasHandler { return enqueueMessagesEverywhere() }
        for reader in readers { reader.source?.enqueueMessagesEverywhere() }
    }
}
