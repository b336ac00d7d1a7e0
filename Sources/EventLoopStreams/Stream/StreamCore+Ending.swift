// How a stream ends, and how tasks and handlers learn of it.

import CPlatform
import EventLoop

extension RunLoop.SourceError {
    /// The connection has failed, in both directions. The kernel reports that once: a read after a write that failed with it sees an end that the
    /// peer never sent. Behind EPIPE the peer may have ended properly.
    fileprivate var isOfConnection: Bool {
        guard case .system(_, let errno) = self else { return false }
        return cplatform_is_connection_failure(errno)
    }
}

extension StreamCore {
    /// What an `async` call throws after this end.
    static func error(for end: ByteStream.End) -> any Error {
        switch end {
        case .endOfStream, .closed: StreamError.closed
        case .timedOut: StreamError.timedOut
        case .failed(let error): error
        case .loopEnded: RunLoopEnded()
        }
    }

    // MARK: By the program

    /// At once.
    func closeNow() { /* DOES CALLOUT */
        change { actions in
            if locked.phase == .lingering { return closeLocked(&actions) }
            locked.receiving.input.removeAll()
            locked.receiving.isNew = false
            // A handler that has paused may have kept the end waiting.
            if locked.phase == .closed && !locked.isEndReported && locked.handlers.stream != nil { actions.delivers = true }
            endLocked(.closed, &actions)
        }
    }

    /// When everything is sent, or the peer takes nothing for as long as `writeTimeout`.
    func closeAfterWriting(writeTimeout: Duration? = nil) { /* DOES CALLOUT */
        change { actions in
            guard locked.phase == .open else { return }
            if let writeTimeout, writeTimeout < locked.timeouts?.writeTimeout ?? .seconds(Int64.max) || !locked.sending.closesWhenFinished {
                madeTimeoutsLocked().writeTimeout = writeTimeout
                startWaitingLocked()
                armLocked(&actions)
            }
            if locked.sending.closesWhenFinished { return }
            locked.sending.closesWhenFinished = true
            if let failure = locked.sending.failure { return endLocked(.failed(failure), &actions) }
            if locked.sending.isFinished { return lingerLocked(&actions) }
            locked.sending.isFinishing = true
            flushLocked(&actions)
            armLocked(&actions)
        }
    }

    // MARK: By events

    /// Sets the end, unless there is one, and closes.
    func endLocked(_ new: ByteStream.End, _ actions: inout StreamActions) {
        guard locked.phase == .open else { return }
        sendGatheredLocked()
        setEndLocked(new)
        closeLocked(&actions)
    }

    /// The stream has one end. If that is `.endOfStream`, what ends the writing side later is kept for those who write.
    func setEndLocked(_ new: ByteStream.End) {
        if locked.end == nil {
            locked.end = new
        } else if locked.end == .endOfStream, locked.laterEnd == nil {
            locked.laterEnd = LaterEnd(new)
        }
    }

    /// The transport is to leave the loop. Tasks that wait learn of the end.
    func closeLocked(_ actions: inout StreamActions) {
        guard locked.phase == .open || locked.phase == .lingering else { return }
        locked.phase = .closing
        releaseWaitersLocked(&actions)
        actions.closes = true
    }

    /// Nobody waits any more.
    private func releaseWaitersLocked(_ actions: inout StreamActions) {
        dropOutputLocked(throwing: writeErrorLocked(), &actions)
        if let task = handshake {
            handshake = nil
            actions.resume(task, throwing: locked.end.map(Self.error) ?? StreamError.closed)
        }
        wakeReaderLocked(&actions)
    }

    /// The transport is leaving the loop: it may not be used from now on. On the loop's thread.
    func stopUsingTransport(_ failure: RunLoop.SourceError?) {
        withLock {
            if locked.phase == .open || locked.end == nil { setEndLocked(failure.map { .failed($0) } ?? .loopEnded) }
            locked.phase = .closing
        }
    }

    /// The transport has left the loop. On the loop's thread.
    func finishWithoutTransport() { /* DOES CALLOUT */
        var actions = StreamActions()
        lock()
        locked.phase = .closed
        // The loop may have ended with the call in its queue.
        locked.isDeliveryScheduled = false
        if !loop.isValid {
            abandonCallsLocked()
        } else if isInLateCallLocked {
            locked.hasClosedInCall = true
            beginLateCall()
        }
        releaseWaitersLocked(&actions)
        let (timer, handler) = (locked.timeouts?.timer, locked.closedHandler)
        locked.closedHandler = nil
        unlock()
        timer?.invalidate()
        // Before the program's handlers are called: one may run the loop until a task has ended, or the server.
        actions.delivers = false
        perform(actions)
        handler?()
        endWatchOfPeerFinish()
        deliver()
    }

    /// The transport has closed, so the end of the loop is not reported to this stream any more. If the handler that is being called ends its thread,
    /// what is due behind it follows all the same. `CallInProgress.end` ends this.
    @inline(never) func beginLateCall() {
        CallInProgress.begin(by: self) {
            guard self.loop.isOurs else { return }
            self.change { actions in
                self.abandonCallsLocked()
                actions.delivers = self.isDeliveryDueLocked
            }
        }
    }

    /// A handler that has not returned has ended its thread, and will never return: the end is reported all the same. A framing, which has the input
    /// of a stream without such a handler, may be another thread's.
    private func abandonCallsLocked() {
        if locked.handlers.receive != nil { locked.receiving.isBusy = false }
        locked.isInCall = false
    }

    /// Calls `body` once, when the transport has left the loop and its descriptor is closed; at once if it has. Only one body.
    func onClosed(_ body: @escaping @Sendable () -> Void) { /* DOES CALLOUT */
        let isClosed = withLock {
            if locked.phase != .closed { locked.closedHandler = body }
            return locked.phase == .closed
        }
        if isClosed { body() }
    }

    /// The peer takes no more bytes. Reads what it has sent before, and ends the stream. On the loop's thread.
    func drainBeforeFailureLocked(_ actions: inout StreamActions) {
        guard let failure = locked.sending.failure, locked.phase == .open, !locked.receiving.isBusy || locked.end != nil else { return }
        let piece = ReceiveSpace.take()
        defer { ReceiveSpace.giveBack(piece) }
        var emptyTurns = 0
        while locked.end == nil {  // ends: the input grows up to its limit, and few iterations bring nothing
            // Without its layer, what came would be read in the clear.
            if locked.receiving.isShut { return endLocked(.failed(failure), &actions) }
            // What the peer has ended is delivered as its end, and so is its last byte.
            if locked.receiving.isEnded {
                // The kernel holds no more. Tasks read what is held, and then the end, also after this. A handler that has been given the end is not
                // called again.
                let waits = locked.handlers.receive != nil && !locked.receiving.isEndTaken && !locked.sending.closesWhenFinished
                return waits ? wakeReaderLocked(&actions) : endLocked(.failed(failure), &actions)
            }
            // Who has asked for the end, and for no bytes, would wait for ever. So everything is read at once, and a task may take it after the end.
            let isUnread = !locked.receiving.isForTasks && locked.handlers.receive == nil && locked.handlers.end != nil
            let room = (isUnread ? Self.unreadLimit : receiveLimitLocked) - locked.receiving.input.count
            if room <= 0 {
                // More may wait in the kernel. This goes on when somebody has taken some, but a stream that is closing waits for nobody.
                let waits = !isUnread && !locked.sending.closesWhenFinished
                return waits ? wakeReaderLocked(&actions) : endLocked(.failed(failure), &actions)
            }
            let size = min(ReceiveSpace.size, room)
            let result = fillLocked(UnsafeMutableRawBufferPointer(start: piece, count: size))
            if case .bytes(let count) = result {
                locked.receiving.input.append(UnsafeRawBufferPointer(start: piece, count: count))
                locked.receiving.isNew = true
            }
            continueLayerLocked(&actions)
            switch result {
            case .bytes: break
            case .end where failure.isOfConnection && !locked.receiving.holdsEnd: return endLocked(.failed(failure), &actions)
            case .end: receivedNothingLocked(.end, &actions)
            case .wouldBlock where locked.receiving.layerMayHaveMore && locked.end == nil:
                // The layer has bytes that are not the program's, and there may be more behind them.
                emptyTurns += 1
                if emptyTurns < 4 { continue }
                return actions.delivers = true
            default: return endLocked(.failed(failure), &actions)
            }
        }
        endLocked(.failed(failure), &actions)
    }

    /// More than the kernel holds of a connection: Linux gives it 6 MiB by itself. A peer that takes no bytes may still send.
    private static var unreadLimit: Int { 8 << 20 }

    // MARK: Lingering

    /// Everything is sent. If the peer sends more, closing now would reset the connection, and destroy what is on its way to the peer.
    func lingerLocked(_ actions: inout StreamActions) {
        if locked.end == nil { locked.end = .closed }
        guard transport.losesBytesOnClose, !locked.receiving.isEnded, locked.phase == .open else { return closeLocked(&actions) }
        locked.phase = .lingering
        locked.receiving.input.removeAll()
        locked.receiving.isNew = false
        releaseWaitersLocked(&actions)
        madeTimeoutsLocked().closeBy = now.advanced(by: Self.lingerTime).nanoseconds
        armLocked(&actions)
        setInterestLocked(read: true, write: false)
        // After the call of a handler for received bytes, the end is delivered anyway.
        let isInReceiveCall = locked.receiving.isBusy && locked.handlers.receive != nil
        actions.delivers = actions.delivers || locked.handlers.stream != nil && !isInReceiveCall
    }

    private static var lingerTime: Duration { .seconds(5) }
    private static var lingerBytes: UInt64 { 1 << 20 }

    /// Reads once and forgets it.
    func dropReceivedLocked(_ actions: inout StreamActions) {
        let piece = ReceiveSpace.take()
        defer { ReceiveSpace.giveBack(piece) }
        switch transport.read(into: UnsafeMutableRawBufferPointer(start: piece, count: ReceiveSpace.size)) {
        case .wouldBlock: return
        case .bytes(let count):
            let timeouts = madeTimeoutsLocked()
            timeouts.dropped += UInt64(count)
            if timeouts.dropped < Self.lingerBytes { return }
        // Not `isEnded`: after a failed handshake, a task that reads must not take this for the end of what it wanted.
        case .end, .failed: break
        }
        closeLocked(&actions)
    }
}
