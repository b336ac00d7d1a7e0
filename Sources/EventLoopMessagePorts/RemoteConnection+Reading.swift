// Reading replies on a connection to a named port: which thread reads, and how the waiters get their results.

internal import CPlatform
internal import EventLoop
internal import EventLoopLibC

extension RemoteConnection {
    // MARK: A thread that waits

    private enum NextStep {
        case finish(ReplyWaiter.ReplyResult)
        case read
        case wait(Latch)
    }

    /// Blocks until the reply has arrived or the deadline has passed. Meanwhile it reads the connection if no other thread does.
    func awaitReply(_ waiter: ReplyWaiter, _ deadline: RunLoop.Instant) throws(RunLoop.PortError) -> [UInt8]? { /* DOES CALLOUT */
        switch state.withLock({ nextStep(waiter, &$0) }) {
        case .finish(let result): return try result.get()
        case .read: return try readUntilReply(waiter, deadline).get()
        case .wait(let latch):
            _ = latch.wait(until: deadline)
            // Nil means that this thread has become the reader.
            if let result = abandon(waiter, .replyTimedOut, unlessItMustRead: true) { return try result.get() }
            return try readUntilReply(waiter, deadline).get()
        }
    }

    private func nextStep(_ waiter: ReplyWaiter, _ state: inout State) -> NextStep {
        if let result = waiter.result { return .finish(result) }
        if state.reader == .engine && !state.engineIsReading && !state.isReadByEngine { state.reader = .nobody }
        if state.reader == .nobody {
            state.reader = .thread
            updateWatch(&state)
            return .read
        }
        let latch = Latch()
        waiter.latch = latch
        waiter.followerTicket = state.followers.appendForTicket(waiter)
        return .wait(latch)
    }

    /// Called by the reader.
    func readUntilReply(_ waiter: ReplyWaiter, _ deadline: RunLoop.Instant) -> ReplyWaiter.ReplyResult { /* DOES CALLOUT */
        var mayBlockInRead = true
        while true {  // ends: with the reply, the end of the connection, or the deadline
            if let result = state.withLock({ _ in waiter.result }) {
                stopReading()
                return result
            }
            switch receive(until: deadline, blockingInRead: mayBlockInRead) {
            case .received:
                if let error = deliver() { end(error) }
                if let result = state.withLock({ _ in waiter.result }) {
                    stopReading()
                    return result
                }
                // Replies to other requests may arrive without end.
                if RunLoop.Instant.now >= deadline { return abandonReading(waiter) }
            case .wouldBlock:
                // A signal may have ended the wait before the deadline.
                if RunLoop.Instant.now >= deadline { return abandonReading(waiter) }
            case .ended: end(.becameInvalid)
            case .failed(let error): end(named(error))
            }
            mayBlockInRead = false
        }
    }

    private func abandonReading(_ waiter: ReplyWaiter) -> ReplyWaiter.ReplyResult {
        let result = abandon(waiter, .replyTimedOut)
        stopReading()
        return result
    }

    /// Waits until there is something to read, at most until the deadline, and reads it.
    ///
    /// A blocking read is one system call less than a wait and a read. Its time limit is an option of the socket, which the kernel rounds
    /// up to its ticks: too coarse for a short wait. The option is set only when it changes, and holds for a single wait, which begins now.
    private func receive(until deadline: RunLoop.Instant, blockingInRead: Bool) -> FrameReceiver.ReceiveResult {
        let isLimited = deadline != .distantFuture
        let left = isLimited ? max(0, RunLoop.Instant.now.duration(to: deadline).saturatedNanoseconds) : -1
        if blockingInRead && (!isLimited || left > 100_000_000) {
            // Rounded up to 10 ms, so that callers with the same timeout need the same limit.
            let limit = isLimited ? min((left / 1_000_000 + 10) / 10 * 10, 1 << 40) : 0
            if limit != waitLimit {
                waitLimit = limit
                cplatform_limit_waiting(descriptor, limit)
            }
            return receiver.receive(from: descriptor, .blocking)
        }
        cplatform_await_readable(descriptor, left)
        return receiver.receive(from: descriptor)
    }

    /// The reading thread has its result. The engine reads from now on, or another waiting thread, or nobody.
    func stopReading() {
        var wakeUps = DeferredWakeUps()
        state.withLock { passReadingOn(&$0, &wakeUps) }
        wakeUps.performAll()
    }

    /// Called by the reader, under the lock.
    private func passReadingOn(_ state: inout State, _ wakeUps: inout DeferredWakeUps) {
        state.reader = .nobody
        if state.isInvalid { return }
        if state.isReadByEngine {
            // It completes the waiting threads too.
            state.reader = .engine
        } else if let next = state.followers.removeFirst() {
            state.reader = .thread
            next.mustRead = true
            wakeUps.open(next.latch)
        }
        updateWatch(&state)
    }

    /// The error of a receiver, which does not know the port's name.
    private func named(_ error: RunLoop.PortError) -> RunLoop.PortError {
        guard case .system(let operation, let errno) = error else { return error }
        return .system(operation: "\(operation) from the message port \(quoted(name))", errno: errno)
    }

    // MARK: The engine

    /// Called on the engine's thread with what the connection is ready for.
    func isReady(_ bits: Readiness) { /* DOES CALLOUT */
        // Replies first: a send may notice the end before the last of them is read.
        if !bits.isDisjoint(with: [.read, .closed, .broken]) { readOnEngine(bits) }
        if !bits.isDisjoint(with: [.write, .broken]) { sendQueued() }
    }

    private func readOnEngine(_ bits: Readiness) { /* DOES CALLOUT */
        let mayRead = state.withLock { state in
            if state.isInvalid { return false }
            if state.reader == .thread {
                // The reading thread notices the end itself. If the engine kept watching, it would spin.
                if !bits.isDisjoint(with: [.closed, .broken]) { forgetWatch(&state) }
                return false
            }
            state.reader = .engine
            state.engineIsReading = true
            return true
        }
        if !mayRead { return }
        if let error = readAvailable() { end(error) }
        var wakeUps = DeferredWakeUps()
        state.withLock { state in
            state.engineIsReading = false
            if !state.isReadByEngine { passReadingOn(&state, &wakeUps) } else { updateWatch(&state) }
        }
        wakeUps.performAll()
    }

    /// Returns an error if the connection has to end.
    private func readAvailable() -> RunLoop.PortError? { /* DOES CALLOUT */
        // Bounded, so that one connection does not starve the others.
        for _ in 0..<64 {
            switch receiver.receive(from: descriptor) {
            case .received: if let error = deliver() { return error }
            case .wouldBlock: return nil
            case .ended: return .becameInvalid
            case .failed(let error): return named(error)
            }
        }
        return nil
    }

    // MARK: Replies

    /// Completes the waiters whose replies are complete. Returns an error if the connection has to end. Called by the reader.
    private func deliver() -> RunLoop.PortError? { /* DOES CALLOUT */
        while true {  // ends: each iteration takes a frame out of the buffer
            let next: (frame: Frame, passed: RunLoop.PassedDescriptors)?
            do { next = try receiver.next() } catch { return error }
            guard let (frame, _) = next else { return nil }
            let result: ReplyWaiter.ReplyResult
            switch frame.kind {
            case .reply: result = .success(frame.body)
            case .emptyReply: result = .success(nil)
            case .refusal:
                guard let error = Refusal.error(frame) else { return .protocolViolation("received a refusal of unknown kind \(frame.id)") }
                result = .failure(error)
            case .message, .request: return .protocolViolation("received a request from a server")
            }
            var wakeUps = DeferredWakeUps()
            let isEarly = state.withLock { state -> Bool in
                guard let waiter = state.waiters[frame.conversation] else {
                    if state.abandonedReplies > 0 { state.abandonedReplies -= 1 }
                    return false
                }
                // The descriptors of the request are still to be sent, and a caller that has its reply may close them.
                if let unsent = waiter.unsent, !unsent.isFinished { return true }
                removeWaiter(waiter, &state)
                wakeUps.complete(waiter, result)
                return false
            }
            wakeUps.performAll()
            if isEarly { return .protocolViolation("received the reply to a request that is not sent yet") }
        }
    }

    /// Returns false if the waiter is not registered. Called under the lock.
    @discardableResult
    func removeWaiter(_ waiter: ReplyWaiter, _ state: inout State) -> Bool {
        guard state.waiters.removeValue(forKey: waiter.conversation) != nil else { return false }
        if !waiter.isThread { state.passiveWaiters -= 1 }
        if let ticket = waiter.followerTicket { state.followers.remove(ticket) }
        return true
    }

    /// Completes the waiter with `error` if it has no result yet. Returns its result.
    @discardableResult
    func abandon(_ waiter: ReplyWaiter, _ error: RunLoop.PortError) -> ReplyWaiter.ReplyResult {
        abandon(waiter, error, unlessItMustRead: false)!  // nil only if it may be the reader
    }

    /// Completes the waiter with `error` if it has no result yet. Returns nil if the waiter's thread has become the reader and
    /// `unlessItMustRead`. One step under the lock: otherwise the thread could become the reader between the check and the completion, and
    /// nobody would ever read.
    func abandon(_ waiter: ReplyWaiter, _ error: RunLoop.PortError, unlessItMustRead: Bool) -> ReplyWaiter.ReplyResult? {
        var wakeUps = DeferredWakeUps()
        let result = state.withLock { state -> ReplyWaiter.ReplyResult? in
            if let result = waiter.result { return result }
            if unlessItMustRead && waiter.mustRead { return nil }
            var error = error
            if removeWaiter(waiter, &state) {
                if let unsent = waiter.unsent, !unsent.isFinished {
                    cancel(unsent, &state)
                    error = .sendTimedOut
                } else {
                    state.abandonedReplies += 1
                    if state.reader == .nobody { state.reader = .engine }
                    updateWatch(&state)
                }
            }
            wakeUps.complete(waiter, .failure(error))
            return .failure(error)
        }
        wakeUps.performAll()
        return result
    }
}
