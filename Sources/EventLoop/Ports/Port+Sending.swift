// Sending messages to a port. Loop/RunLoop+Messages.swift delivers them.

extension RunLoop.Port {
    /// Sends a message: puts it at the end of the port's queue, and wakes the loops that the port is in.
    ///
    /// With a `deadline` that is now or past it tries once. With a later one it blocks the calling thread until there is room, the deadline
    /// (real time, whatever clock the port's loops use), or the port's end; those who wait are served in the order in which they came. It
    /// does not run the caller's loop. A full port whose only loop is the caller's own therefore gets no room meanwhile: the handler of
    /// such a port should try once.
    ///
    /// - Throws: `.invalidPort` when the port is invalid or becomes so in the wait, `.sendTimedOut` when there was no room in time. In a child
    ///   of fork `.invalidPort` also when the port was in use by another thread at the fork, or is full and only loops of the parent's serve it.
    ///
    /// Thread-safe. One lock section and no system call while the loop works or the queue has messages. May let go of the message, when
    /// the port ends. See `-[NSPort sendBeforeDate:…]`, `mach_msg`.
    public func send(_ message: RunLoop.PortMessage, before deadline: RunLoop.Instant = .now) throws(RunLoop.PortError) {
        var outcome = queue.put(message)
        if outcome == .full && deadline > .now {
            // The only loops that could make room are in another process.
            if isServedByParentProcessOnly { throw .invalidPort }
            outcome = queue.put(message, before: deadline)
        }
        try finishSending(outcome)
    }

    /// Sends a message if there is room: the same, without a deadline, and without the clock that a default of now reads.
    ///
    /// - Throws: `.invalidPort`, `.sendTimedOut`.
    public func send(_ message: RunLoop.PortMessage) throws(RunLoop.PortError) {
        try finishSending(queue.put(message))
    }

    @inline(__always)
    private func finishSending(_ outcome: PortQueue.EnqueueResult) throws(RunLoop.PortError) {
        switch outcome {
        case .first: notifyLoopsOfMessages()
        case .behind: break
        case .full: throw .sendTimedOut
        case .closed: throw .invalidPort
        }
    }

    private var isServedByParentProcessOnly: Bool {
        if ForkEpoch.current == 0 { return false }
        let memberships = state.withLockUnlessInherited { $0.memberships }
        return memberships.map { !$0.isEmpty && $0.allSatisfy { $0.loop.belongsToParentProcess } } ?? true
    }

    /// Tells the loops of the port, and those of its readers, that there are messages where there were none.
    func notifyLoopsOfMessages() {
        if hasHandler { return noteMessagesEverywhere() }
        for reader in readers.withLockUnlessInherited({ $0 }) ?? [] { reader.source?.noteMessagesEverywhere() }
    }
}
