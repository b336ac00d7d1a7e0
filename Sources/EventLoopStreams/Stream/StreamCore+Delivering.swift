// The calls of a stream's handlers.

import EventLoop

extension StreamCore {
    /// Calls every handler that is due. On the loop's thread; on the caller's if the loop has ended.
    func deliver() { /* DOES CALLOUT */
        var actions = StreamActions()
        lock()
        drainBeforeFailureLocked(&actions)
        let readsLayer = receiving.layerMayHaveMore && canReceiveLocked
        unlock()
        perform(actions, callsHandlers: false)
        if readsLayer { receive() }
        while callNext() {}  // ends: each call is due because of something that happened, and is then no longer due
    }

    /// Calls the handler that is due. False if none is.
    private func callNext() -> Bool { /* DOES CALLOUT */
        lock()
        if receiving.isBusy || sending.isInRoomCall {
            unlock()
            return false
        }
        if let stream = handlers.stream {
            // What the peer sent before our write failed waits for a paused handler, and so does the end.
            if receiving.isPaused, sending.failure != nil, !sending.closesWhenFinished, receiving.isNew, !receiving.isEndTaken,
                handlers.receive != nil
            {
                unlock()
                return false
            }
            if receiving.isNew, !receiving.isEndTaken, !receiving.isPaused || end != nil, let body = handlers.receive {
                unlock()
                deliverInput(body, stream)
                return true
            }
            if sending.owesRoom, end == nil, let body = handlers.room {
                (sending.owesRoom, sending.isInRoomCall) = (false, true)
                unlock()
                body(stream)
                withLock { sending.isInRoomCall = false }
                return true
            }
        }
        return callEndAndUnlock()
    }

    /// Calls the handler of the end, and releases all of them. Called under the lock, returns without it.
    private func callEndAndUnlock() -> Bool { /* DOES CALLOUT */
        // Without a handler for the end the others are released, which ends the retain cycle. One that is set later is called then.
        guard let end, phase == .closed || phase == .lingering || phase == .open && end == .endOfStream,
            !isEndReported, let stream = handlers.stream, handlers.end != nil || phase == .closed
        else {
            unlock()
            return false
        }
        isEndReported = handlers.end != nil
        var called = Handlers()
        swap(&called, &handlers)
        unlock()
        called.end?(stream, end)
        return true
    }

    /// Shows the handler the stream's own buffer.
    private func deliverInput(_ body: @Sendable (ByteStream, inout ReceivedBytes) -> Void, _ stream: ByteStream) { /* DOES CALLOUT */
        var input = InputBuffer()
        lock()
        // Another thread may have closed the stream since.
        guard receiving.isNew, !receiving.isBusy else { return unlock() }
        let isLast = receiving.isEnded
        beginCallLocked()
        receiving.isNew = false
        swap(&input, &receiving.input)
        unlock()
        let used = Self.call(body, stream, input.bytes, isLast: isLast)
        var actions = StreamActions()
        lock()
        let isOver = isLast && !receiving.isHandlerReplaced
        if isOver {
            receiving.isEndTaken = true
            // What the handler has sent goes out, and then the stream ends.
            sending.isFinishing = true
        } else if keepsInputLocked {
            input.dropFirst(used)
            receiving.input.prepend(input)
        }
        endCallLocked(&actions)
        if isOver { closeIfFinishedLocked(&actions) }
        unlock()
        perform(actions)
    }

    /// Reads into the memory that the loop's streams share, and shows it to the handler there. Called and returns under the lock.
    func receiveInPlaceLocked(
        _ body: @Sendable (ByteStream, inout ReceivedBytes) -> Void, _ stream: ByteStream, _ actions: inout StreamActions
    ) { /* DOES CALLOUT */
        let piece = ReceiveSpace.take()
        let size = min(ReceiveSpace.size, options.receiveLimit)
        let result = fillLocked(UnsafeMutableRawBufferPointer(start: piece, count: size))
        settleLayerLocked(&actions)
        guard case .bytes(let count) = result, keepsInputLocked else {
            ReceiveSpace.giveBack(piece)
            return receivedNothingLocked(result, &actions)
        }
        beginCallLocked()
        unlock()
        let bytes = UnsafeRawBufferPointer(start: piece, count: count)
        let used = Self.call(body, stream, bytes, isLast: false)
        lock()
        if used < count && keepsInputLocked { receiving.input.append(UnsafeRawBufferPointer(rebasing: bytes[used...])) }
        ReceiveSpace.giveBack(piece)
        endCallLocked(&actions)
    }

    @inline(__always)
    private static func call(
        _ body: @Sendable (ByteStream, inout ReceivedBytes) -> Void, _ stream: ByteStream, _ bytes: UnsafeRawBufferPointer, isLast: Bool
    ) -> Int { /* DOES CALLOUT */
        var received = ReceivedBytes(viewing: bytes, isLast: isLast)
        body(stream, &received)
        return received.consumedCount
    }

    private func beginCallLocked() {
        receiving.isBusy = true
        (receiving.callsAgain, receiving.isHandlerReplaced) = (false, false)
        sending.hasSentInCall = false
    }

    /// After a call of the handler: sends what it has gathered, and goes on reading.
    private func endCallLocked(_ actions: inout StreamActions) {
        receiving.isBusy = false
        let callsAgain = receiving.callsAgain || receiving.isHandlerReplaced
        (receiving.callsAgain, receiving.isHandlerReplaced) = (false, false)
        if callsAgain {
            if !receiving.input.isEmpty || receiving.isEnded { receiving.isNew = true }
        } else if receiving.input.count >= options.receiveLimit {
            receiving.isPaused = true
        }
        beginWaitingLayerLocked(&actions)
        if sending.isGathering || sending.isFinishing {
            sending.isGathering = false
            flushLocked(&actions)
        }
        resumeReceivingLocked(&actions)
        if isDeliveryDueLocked { actions.delivers = true }
    }

    /// Whether `deliver` may have something to do.
    var isDeliveryDueLocked: Bool { receiving.isNew || sending.owesRoom && handlers.room != nil || end != nil || sending.failure != nil }

    /// False after `close()`, which drops what was received.
    var keepsInputLocked: Bool { phase == .open || end != .closed && phase != .lingering }
}
