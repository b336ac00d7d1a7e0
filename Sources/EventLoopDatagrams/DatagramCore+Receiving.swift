// From the kernel to handlers and tasks.

internal import EventLoop
internal import EventLoopLibC
internal import EventLoopStreams

extension DatagramCore {
    /// Receives a batch, and delivers it. On the loop's thread.
    func receive() { /* DOES CALLOUT */
        enum Next {
            case nothing, deliver, flush
            case resume(DatagramState.Reader, Datagram)
        }
        let next = withState { state -> Next in
            guard state.end == nil else { return .nothing }
            if state.isDelivering {
                // The handler runs the loop. Its datagrams wait in the kernel; what it has sent must go out, because it may wait for the answer.
                setInterestLocked(state.interest.subtracting(.read), &state)
                state.isGathering = false
                return .flush
            }
            receiveLocked(&state)
            guard let reader = state.reader, !state.input.isEmpty else { return state.handler == nil ? .nothing : .deliver }
            state.reader = nil
            return .resume(reader, state.input.removeFirst())
        }
        switch next {
        case .nothing: break
        case .deliver: deliver()
        case .flush: flushQueue()
        case .resume(let reader, let datagram): reader.continuation.resume(returning: datagram)
        }
    }

    private func receiveLocked(_ state: inout DatagramState) {
        var collector = DatagramCollector(
            input: DatagramQueue(), room: options.receiveLimit - state.input.count, known: state.lastPeer, isHandled: state.handler != nil)
        swap(&collector.input, &state.input)
        defer { swap(&collector.input, &state.input) }
        // Each error of the kernel takes the place of a datagram. More than a few in one pass wait for the next one.
        for _ in 0..<8 {
            let result = transport.receive(upTo: options.maximumSize, into: &collector)
            if result >= 0 || result == -EAGAIN || result == -ENOMEM { break }
            if transport.peer != nil { state.peerFailure = .system(operation: "receive from \(transport.peer!)", errno: -result) }
        }
        state.lastPeer = collector.known
        state.statistics.received &+= collector.received
        state.statistics.receiveDrops &+= collector.dropped
    }

    // MARK: Handlers

    func setHandler(_ body: @escaping @Sendable (DatagramSocket, Datagram) -> Void) { /* DOES CALLOUT */
        guard loop.isOurs else { return }
        let (released, isDue) = withState { state in
            precondition(!state.isForTasks, "a task reads this socket; use handlers or async calls, never both on one socket")
            let old = state.handler
            if state.end == nil { state.handler = body }
            return (old, state.end == nil && !state.input.isEmpty && !state.isDelivering)
        }
        if isDue {
            let call: @Sendable () -> Void = { self.deliver() }
            _ = mode == .common ? loop.perform(call) : loop.perform(inModes: [mode], call)
        }
        withExtendedLifetime(released) {}
    }

    /// Calls the handler for everything that is queued. On the loop's thread.
    private func deliver() { /* DOES CALLOUT */
        let owner = withState { state -> DatagramSocket? in
            guard state.handler != nil, !state.isDelivering, !state.input.isEmpty, state.end == nil else { return nil }
            state.isDelivering = true
            return state.owner
        }
        guard let owner else { return }
        // Ends: nothing is received meanwhile.
        while let delivery = withState({ state in takeLocked(&state) }) { delivery.body(owner, delivery.datagram) }
        withState { state in
            state.isDelivering = false
            state.isGathering = false
            flushLocked(&state)
            setInterestLocked(state.interest.union(.read), &state)
        }
        followUp()
    }

    /// A call of the handler. A structure: a closure that leaves the lock by itself is wrapped in two others, which are allocations.
    private struct Delivery {
        let body: @Sendable (DatagramSocket, Datagram) -> Void
        let datagram: Datagram
    }

    private func takeLocked(_ state: inout DatagramState) -> Delivery? {
        guard let body = state.handler, !state.input.isEmpty, state.end == nil else { return nil }
        let datagram = state.input.removeFirst()
        state.isGathering = !state.input.isEmpty
        return Delivery(body: body, datagram: datagram)
    }

    // MARK: Tasks

    func next(isolation: isolated (any Actor)?) async throws -> Datagram? {
        guard loop.isOurs else { return nil }
        try Task.checkCancellation()
        let (taken, ticket) = withState { state in (Result { try takeForTaskLocked(&state) }, state.nextTicket()) }
        switch try taken.get() {
        case .datagram(let datagram): return datagram
        case .end: return nil
        case .nothing: break
        }
        return try await withTaskCancellationHandler(
            operation: {
                try await withCheckedThrowingContinuation(isolation: isolation) { continuation in
                    let answer = withState { state -> Result<Datagram?, any Error>? in
                        // Under the lock: a later cancellation finds the reader.
                        if Task.isCancelled { return .failure(CancellationError()) }
                        switch Result(catching: { try takeForTaskLocked(&state) }) {
                        case .success(.datagram(let datagram)): return .success(datagram)
                        case .success(.end): return .success(nil)
                        case .success(.nothing): break
                        case .failure(let error): return .failure(error)
                        }
                        state.reader = DatagramState.Reader(ticket: ticket, continuation: continuation)
                        return nil
                    }
                    if let answer { continuation.resume(with: answer) }
                }
            }, onCancel: { cancel(ticket) }, isolation: isolation)
    }

    private enum Taken {
        case datagram(Datagram)
        case end
        case nothing
    }

    private func takeForTaskLocked(_ state: inout DatagramState) throws -> Taken {
        precondition(state.handler == nil, "this socket has a handler; use handlers or async calls, never both on one socket")
        precondition(state.reader == nil, "two tasks read one socket at the same time; let one of them read, and pass the datagrams on")
        state.isForTasks = true
        if !state.input.isEmpty { return .datagram(state.input.removeFirst()) }
        if state.end == nil { return .nothing }
        _ = try state.takeEnd()
        return .end
    }

    /// The task that waits with this ticket was cancelled.
    func cancel(_ ticket: UInt64) {
        let (reader, writer) = withState { state -> (DatagramState.Reader?, DatagramState.Writer?) in
            if let reader = state.reader, reader.ticket == ticket {
                state.reader = nil
                return (reader, nil)
            }
            guard let index = state.writers.firstIndex(where: { $0.ticket == ticket }) else { return (nil, nil) }
            return (nil, state.writers.remove(at: index))
        }
        reader?.continuation.resume(throwing: CancellationError())
        writer?.continuation.resume(throwing: CancellationError())
    }
}
