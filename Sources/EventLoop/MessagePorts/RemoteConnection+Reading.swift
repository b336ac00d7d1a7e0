// Replies on a connection to a named port: who reads them, and who is told.

internal import CPlatform

#if canImport(Glibc)
import Glibc
#elseif canImport(Musl)
import Musl
#else
import Darwin
#endif

extension RemoteConnection {
    // MARK: A thread that waits

    private enum Turn {
        case over(ReplyWaiter.Outcome)
        case read
        case wait(Latch)
    }

    /// Blocks until the reply has come or the deadline has passed, and reads the connection meanwhile if nobody else does.
    func awaitReply(_ waiter: ReplyWaiter, _ deadline: RunLoop.Instant) throws(RunLoop.PortError) -> [UInt8]? { /* DOES CALLOUT */
        switch state.withLock({ takeTurn(waiter, &$0) }) {
        case .over(let outcome): return try outcome.get()
        case .read: return try readUntilReply(waiter, deadline).get()
        case .wait(let latch):
            _ = latch.wait(until: deadline)
            // Nil: this thread is the one to read now.
            if let outcome = giveUp(waiter, .replyTimedOut, unlessItMustRead: true) { return try outcome.get() }
            return try readUntilReply(waiter, deadline).get()
        }
    }

    private func takeTurn(_ waiter: ReplyWaiter, _ state: inout State) -> Turn {
        if let outcome = waiter.outcome { return .over(outcome) }
        if state.reader == .engine && !state.engineIsReading && !state.isReadByEngine { state.reader = .nobody }
        if state.reader == .nobody {
            state.reader = .thread
            updateWatch(&state)
            return .read
        }
        let latch = Latch()
        waiter.latch = latch
        waiter.followerTicket = state.followers.append(waiter)
        return .wait(latch)
    }

    func readUntilReply(_ waiter: ReplyWaiter, _ deadline: RunLoop.Instant) -> ReplyWaiter.Outcome { /* DOES CALLOUT */
        var mayWaitInRead = true
        while true {  // ends: with the reply, the end of the connection, or the deadline
            if let outcome = state.withLock({ _ in waiter.outcome }) {
                stopReading()
                return outcome
            }
            switch receive(until: deadline, waitingInRead: mayWaitInRead) {
            case .received:
                if let error = deliver() { end(error) }
                if let outcome = state.withLock({ _ in waiter.outcome }) {
                    stopReading()
                    return outcome
                }
                // Other replies may come for ever.
                if RunLoop.Instant.now >= deadline { return giveUpReading(waiter) }
            case .wouldBlock:
                // A signal may have ended the wait, which is not the deadline.
                if RunLoop.Instant.now >= deadline { return giveUpReading(waiter) }
            case .ended: end(.becameInvalid)
            case .failed(let error): end(error)
            }
            mayWaitInRead = false
        }
    }

    private func giveUpReading(_ waiter: ReplyWaiter) -> ReplyWaiter.Outcome {
        let outcome = giveUp(waiter, .replyTimedOut)
        stopReading()
        return outcome
    }

    /// Reads when there is something to read, and waits for that until the deadline.
    ///
    /// A read that waits is a system call less than waiting and reading. Its limit is the socket's, and rounded up to the kernel's ticks, which
    /// is too coarse for a short wait; it is set when it changes, and is good for one wait, which begins now.
    private func receive(until deadline: RunLoop.Instant, waitingInRead: Bool) -> FrameReceiver.ReceiveResult {
        let isLimited = deadline != .distantFuture
        let left = isLimited ? max(0, RunLoop.Instant.now.duration(to: deadline).saturatedNanoseconds) : -1
        if waitingInRead && (!isLimited || left > 100_000_000) {
            // Rounded up generously, so that callers with one timeout have one limit.
            let limit = isLimited ? min((left / 1_000_000 + 10) / 10 * 10, 1 << 40) : 0
            if limit != waitLimit {
                waitLimit = limit
                cplatform_limit_waiting(descriptor, limit)
            }
            return receiver.receive(from: descriptor, .blocking)
        }
        _ = cplatform_await_readable(descriptor, left)
        return receiver.receive(from: descriptor)
    }

    /// The thread that read has what it wanted: another one that waits reads from now on, or the engine, or nobody.
    func stopReading() {
        var tidings = Tidings()
        state.withLock { passOn(&$0, &tidings) }
        tidings.tell()
    }

    /// Under the lock, by the reader.
    private func passOn(_ state: inout State, _ tidings: inout Tidings) {
        state.reader = .nobody
        if state.isInvalid { return }
        if state.isReadByEngine {
            // The others are told by it.
            state.reader = .engine
        } else if let next = state.followers.removeFirst() {
            state.reader = .thread
            next.mustRead = true
            tidings.open(next.latch)
        }
        updateWatch(&state)
    }

    // MARK: The engine

    /// On the engine's thread: the set says what the connection is ready for.
    func isReady(_ bits: Readiness) { /* DOES CALLOUT */
        if !bits.isDisjoint(with: [.write, .broken]) { sendQueued() }
        if !bits.isDisjoint(with: [.read, .closed, .broken]) { readOnEngine(bits) }
    }

    private func readOnEngine(_ bits: Readiness) { /* DOES CALLOUT */
        let mayRead = state.withLock { state in
            if state.isInvalid { return false }
            if state.reader == .thread {
                // The end is readable, so the thread will find it. To be told again and again would be a spin.
                if !bits.isDisjoint(with: [.closed, .broken]) { forgetWatch(&state) }
                return false
            }
            state.reader = .engine
            state.engineIsReading = true
            return true
        }
        if !mayRead { return }
        if let error = readAvailable() { end(error) }
        var tidings = Tidings()
        state.withLock { state in
            state.engineIsReading = false
            if !state.isReadByEngine { passOn(&state, &tidings) } else { updateWatch(&state) }
        }
        tidings.tell()
    }

    /// Why the connection has to end, if it has.
    private func readAvailable() -> RunLoop.PortError? { /* DOES CALLOUT */
        // Bounded, so that one connection does not keep the others waiting.
        for _ in 0..<64 {
            switch receiver.receive(from: descriptor) {
            case .received: if let error = deliver() { return error }
            case .wouldBlock: return nil
            case .ended: return .becameInvalid
            case .failed(let error): return error
            }
        }
        return nil
    }

    // MARK: Replies

    /// Tells everybody whose reply has come whole. By the reader.
    private func deliver() -> RunLoop.PortError? { /* DOES CALLOUT */
        while true {  // ends: each turn takes a frame off what was read
            let next: (frame: Frame, passed: RunLoop.PassedDescriptors)?
            do { next = try receiver.next() } catch { return error }
            guard let (frame, _) = next else { return nil }
            let outcome: ReplyWaiter.Outcome
            switch frame.kind {
            case .reply: outcome = .success(frame.body)
            case .emptyReply: outcome = .success(nil)
            case .refusal:
                guard let error = Refusal.error(frame) else { return .protocolViolation("a refusal of kind \(frame.id)") }
                outcome = .failure(error)
            case .message, .request: return .protocolViolation("a server sent a request")
            }
            var tidings = Tidings()
            state.withLock { state in
                if let waiter = state.waiters[frame.conversation] {
                    _ = removeWaiter(waiter, &state)
                    tidings.finish(waiter, outcome)
                } else if state.unwantedReplies > 0 {
                    state.unwantedReplies -= 1
                }
            }
            tidings.tell()
        }
    }

    /// Under the lock. False when it waits no more.
    @discardableResult
    func removeWaiter(_ waiter: ReplyWaiter, _ state: inout State) -> Bool {
        guard state.waiters.removeValue(forKey: waiter.conversation) != nil else { return false }
        if !waiter.isThread { state.passiveWaiters -= 1 }
        if let ticket = waiter.followerTicket { state.followers.remove(ticket) }
        return true
    }

    /// The waiter wants no answer any more. The outcome is the one that came first.
    @discardableResult
    func giveUp(_ waiter: ReplyWaiter, _ error: RunLoop.PortError) -> ReplyWaiter.Outcome {
        giveUp(waiter, error, unlessItMustRead: false)!  // only the other case has no outcome
    }

    /// The same, unless the reading was handed over to the waiter's thread: then nil. One step, or it could be handed over after the question
    /// and before the end, and nobody would ever read.
    func giveUp(_ waiter: ReplyWaiter, _ error: RunLoop.PortError, unlessItMustRead: Bool) -> ReplyWaiter.Outcome? {
        var tidings = Tidings()
        let outcome = state.withLock { state -> ReplyWaiter.Outcome? in
            if let outcome = waiter.outcome { return outcome }
            if unlessItMustRead && waiter.mustRead { return nil }
            var error = error
            if removeWaiter(waiter, &state) {
                if let unsent = waiter.unsent, !unsent.isOver {
                    withdraw(unsent, &state)
                    error = .sendTimedOut
                } else {
                    state.unwantedReplies += 1
                    if state.reader == .nobody { state.reader = .engine }
                    updateWatch(&state)
                }
            }
            tidings.finish(waiter, .failure(error))
            return .failure(error)
        }
        tidings.tell()
        return outcome
    }
}
