// Sending on a connection to a named port.

internal import CPlatform
internal import EventLoop
internal import EventLoopLibC

extension RemoteConnection {
    enum SendResult {
        case sent
        /// The rest is in the queue.
        case queued(UnsentFrame)
        case failed(RunLoop.PortError)
    }

    /// Sends a one-way message. Blocks until there is room for it, at most until the deadline.
    func send(id: Int32, data: [UInt8], descriptors: [Int32], deadline: @autoclosure () -> RunLoop.Instant) throws(RunLoop.PortError) {
        try check(data, descriptors)
        let frame = OutgoingFrame(.message, conversation: 0, id: id, body: data, descriptors: descriptors.count)
        let result = state.withLock { transmit(frame, descriptors, latch: Latch(), &$0) }
        try finish(result, deadline())
    }

    /// Registers the waiter and sends its request. Blocks until there is room for it, at most until the deadline. If this throws, the
    /// waiter is not registered.
    func sendRequest(
        _ waiter: ReplyWaiter, id: Int32, data: [UInt8], descriptors: [Int32], deadline: @autoclosure () -> RunLoop.Instant
    ) throws(RunLoop.PortError) {
        try check(data, descriptors)
        let result = state.withLock { beginRequest(waiter, id, data, descriptors, latch: Latch(), &$0) }
        do { try finish(result, deadline()) } catch {
            state.withLock { _ = removeWaiter(waiter, &$0) }
            throw error
        }
    }

    /// Registers the waiter and sends as much of its request as there is room for; the engine sends the rest. If this throws, the waiter is
    /// not registered.
    func startRequest(
        _ waiter: ReplyWaiter, id: Int32, data: [UInt8], descriptors: [Int32]
    ) throws(RunLoop.PortError) {
        try check(data, descriptors)
        switch state.withLock({ beginRequest(waiter, id, data, descriptors, latch: nil, &$0) }) {
        case .sent, .queued: return
        case .failed(let error): throw error
        }
    }

    func check(_ data: [UInt8], _ descriptors: [Int32]) throws(RunLoop.PortError) {
        if data.count > maximumLength { throw .messageTooLarge(data.count) }
        if descriptors.count > Frame.descriptorLimit { throw .messageTooLarge(descriptors.count) }
        guard isOurs else { throw .invalidPort }
    }

    /// Called under the lock.
    func beginRequest(
        _ waiter: ReplyWaiter, _ id: Int32, _ data: [UInt8], _ descriptors: [Int32], latch: @autoclosure () -> Latch?, _ state: inout State
    ) -> SendResult {
        state.lastConversation += 1
        waiter.conversation = state.lastConversation
        let frame = OutgoingFrame(
            .request, conversation: waiter.conversation, id: id, body: data, descriptors: descriptors.count)
        let result = transmit(frame, descriptors, latch: latch(), &state)
        switch result {
        case .failed: return result
        case .queued(let unsent):
            waiter.unsent = unsent
            unsent.sender = waiter.kind
        case .sent: break
        }
        state.waiters[waiter.conversation] = waiter
        if !waiter.isThread {
            state.passiveWaiters += 1
            if state.reader == .nobody { state.reader = .engine }
            updateWatch(&state)
        }
        return result
    }

    /// Sends as much as there is room for, and queues the rest behind earlier frames. Called under the lock, so that frames do not
    /// interleave.
    private func transmit(
        _ frame: consuming OutgoingFrame, _ descriptors: [Int32], latch: @autoclosure () -> Latch?, task: TaskWait<Void>? = nil,
        _ state: inout State
    ) -> SendResult {
        if state.isInvalid { return .failed(.invalidPort) }
        if state.unsent.isEmpty {
            switch frame.send(to: descriptor, passing: descriptors) {
            case 0: return .sent
            case EAGAIN: break
            case let code where shutDownIfUseless(after: code, offset: frame.offset): return .failed(.invalidPort)
            case let code: return .failed(failure("sendmsg", code))
            }
        }
        let unsent = UnsentFrame(frame, descriptors: descriptors, latch: latch(), task: task)
        unsent.ticket = state.unsent.appendForTicket(unsent)
        updateWatch(&state)
        return .queued(unsent)
    }

    /// Shuts the connection down if nothing can be sent on it any more: the other end has gone, or a frame that was sent in part cannot be
    /// completed. The reader receives the replies that are in the socket, then finds the end and calls `end`. Called under the lock, so that
    /// no other frame follows.
    private func shutDownIfUseless(after code: Int32, offset: Int) -> Bool {
        let isUseless = offset > 0 || [EPIPE, ECONNRESET, ENOTCONN].contains(code)
        if isUseless { cplatform_shutdown(descriptor) }
        return isUseless
    }

    /// Waits until a queued frame is sent, at most until the deadline, and throws if it will not be.
    private func finish(_ result: SendResult, _ deadline: @autoclosure () -> RunLoop.Instant) throws(RunLoop.PortError) {
        switch result {
        case .sent: return
        case .failed(let error): throw error
        case .queued(let unsent):
            _ = unsent.latch?.wait(until: deadline())
            try finish(unsent)
        }
    }

    /// Cancels a queued frame that is not sent yet, and throws if it was not sent.
    private func finish(_ unsent: UnsentFrame) throws(RunLoop.PortError) {
        let (isFinished, failure) = state.withLock { state in
            if !unsent.isFinished { cancel(unsent, &state) }
            return (unsent.isFinished, unsent.failure)
        }
        if let failure { throw failure }
        if !isFinished { throw .sendTimedOut }
    }

    /// As `send`, but suspends the task instead of blocking the thread.
    func sendOfTask(
        id: Int32, data: [UInt8], descriptors: [Int32], deadline: RunLoop.Instant
    ) async throws(RunLoop.PortError) {
        try check(data, descriptors)
        if Task.isCancelled { throw .sendTimedOut }
        let wait = TaskWait<Void>()
        let result = state.withLock {
            let frame = OutgoingFrame(.message, conversation: 0, id: id, body: data, descriptors: descriptors.count)
            return transmit(frame, descriptors, latch: nil, task: wait, &$0)
        }
        guard case .queued(let unsent) = result else { return try finish(result, .now) }
        await wait.outcome(until: deadline) { wait.deliver(()) }
        try finish(unsent)
    }

    /// Cancels a queued frame, for which nobody waits any more. If a part of it has been sent, it stays in the queue, without its message.
    /// Called under the lock.
    func cancel(_ unsent: UnsentFrame, _ state: inout State) {
        if unsent.frame.offset == 0 {
            if let ticket = unsent.ticket { state.unsent.remove(ticket) }
            updateWatch(&state)
        } else {
            unsent.frame.cancel()
            (unsent.latch, unsent.task, unsent.sender) = (nil, nil, nil)
        }
    }

    /// Sends queued frames. Called on the engine's thread when there is room.
    func sendQueued() { /* DOES CALLOUT */
        var wakeUps = DeferredWakeUps()
        state.withLock { state in
            // The reader may have given the watch up until the reading passes on.
            if state.unsent.isEmpty { return }
            while !state.isInvalid, let first = state.unsent.first {  // ends: each iteration removes a frame, or returns
                let code = first.frame.send(to: descriptor, passing: first.descriptors)
                if code == EAGAIN { break }
                if code != 0 {
                    if shutDownIfUseless(after: code, offset: first.frame.offset) { return }
                    first.failure = failure("sendmsg", code)
                    if let waiter = state.waiters[first.frame.conversation], waiter.unsent === first, removeWaiter(waiter, &state) {
                        wakeUps.complete(waiter, .failure(failure("sendmsg", code)))
                    }
                }
                first.isFinished = true
                wakeUps.wakeSender(of: first)
                _ = state.unsent.popFirst()
            }
            updateWatch(&state)
        }
        wakeUps.performAll()
    }
}
