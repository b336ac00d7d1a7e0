// A layer between the transport and the program, and its handshake.

import EventLoop
import EventLoopLibC

/// What concerns the layer of a stream. Guarded by the stream's lock. Streams without a layer have none.
final class Layering {
    var layer: (any StreamLayer)?
    /// The task that waits for the end of the handshake.
    var handshake: Sender?
    /// A layer that begins when the handler or the framing that has the input returns.
    var layerToBegin: (any StreamLayer)?
    var connectedHost: String?
}

extension StreamCore {
    private func madeLayeringLocked() -> Layering {
        if let layering = locked.layering { return layering }
        let made = Layering()
        locked.layering = made
        return made
    }

    var layer: (any StreamLayer)? {
        get { locked.layering?.layer }
        set { madeLayeringLocked().layer = newValue }
    }

    var handshake: Sender? {
        get { locked.layering?.handshake }
        set { if newValue == nil { locked.layering?.handshake = nil } else { madeLayeringLocked().handshake = newValue } }
    }

    var layerToBegin: (any StreamLayer)? {
        get { locked.layering?.layerToBegin }
        set { if newValue == nil { locked.layering?.layerToBegin = nil } else { madeLayeringLocked().layerToBegin = newValue } }
    }

    /// The name that the stream was connected to.
    var connectedHost: String? {
        get { locked.layering?.connectedHost }
        set { madeLayeringLocked().connectedHost = newValue }
    }

    /// See `ByteStream.install`.
    func install(_ new: any StreamLayer, timeout: Duration?, isolation: isolated (any Actor)?) async throws { /* DOES CALLOUT */
        if withLock({ layer != nil }) { throw Self.refusal(of: EALREADY) }
        do {
            try await waitToSend([], isolation: isolation) { sender, actions in
                // Two calls at once: both fail, because nobody can know which one the peer's bytes are for.
                if layer != nil { return actions.resume(sender, throwing: Self.refusal(of: EALREADY)) }
                if locked.receiving.reader != nil { return actions.resume(sender, throwing: Self.refusal(of: EBUSY)) }
                guard canWriteLocked, locked.end == nil else {
                    return actions.resume(sender, throwing: locked.end == .endOfStream ? StreamError.endedEarly : writeErrorLocked())
                }
                handshake = sender
                beginLocked(new, timeout: timeout, &actions)
            }
        } catch {
            change(refuseClearTextLocked)
            throw error
        }
    }

    private static func refusal(of errno: Int32) -> RunLoop.SourceError {
        .system(operation: "beginning a layer of a stream", errno: errno)
    }

    private func beginLocked(_ new: any StreamLayer, timeout: Duration?, _ actions: inout StreamActions) {
        sendFirstLocked(&actions)
        layer = new
        if let timeout {
            madeTimeoutsLocked().handshakeBy = now.advanced(by: timeout).nanoseconds
            armLocked(&actions)
        }
        layerToBegin = new
        if locked.receiving.isBusy { flushLocked(&actions) } else { beginWaitingLayerLocked(&actions) }
    }

    /// The layer gets what was received and not taken, so it begins when nobody has the input.
    func beginWaitingLayerLocked(_ actions: inout StreamActions) {
        guard let new = layerToBegin else { return }
        layerToBegin = nil
        guard locked.phase == .open, let task = handshake else { return }
        if locked.receiving.isEndTaken {
            // The handler has been given the end.
            handshake = nil
            return actions.resume(task, throwing: StreamError.endedEarly)
        }
        new.begin()
        // What the peer has sent already belongs to the layer: nothing that was not encrypted counts from now on.
        if !locked.receiving.input.isEmpty { new.receive(locked.receiving.input.bytes) }
        locked.receiving.input.removeAll()
        locked.receiving.isNew = false
        if locked.receiving.isEnded {
            // From now on the layer says what the end is.
            new.receiveEnd()
            locked.receiving.isEnded = false
        }
        sendOutputLocked(of: new, &actions)
        advanceHandshakeLocked(&actions)
        resumeReceivingLocked(&actions)
    }

    /// The program wanted a layer, and did not get it. Bytes that were not encrypted count for nothing, even if the program goes on.
    private func refuseClearTextLocked(_ actions: inout StreamActions) {
        if locked.phase != .open { return }
        locked.receiving.input.removeAll()
        (locked.receiving.isNew, locked.receiving.isShut) = (false, true)
        setInterestLocked(read: false)
        if let failure = locked.sending.failure { return endLocked(.failed(failure), &actions) }
        if !locked.sending.isFinishing || locked.sending.isFinished { return endLocked(.closed, &actions) }
        // What was written before is still sent.
        locked.sending.closesWhenFinished = true
        flushLocked(&actions)
    }

    /// What was written before is sent as it is.
    private func sendFirstLocked(_ actions: inout StreamActions) {
        locked.sending.wire.append(contentsOf: locked.sending.output)
        locked.sending.output.removeAll()
        for writer in locked.sending.writers {
            locked.sending.wire.append(writer.bytes)
            if writer.isTask { actions.resume(writer) }
        }
        (locked.sending.writers, locked.sending.heldBack) = ([], 0)
    }

    /// Before a timeout ends the stream: the peer gets the layer's end, if it has got everything else. Otherwise it must not take what it got for
    /// everything.
    func sayGoodbyeLocked(_ actions: inout StreamActions) {
        guard let layer, handshake == nil, locked.phase == .open, locked.sending.failure == nil, !locked.sending.isLayerFinished else {
            return
        }
        guard locked.sending.isEmpty, locked.sending.writers.isEmpty, !locked.sending.isLayerBlocked, layer.finishWriting() == .wrote else {
            return
        }
        locked.sending.isLayerFinished = true
        locked.sending.wire.append(layer.takeOutput())
        flushLocked(&actions)
    }

    /// Looks whether the handshake is over. True if it has succeeded.
    @discardableResult
    func advanceHandshakeLocked(_ actions: inout StreamActions) -> Bool {
        guard let task = handshake, let layer else { return false }
        switch layer.handshake {
        case .inProgress: return false
        case .done:
            handshake = nil
            locked.timeouts?.handshakeBy = .max
            actions.resume(task)
            // The peer's first bytes may have come together with its last word.
            locked.receiving.layerMayHaveMore = true
            actions.delivers = true
            sendOutputLocked(of: layer, &actions)
            flushLocked(&actions)
            return true
        case .failed(let error, let failure):
            // The layer's last word says why. It is lost if the connection is reset, so the stream lingers.
            sendOutputLocked(of: layer, &actions)
            handshake = nil
            locked.timeouts?.handshakeBy = .max
            actions.resume(task, throwing: error)
            if locked.end == nil { locked.end = .failed(failure) }
            if locked.phase == .open { transport.finishWriting() }
            lingerLocked(&actions)
            return false
        }
    }
}
