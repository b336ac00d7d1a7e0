// From the program to the kernel.

internal import CDatagrams
internal import EventLoop
internal import EventLoopLibC
internal import EventLoopStreams

extension DatagramCore {
    func send(_ bytes: [UInt8], to peer: RunLoop.SocketAddress?) -> Bool { /* DOES CALLOUT */
        guard loop.isOurs else { return false }
        var (schedulesFlush, hasFollowUp) = (false, false)
        let isQueued = withState { state -> Bool in
            defer { hasFollowUp = state.hasFollowUp }
            // Not `try?`: a connected socket's target is nil.
            guard state.end == nil, state.writers.isEmpty, case .success(let target) = Result(catching: { try targetLocked(peer, &state) })
            else {
                state.statistics.sendDrops &+= 1
                return false
            }
            if state.output.count >= options.sendLimit { flushLocked(&state) }
            if state.output.count >= options.sendLimit {
                state.statistics.sendDrops &+= 1
                return false
            }
            _ = sendLocked(DatagramState.Outgoing(bytes: bytes, peer: target), &state)
            schedulesFlush = gathers(state) && !state.isFlushScheduled
            if schedulesFlush { state.isFlushScheduled = true }
            return true
        }
        // The handler may run its loop now, in whatever mode, and wait there for the answer.
        if schedulesFlush && !loop.callAtEndOfPass(self) { flushQueue() }
        if hasFollowUp || deliversLater { followUp() }
        return isQueued
    }

    func write(_ bytes: [UInt8], to peer: RunLoop.SocketAddress?, isolation: isolated (any Actor)?) async throws { /* DOES CALLOUT */
        guard loop.isOurs else { throw StreamError.closed }
        try Task.checkCancellation()
        let begun = withState { state in Result { try beginWriteLocked(bytes, peer, &state) } }
        // Also if it throws: what was queued may have been sent before.
        followUp()
        let (waiting, ticket) = try begun.get()
        guard let waiting else { return }
        try await withTaskCancellationHandler(
            operation: {
                try await withCheckedThrowingContinuation(isolation: isolation) { (continuation: CheckedContinuation<Void, any Error>) in
                    let answer = withState { state -> Result<Void, any Error>? in
                        // Under the lock: a later cancellation finds the writer.
                        if Task.isCancelled { return .failure(CancellationError()) }
                        if state.end != nil { return .failure(StreamError.closed) }
                        if hasRoomLocked(&state) {
                            return sendLocked(waiting, &state, reportsFailure: true).map { .failure($0) } ?? .success(())
                        }
                        state.writers.append(DatagramState.Writer(ticket: ticket, datagram: waiting, continuation: continuation))
                        return nil
                    }
                    if let answer { continuation.resume(with: answer) }
                    followUp()
                }
            }, onCancel: { cancel(ticket) }, isolation: isolation)
    }

    /// Sends or queues what a task writes. Without room for it, returns it with a ticket for the wait.
    private func beginWriteLocked(
        _ bytes: [UInt8], _ peer: RunLoop.SocketAddress?, _ state: inout DatagramState
    ) throws -> (waiting: DatagramState.Outgoing?, ticket: UInt64) {
        if state.end != nil { throw StreamError.closed }
        if let failure = state.peerFailure {
            state.peerFailure = nil
            throw failure
        }
        let datagram = DatagramState.Outgoing(bytes: bytes, peer: try targetLocked(peer, &state))
        if !hasRoomLocked(&state) { return (datagram, state.nextTicket()) }
        if let failure = sendLocked(datagram, &state, reportsFailure: true) { throw failure }
        return (nil, 0)
    }

    private func hasRoomLocked(_ state: inout DatagramState) -> Bool {
        if state.writers.isEmpty && state.output.count >= options.sendLimit { flushLocked(&state) }
        return state.writers.isEmpty && state.output.count < options.sendLimit
    }

    /// Where to send. Nil: to the connected peer.
    private func targetLocked(
        _ peer: RunLoop.SocketAddress?, _ state: inout DatagramState
    ) throws(RunLoop.SourceError) -> NativeAddress? {
        if let connected = transport.peer {
            if let peer, peer != connected, try !peer.isSame(as: connected) {
                throw .system(operation: "send to \(peer) with a socket connected to \(connected)", errno: EISCONN)
            }
            return nil
        }
        guard let peer else { throw .system(operation: "send without an address", errno: EDESTADDRREQ) }
        if peer.kind != transport.kind { throw .system(operation: "send to \(peer)", errno: EAFNOSUPPORT) }
        return try state.lastTarget.native(of: peer)
    }

    /// Whether what the loop's thread sends waits for the return of the handler. What others send does not: the handler may wait for the answer.
    private func gathers(_ state: borrowing DatagramState) -> Bool { state.isGathering && loop.isCurrent }

    /// Sends a datagram, or queues it. With `reportsFailure`, which a `write` wants, returns why the kernel refuses it, or what the kernel reports of the
    /// peer.
    private func sendLocked(
        _ datagram: DatagramState.Outgoing, _ state: inout DatagramState, reportsFailure: Bool = false
    ) -> RunLoop.SourceError? {
        let gathers = !reportsFailure && gathers(state)
        if gathers || !state.output.isEmpty {
            state.output.append(datagram)
            if gathers {
                if state.output.count == Int(CDATAGRAMS_BATCH) { flushLocked(&state) }
            } else if !state.isBlocked || sendsFirstLocked(&state) {
                flushLocked(&state)
            }
            return nil
        }
        var code = transport.send(datagram)
        if code == 0 {
            state.statistics.sent &+= 1
            return nil
        }
        if Self.isRefusal(code) {
            if reportsFailure && transport.peer != nil && code != EMSGSIZE { return failure(code) }
            code = sendAgainLocked(datagram, after: code, &state)
            if !Self.isShortage(code) {
                countLocked(code, &state)
                return code != 0 && reportsFailure ? failure(code) : nil
            }
        }
        state.output.append(datagram)
        waitForRoomLocked(&state)
        return nil
    }

    /// The mode may not run, so each call finds out whether the kernel has room again.
    private func sendsFirstLocked(_ state: inout DatagramState) -> Bool {
        let datagram = state.output[0]
        var code = transport.send(datagram)
        if Self.isRefusal(code) { code = sendAgainLocked(datagram, after: code, &state) }
        if Self.isShortage(code) { return false }
        _ = state.output.removeFirst()
        countLocked(code, &state)
        return true
    }

    /// The second attempt for a datagram that the kernel has refused with `code`. The kernel reports what it learns of an earlier datagram once,
    /// in place of sending the next one. So the first refusal may be about another datagram; the second one is about this one.
    private func sendAgainLocked(_ datagram: DatagramState.Outgoing, after code: Int32, _ state: inout DatagramState) -> Int32 {
        noteLocked(code, &state)
        return transport.send(datagram)
    }

    private func countLocked(_ code: Int32, _ state: inout DatagramState) {
        if code == 0 { state.statistics.sent &+= 1 } else { state.statistics.sendDrops &+= 1 }
    }

    private func failure(_ code: Int32) -> RunLoop.SourceError {
        .system(operation: transport.peer.map { "send to \($0)" } ?? "send from \(transport.localAddress)", errno: code)
    }

    /// The kernel may take the datagram later.
    private static func isShortage(_ code: Int32) -> Bool { code == EAGAIN || code == EWOULDBLOCK || code == ENOBUFS || code == ENOMEM }

    /// The kernel does not take the datagram now, and why is not a shortage.
    private static func isRefusal(_ code: Int32) -> Bool { code != 0 && !isShortage(code) }

    /// Keeps what the kernel reports of the connected peer for the next `write`. A packet on the way that was too long is reported as EMSGSIZE,
    /// too, and means nothing for a shorter one.
    private func noteLocked(_ code: Int32, _ state: inout DatagramState) {
        if transport.peer != nil && code != EMSGSIZE { state.peerFailure = failure(code) }
    }

    // MARK: The queue

    /// The kernel has room again. On the loop's thread.
    func flushQueue() { /* DOES CALLOUT */
        withState { state in
            (state.isBlocked, state.isFlushScheduled) = (false, false)
            flushLocked(&state)
        }
        followUp()
    }

    /// Sends what is queued, as far as the kernel takes it.
    func flushLocked(_ state: inout DatagramState) {
        if !state.output.isEmpty {
            state.isBlocked = false
            if transport.reportsRoom { flushBatchesLocked(&state) } else { flushEachLocked(&state) }
        }
        if state.output.isEmpty {
            state.isBlocked = false
            setInterestLocked(state.interest.subtracting(.write), &state)
        }
    }

    private func flushBatchesLocked(_ state: inout DatagramState) {
        var isSecondAttempt = false
        while !state.output.isEmpty {  // ends: each iteration removes a datagram, or leaves, or is the first attempt for one
            let result = transport.sendBatch(of: state.output)
            if result >= 0 {
                for _ in 0..<result { _ = state.output.removeFirst() }
                state.statistics.sent &+= UInt64(result)
                isSecondAttempt = false
                continue
            }
            if Self.isShortage(-result) { return waitForRoomLocked(&state) }
            noteLocked(-result, &state)
            isSecondAttempt.toggle()
            // As in `sendAgainLocked`.
            if isSecondAttempt { continue }
            _ = state.output.removeFirst()
            state.statistics.sendDrops &+= 1
        }
    }

    /// One Unix peer that takes nothing must not stop the datagrams for others. The kernel keeps no errors for a Unix socket without a peer, so
    /// each refusal is about the datagram itself.
    private func flushEachLocked(_ state: inout DatagramState) {
        var full: [NativeAddress] = []
        var (sent, refused) = (UInt64(0), UInt64(0))
        state.output.filter { datagram in
            guard let peer = datagram.peer else { return false }
            for other in full where cdatagrams_equal(other.pointer, peer.pointer) { return true }
            let code = transport.send(datagram)
            if Self.isShortage(code) {
                full.append(peer)
                return true
            }
            if code == 0 { sent += 1 } else { refused += 1 }
            return false
        }
        if sent + refused > 0 { state.retryDelay = .milliseconds(1) }
        state.statistics.sent &+= sent
        state.statistics.sendDrops &+= refused
        if !state.output.isEmpty { waitForRoomLocked(&state) }
    }

    private func waitForRoomLocked(_ state: inout DatagramState) {
        if state.end != nil { return }
        if transport.reportsRoom {
            state.isBlocked = true
            return setInterestLocked(state.interest.union(.write), &state)
        }
        if !state.isRetrying { (state.isRetrying, state.asksForRetry) = (true, true) }
    }

    /// Queues what tasks wait to write, as far as there is room, delivers what a transport does not deliver under the lock, and schedules the
    /// retry that was asked for. Call it after each use of the lock that may send.
    func followUp() { /* DOES CALLOUT */
        let (ready, delay) = withState { state -> ([(CheckedContinuation<Void, any Error>, RunLoop.SourceError?)], Duration?) in
            var ready: [(CheckedContinuation<Void, any Error>, RunLoop.SourceError?)] = []
            while !state.writers.isEmpty, state.end == nil, state.output.count < options.sendLimit {
                let writer = state.writers.removeFirst()
                ready.append((writer.continuation, sendLocked(writer.datagram, &state, reportsFailure: true)))
            }
            return (ready, state.takeRetry())
        }
        for (continuation, failure) in ready {
            if let failure { continuation.resume(throwing: failure) } else { continuation.resume() }
        }
        if deliversLater { transport.deliverSent() }
        if let delay { retry(after: delay) }
    }

    /// Without the lock: when a timer is added on the loop's thread, the loop may call out, for a source of another thread that fails.
    private func retry(after delay: Duration) { /* DOES CALLOUT */
        loop.perform(after: delay, inModes: [mode]) { [weak self] in
            self?.withState { $0.isRetrying = false }
            self?.flushQueue()
        }
    }
}
