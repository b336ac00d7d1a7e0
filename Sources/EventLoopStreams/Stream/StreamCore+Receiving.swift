// From the transport to the input, and from there to tasks.

import EventLoop

extension StreamCore {
    /// The transport may have something to read, or room to write. On the loop's thread.
    func transferWhatIsReady(read: Bool, write: Bool) { /* DOES CALLOUT */
        if write {
            var actions = StreamActions()
            lock()
            // A handler that gathers has not returned: it runs its loop.
            (locked.sending.isBlocked, locked.sending.isGathering) = (false, false)
            flushLocked(&actions)
            unlock()
            perform(actions, callsHandlers: true)
        }
        if read { receive() }
    }

    /// Whether the transport may be read.
    var canReceiveLocked: Bool {
        switch locked.phase {
        case .open:
            if locked.receiving.isEnded || locked.receiving.isShut || locked.end != nil || locked.sending.failure != nil { return false }
            if handshake != nil { return layerToBegin == nil }
            if locked.receiving.holdsEnd { return false }
            return !locked.receiving.isPaused && !locked.receiving.isBusy && locked.receiving.input.count < receiveLimitLocked
        case .lingering: return !locked.receiving.isEnded
        case .closing, .closed: return false
        }
    }

    /// Whether the layer must get bytes of the peer although the program takes none: without them it takes nothing of what the program writes. Also
    /// while a handler has the input, which may run its loop until its bytes are sent.
    private var feedsLayerLocked: Bool {
        locked.sending.isLayerBlocked && locked.phase == .open && !locked.receiving.isEnded && locked.end == nil
            && locked.sending.failure == nil
    }

    /// How many bytes the input may have: more than the option, if a task waits for more.
    var receiveLimitLocked: Int {
        guard case .more(_, let limit) = locked.receiving.reader?.need else { return options.receiveLimit }
        return max(options.receiveLimit, limit)
    }

    /// The handler that is called. It may replace itself, and then this is the last reference to it.
    ///
    /// Not the closure alone: `withExtendedLifetime` is generic code, for which a closure would be wrapped in another one, which is an allocation.
    private struct Called {
        let body: (@Sendable (ByteStream, inout ReceivedBytes) -> Void)?
        let stream: ByteStream?
    }

    /// Reads once, and gives the bytes to whom they are for.
    func receive() { /* DOES CALLOUT */
        var actions = StreamActions()
        let callsHandlers = receiveOnce(&actions)
        perform(actions, callsHandlers: callsHandlers)
    }

    /// False if the layer has more, which comes before the handlers are called.
    private func receiveOnce(_ actions: inout StreamActions) -> Bool { /* DOES CALLOUT */
        lock()
        let called = Called(body: locked.handlers.receive, stream: locked.handlers.stream)
        if !canReceiveLocked {
            if feedsLayerLocked { feedLayerLocked(&actions) } else { stopReceivingLocked(&actions) }
        } else if locked.phase == .lingering {
            dropReceivedLocked(&actions)
        } else if let body = called.body, let stream = called.stream, locked.receiving.input.isEmpty, handshake == nil,
            !locked.isInCall
        {
            receiveInPlaceLocked(body, stream, &actions)
        } else {
            receiveIntoInputLocked(&actions)
        }
        // The transport reports only what it has itself.
        let layerMayHaveMore = locked.receiving.layerMayHaveMore
        if layerMayHaveMore && canReceiveLocked { actions.delivers = true }
        unlock()
        // Released outside the lock, and before the next handler is called.
        withExtendedLifetime(called) {}
        return !layerMayHaveMore
    }

    /// Received bytes go into the stream's buffer, or to the task that waits for them.
    private func receiveIntoInputLocked(_ actions: inout StreamActions) {
        if layer == nil, case .more(let least, let limit) = locked.receiving.reader?.need, least - locked.receiving.input.count >= 4_096 {
            // Much is wanted: no detour. A peer that announces a lot gets no more memory than twice what it has sent, or a MiB.
            let held = locked.receiving.input.count
            let tail = locked.receiving.input.reserve(min(least + 1 - held, max(1 << 20, held))).prefix(
                max(limit, options.receiveLimit) - held)
            // No layer, so nothing changes the input before the commit.
            let result = readTransportLocked(into: UnsafeMutableRawBufferPointer(rebasing: tail))
            guard case .bytes(let count) = result else { return receivedNothingLocked(result, &actions) }
            locked.receiving.input.commit(count)
            return wakeReaderLocked(&actions)
        }
        let piece = ReceiveSpace.take()
        defer { ReceiveSpace.giveBack(piece) }
        let size = min(ReceiveSpace.size, max(1, receiveLimitLocked - locked.receiving.input.count))
        let result = fillLocked(UnsafeMutableRawBufferPointer(start: piece, count: size))
        if case .bytes(let count) = result {
            // First, because the layer may end the stream: a task that waits gets the bytes, and not the end behind them.
            keepLocked(UnsafeRawBufferPointer(start: piece, count: count), &actions)
            return continueLayerLocked(&actions)
        }
        continueLayerLocked(&actions)
        receivedNothingLocked(result, &actions)
    }

    /// Bytes for the task that waits, or for the input.
    private func keepLocked(_ bytes: UnsafeRawBufferPointer, _ actions: inout StreamActions) {
        if locked.receiving.input.isEmpty, let reader = locked.receiving.reader, case .bytes(let limit) = reader.need {
            locked.receiving.reader = nil
            locked.receiving.consumed &+= UInt64(min(limit, bytes.count))
            actions.resume(reader, .success([UInt8](bytes.prefix(limit))))
            locked.receiving.input.append(UnsafeRawBufferPointer(rebasing: bytes.dropFirst(limit)))
            return
        }
        locked.receiving.input.append(bytes)
        locked.receiving.isNew = true
        if locked.handlers.receive != nil { actions.delivers = true }
        wakeReaderLocked(&actions)
    }

    /// The transport had no bytes for the program.
    func receivedNothingLocked(_ result: TransferResult, _ actions: inout StreamActions) {
        switch result {
        case .bytes: break
        case .wouldBlock:
            if locked.receiving.holdsEnd && locked.peerFinish.isWatched { actions.peerFinishes = true }
        case .end:
            locked.receiving.isEnded = true
            locked.receiving.isNew = true
            if locked.peerFinish.isWatched { actions.peerFinishes = true }
            setInterestLocked(read: false)
            if locked.sending.isLayerBlocked {
                // What it waits for does not come any more.
                locked.sending.isLayerBlocked = false
                flushLocked(&actions)
            }
            actions.delivers = actions.delivers || locked.handlers.stream != nil
            wakeReaderLocked(&actions)
        case .failed(let error): endLocked(.failed(error), &actions)
        }
    }

    /// Reads plain bytes: from the transport, or through the layer. Changes nothing else, so `space` may belong to the caller's state; the
    /// caller then calls `continueLayerLocked`.
    func fillLocked(_ space: UnsafeMutableRawBufferPointer) -> TransferResult {
        guard let layer else { return readTransportLocked(into: space) }
        let piece = ReceiveSpace.take()
        defer { ReceiveSpace.giveBack(piece) }
        let encrypted = UnsafeMutableRawBufferPointer(start: piece, count: ReceiveSpace.size)
        // A peer can send records without content. Others must be served, too.
        for _ in 0..<4 {
            switch layer.read(into: space) {
            case .bytes(let count):
                locked.receiving.layerMayHaveMore = layer.mayHaveMore
                return .bytes(count)
            case .end: return .end
            case .failed(let error): return .failed(error)
            case .nothing: locked.receiving.layerMayHaveMore = false
            }
            let result = readTransportLocked(into: encrypted)
            if case .end = result, holdsEndLocked {
                locked.receiving.holdsEnd = true
                setInterestLocked(read: false)
                return .wouldBlock
            }
            if !pass(result, piece, to: layer) { return result }
            if handshake != nil { return .wouldBlock }
        }
        // The layer has not been asked since it got the last bytes, and the transport may have no more.
        locked.receiving.layerMayHaveMore = true
        return .wouldBlock
    }

    /// After bytes have come for the layer: sends its answers, goes on with the handshake, and repeats what waited for these bytes. This may end
    /// the stream, and it changes the input.
    func continueLayerLocked(_ actions: inout StreamActions) {
        guard let layer, layerToBegin == nil else { return }
        sendAnswersLocked(of: layer, &actions)
        advanceHandshakeLocked(&actions)
        let isDue = !locked.sending.output.isEmpty && locked.sending.isWireEmpty || locked.sending.isFinishing && !locked.sending.isFinished
        if handshake == nil && !locked.sending.isLayerBlocked && isDue { flushLocked(&actions) }
    }

    /// Whether the peer's last byte is kept from the layer: it would take nothing of what waits to be sent if the peer has not ended properly.
    var holdsEndLocked: Bool {
        handshake == nil && !locked.sending.isLayerBlocked && locked.sending.failure == nil
            && !(locked.sending.isEmpty && locked.sending.writers.isEmpty) && layer?.stopsAtMissingEnd == true
    }

    /// Everything is sent: the transport is read again, and says again that it has ended.
    func receiveHeldEndLocked(_ actions: inout StreamActions) {
        locked.receiving.holdsEnd = false
        resumeReceivingLocked(&actions)
    }

    /// Gives the layer what came from the transport. False if that was nothing.
    private func pass(_ result: TransferResult, _ piece: UnsafeMutableRawPointer, to layer: any StreamLayer) -> Bool {
        switch result {
        case .bytes(let count): layer.receive(UnsafeRawBufferPointer(start: piece, count: count))
        case .end: layer.receiveEnd()
        case .wouldBlock, .failed: return false
        }
        locked.sending.isLayerBlocked = false
        return true
    }

    /// The layer gets bytes, and the program does not: it has paused, has enough, or is being called.
    private func feedLayerLocked(_ actions: inout StreamActions) {
        guard let layer else { return }
        let piece = ReceiveSpace.take()
        defer { ReceiveSpace.giveBack(piece) }
        let result = readTransportLocked(into: UnsafeMutableRawBufferPointer(start: piece, count: ReceiveSpace.size))
        if !pass(result, piece, to: layer) { return receivedNothingLocked(result, &actions) }
        locked.receiving.layerMayHaveMore = true
        continueLayerLocked(&actions)
        guard case .end = result, locked.sending.isLayerBlocked else { return }
        // What it waits for does not come any more.
        locked.sending.failure = Self.layerWaitsForEver
        writingFailedLocked(&actions)
    }

    private func readTransportLocked(into space: UnsafeMutableRawBufferPointer) -> TransferResult {
        let result = transport.read(into: space)
        if case .bytes(let count) = result {
            locked.receiving.total &+= UInt64(count)
            noteReceivedLocked()
        }
        return result
    }

    /// Asks for reading again if it may go on. `hadStopped`: until now it could not, so the time that has passed does not count against the peer.
    func resumeReceivingLocked(hadStopped: Bool = true, _ actions: inout StreamActions) {
        // What the peer sent before it stopped to take bytes: see `drainBeforeFailureLocked`.
        if locked.sending.failure != nil && locked.end == nil { actions.delivers = true }
        if feedsLayerLocked { setInterestLocked(read: true) }
        let restartsTimeout = hadStopped && locked.timeouts != nil
        guard !locked.interest.read || locked.receiving.layerMayHaveMore || restartsTimeout, canReceiveLocked else { return }
        if restartsTimeout { restartReceiveTimeoutLocked(&actions) }
        setInterestLocked(read: true)
        if locked.receiving.layerMayHaveMore { actions.delivers = true }
    }

    private func stopReceivingLocked(_ actions: inout StreamActions) {
        actions.watchesPeer = locked.peerFinish.isWatched && !locked.peerFinish.isOver && locked.phase == .open
        setInterestLocked(read: false)
    }

    func setInterestLocked(read: Bool? = nil, write: Bool? = nil) {
        let wanted = (read: read ?? locked.interest.read, write: write ?? locked.interest.write)
        if wanted == locked.interest || locked.phase == .closing || locked.phase == .closed { return }
        locked.interest = wanted
        transport.setInterest(read: wanted.read, write: wanted.write)
    }

    // MARK: Tasks

    /// What a task gets without waiting.
    enum Received {
        case bytes([UInt8])
        case end
        case nothing
    }

    /// Between one byte and `limit` bytes. Throws what ended the stream.
    func takeReceived(atLeast least: Int, upTo limit: Int) throws -> Received { /* DOES CALLOUT */
        try change { actions -> Result<Received, any Error> in
            preconditionReadableLocked()
            if locked.receiving.input.count >= least {
                let hadStopped = !canReceiveLocked
                let bytes = locked.receiving.take(min(limit, locked.receiving.input.count))
                resumeReceivingLocked(hadStopped: hadStopped, &actions)
                return .success(.bytes(bytes))
            }
            return Result { try endOfReceivingLocked(&actions) ? .end : .nothing }
        }.get()
    }

    /// Whether nothing more comes; throws if that is because the stream has ended otherwise than by the peer's last byte.
    func endOfReceivingLocked(_ actions: inout StreamActions) throws -> Bool {
        if locked.receiving.isEnded && locked.end != .closed {
            takeEndLocked(&actions)
            return true
        }
        if let end = locked.end { throw Self.error(for: end) }
        return false
    }

    /// A task has learned that the peer has sent its last byte.
    func takeEndLocked(_ actions: inout StreamActions) {
        if locked.receiving.isEndTaken { return }
        locked.receiving.isEndTaken = true
        if locked.end == nil { locked.end = .endOfStream }
        actions.delivers = actions.delivers || locked.handlers.stream != nil
        closeIfFinishedLocked(&actions)
    }

    func preconditionReadableLocked() {
        precondition(
            locked.handlers.receive == nil,
            "this stream has a handler for received bytes; use handlers or async calls, never both on one stream")
        precondition(
            locked.receiving.reader == nil && !locked.receiving.isBusy,
            "two tasks read one stream at the same time; let one of them read, and pass the bytes on")
        locked.receiving.isForTasks = true
    }

    /// Waits until the input has what `need` asks for, or nothing more comes. Bytes, or an empty array: look again; nil: the end.
    func wait(_ need: Reader.Need, isolation: isolated (any Actor)?) async throws -> [UInt8]? { /* DOES CALLOUT */
        let ticket = withLock(nextTicketLocked)
        return try await withTaskCancellationHandler(
            operation: {
                try await withCheckedThrowingContinuation(isolation: isolation) { continuation in
                    change { actions in
                        preconditionReadableLocked()
                        // Under the lock: a later cancellation finds the reader.
                        let reader = Reader(need, ticket: ticket, continuation)
                        if Task.isCancelled { return actions.resume(reader, .failure(CancellationError())) }
                        let hadStopped = !canReceiveLocked
                        locked.receiving.reader = reader
                        wakeReaderLocked(&actions)
                        resumeReceivingLocked(hadStopped: hadStopped, &actions)
                    }
                }
            }, onCancel: { cancel(ticket) }, isolation: isolation)
    }

    /// Resumes the task that reads, if it has what it waits for, or will never have it.
    func wakeReaderLocked(_ actions: inout StreamActions) {
        guard let reader = locked.receiving.reader, let answer = answerLocked(to: reader.need, &actions) else { return }
        locked.receiving.reader = nil
        actions.resume(reader, answer)
    }

    private func answerLocked(to need: Reader.Need, _ actions: inout StreamActions) -> Result<[UInt8]?, any Error>? {
        switch need {
        case .more(let least, _):
            return locked.receiving.input.count > least || locked.receiving.isEnded || locked.end != nil ? .success([]) : nil
        case .bytes(let limit):
            if !locked.receiving.input.isEmpty { return .success(locked.receiving.take(min(limit, locked.receiving.input.count))) }
            do { return try endOfReceivingLocked(&actions) ? .success(nil) : nil } catch { return .failure(error) }
        }
    }
}
