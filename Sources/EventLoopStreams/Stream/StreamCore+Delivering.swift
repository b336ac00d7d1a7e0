// The calls of a stream's handlers.

import EventLoop

extension StreamCore {
    /// Calls every handler that is due. On the loop's thread; on the caller's if the loop has ended.
    func deliver() { /* DOES CALLOUT */
        var actions = StreamActions()
        lock()
        drainBeforeFailureLocked(&actions)
        let readsLayer = locked.receiving.layerMayHaveMore && canReceiveLocked
        unlock()
        perform(actions, callsHandlers: false)
        if readsLayer { receive() }
        while callNext() {}  // ends: each call is due because of something that happened, and is then no longer due
    }

    /// Calls the handler that is due. False if none is.
    private func callNext() -> Bool { /* DOES CALLOUT */
        lock()
        if locked.receiving.isBusy || locked.isInCall {
            unlock()
            return false
        }
        if locked.hasClosedInCall {
            // The call has returned.
            locked.hasClosedInCall = false
            CallInProgress.end(by: self)
        }
        if let stream = locked.handlers.stream {
            // What the peer sent before our write failed waits for a paused handler, and so does the end.
            if locked.receiving.isPaused, locked.sending.failure != nil, !locked.sending.closesWhenFinished, locked.receiving.isNew,
                !locked.receiving.isEndTaken,
                locked.handlers.receive != nil
            {
                unlock()
                return false
            }
            if locked.receiving.isNew, !locked.receiving.isEndTaken, !locked.receiving.isPaused || locked.end != nil,
                let body = locked.handlers.receive
            {
                deliverInputAndUnlock(body, stream)
                return true
            }
            if locked.sending.owesRoom, locked.end == nil, let body = locked.handlers.room {
                (locked.sending.owesRoom, locked.isInCall) = (false, true)
                unlock()
                body(stream)
                withLock { locked.isInCall = false }
                return true
            }
        }
        return callEndAndUnlock()
    }

    /// Calls the handler of the end, and releases all of them. Called under the lock, returns without it.
    private func callEndAndUnlock() -> Bool { /* DOES CALLOUT */
        // Without a handler for the end the others are released, which ends the retain cycle. One that is set later is called then.
        guard let end = locked.end,
            locked.phase == .closed || locked.phase == .lingering || locked.phase == .open && locked.end == .endOfStream,
            !locked.isEndReported, let stream = locked.handlers.stream, locked.handlers.end != nil || locked.phase == .closed
        else {
            unlock()
            return false
        }
        // The end is reported last. The report of the peer's end may wait in the loop's queue, or for the end of the lingering after a failure.
        if locked.receiving.isEnded || endIsPeersLocked, !locked.peerFinish.isOver, locked.peerFinish.body != nil {
            unlock()
            peerDidFinish()
            return true
        }
        locked.isEndReported = locked.handlers.end != nil
        var called = Handlers()
        swap(&called, &locked.handlers)
        unlock()
        called.end?(stream, end)
        return true
    }

    /// Shows the handler the stream's own buffer. Called under the lock, returns without it. The lock is not left between the choice of the
    /// handler and the beginning of its call: one that another thread set in between would not hear of what this one leaves.
    private func deliverInputAndUnlock(
        _ body: @Sendable (ByteStream, inout ReceivedBytes) -> Void, _ stream: ByteStream
    ) { /* DOES CALLOUT */
        var input = InputBuffer()
        let (isLast, isLate) = (locked.receiving.isEnded, locked.phase == .closed)
        beginCallLocked()
        locked.receiving.isNew = false
        swap(&input, &locked.receiving.input)
        unlock()
        if isLate { beginLateCall() }
        let used = Self.call(body, stream, input.bytes, isLast: isLast)
        if isLate { CallInProgress.end(by: self) }
        var actions = StreamActions()
        lock()
        noteReplacementLocked(used)
        let isOver = isLast && !locked.receiving.isHandlerReplaced
        if isOver {
            locked.receiving.isEndTaken = true
            // What the handler has sent goes out, and then the stream ends.
            locked.sending.isFinishing = true
        } else if keepsInputLocked {
            input.dropFirst(used)
            locked.receiving.input.prepend(input)
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
        continueLayerLocked(&actions)
        guard case .bytes(let count) = result, keepsInputLocked else {
            ReceiveSpace.giveBack(piece)
            return receivedNothingLocked(result, &actions)
        }
        beginCallLocked()
        let isLayered = locked.layering?.layer != nil
        unlock()
        if isLayered { performEarly(&actions) }
        let bytes = UnsafeRawBufferPointer(start: piece, count: count)
        let used = Self.call(body, stream, bytes, isLast: false)
        lock()
        noteReplacementLocked(used)
        if used < count && keepsInputLocked { locked.receiving.input.append(UnsafeRawBufferPointer(rebasing: bytes[used...])) }
        ReceiveSpace.giveBack(piece)
        endCallLocked(&actions)
    }

    /// What the layer has made due with the bytes: a handler may run the loop until a task has ended that is to be resumed.
    @inline(never) private func performEarly(_ actions: inout StreamActions) { /* DOES CALLOUT */
        var due = StreamActions()
        swap(&due, &actions)
        perform(due)
    }

    @inline(__always) private static func call(
        _ body: @Sendable (ByteStream, inout ReceivedBytes) -> Void, _ stream: ByteStream, _ bytes: UnsafeRawBufferPointer, isLast: Bool
    ) -> Int { /* DOES CALLOUT */
        var received = ReceivedBytes(viewing: bytes, isLast: isLast)
        body(stream, &received)
        return received.consumedCount
    }

    private func beginCallLocked() {
        locked.receiving.isBusy = true
        (locked.receiving.callsAgain, locked.receiving.isHandlerReplaced) = (false, false)
        if locked.sending.sendsInCall > 0 { locked.sending.firstWaits = locked.sending.sendsInCall > 1 }
        locked.sending.sendsInCall = 0
    }

    /// A handler that is set in each call and takes nothing would be called for ever. A chain of different ones is shorter.
    private func noteReplacementLocked(_ used: Int) {
        guard locked.receiving.isHandlerReplaced, used == 0 else { return locked.receiving.callsInVain = 0 }
        // One that pauses is called when somebody resumes it.
        if locked.receiving.isPaused && locked.end == nil { return }
        locked.receiving.callsInVain += 1
        if locked.receiving.callsInVain < 100 { return }
        (locked.receiving.isHandlerReplaced, locked.receiving.callsInVain) = (false, 0)
    }

    /// After a call of the handler: sends what it has gathered, and goes on reading.
    private func endCallLocked(_ actions: inout StreamActions) {
        locked.receiving.isBusy = false
        let callsAgain = locked.receiving.callsAgain || locked.receiving.isHandlerReplaced
        (locked.receiving.callsAgain, locked.receiving.isHandlerReplaced) = (false, false)
        if callsAgain {
            if !locked.receiving.input.isEmpty || locked.receiving.isEnded { locked.receiving.isNew = true }
        } else if locked.receiving.input.count >= options.receiveLimit {
            locked.receiving.isPaused = true
        }
        beginWaitingLayerLocked(&actions)
        if locked.sending.isGathering || locked.sending.isFinishing {
            locked.sending.isGathering = false
            flushLocked(&actions)
        }
        resumeReceivingLocked(&actions)
        if isDeliveryDueLocked { actions.delivers = true }
    }

    /// Whether `deliver` may have something to do.
    var isDeliveryDueLocked: Bool {
        locked.receiving.isNew || locked.sending.owesRoom && locked.handlers.room != nil || locked.end != nil
            || locked.sending.failure != nil
    }

    /// False after `close()` and after a refused `startTLS`, which drop what was received.
    var keepsInputLocked: Bool {
        !locked.receiving.isShut && (locked.phase == .open || locked.end != .closed && locked.phase != .lingering)
    }
}
