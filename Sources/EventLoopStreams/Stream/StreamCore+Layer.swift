// A layer between the transport and the program, and its handshake.

import EventLoop

extension StreamCore {
    /// See `ByteStream.install`.
    func install(_ new: any StreamLayer, timeout: Duration?, isolation: isolated (any Actor)?) async throws { /* DOES CALLOUT */
        do {
            try await waitToSend([], isolation: isolation) { sender, actions in
                precondition(layer == nil, "this stream has TLS already")
                precondition(
                    receiving.reader == nil && !receiving.isBusy, "a task reads this stream; begin TLS when no read is in progress")
                guard canWriteLocked, end == nil else {
                    return actions.resume(sender, throwing: end == .endOfStream ? StreamError.endedEarly : writeErrorLocked())
                }
                handshake = sender
                beginLocked(new, timeout: timeout, &actions)
            }
        } catch {
            change(refuseClearTextLocked)
            throw error
        }
    }

    private func beginLocked(_ new: any StreamLayer, timeout: Duration?, _ actions: inout StreamActions) {
        sendFirstLocked(&actions)
        layer = new
        if let timeout {
            timeouts.handshakeBy = now.advanced(by: timeout).nanoseconds
            armLocked(&actions)
        }
        new.begin()
        // What the peer has sent already belongs to the layer: nothing that was not encrypted counts from now on.
        if !receiving.input.isEmpty { new.receive(receiving.input.bytes) }
        receiving.input.removeAll()
        receiving.isNew = false
        if receiving.isEnded {
            // From now on the layer says what the end is.
            new.receiveEnd()
            receiving.isEnded = false
        }
        sendOutputLocked(of: new, &actions)
        advanceHandshakeLocked(&actions)
        resumeReceivingLocked(&actions)
    }

    /// The program wanted a layer, and did not get it. Bytes that were not encrypted count for nothing, even if the program goes on.
    private func refuseClearTextLocked(_ actions: inout StreamActions) {
        receiving.input.removeAll()
        receiving.isNew = false
        if let failure = sending.failure {
            endLocked(.failed(failure), &actions)
        } else if !sending.isFinishing {
            endLocked(.closed, &actions)
        }
    }

    /// What was written before is sent as it is.
    private func sendFirstLocked(_ actions: inout StreamActions) {
        sending.wire.append(contentsOf: sending.output)
        sending.output.removeAll()
        for writer in sending.writers {
            sending.wire.append(writer.bytes)
            actions.resume(writer)
        }
        sending.writers = []
    }

    /// Looks whether the handshake is over. True if it has succeeded.
    @discardableResult
    func advanceHandshakeLocked(_ actions: inout StreamActions) -> Bool {
        guard let task = handshake, let layer else { return false }
        switch layer.handshake {
        case .inProgress: return false
        case .done:
            handshake = nil
            timeouts.handshakeBy = .max
            actions.resume(task)
            // The peer's first bytes may have come together with its last word.
            receiving.layerMayHaveMore = true
            actions.delivers = true
            sendOutputLocked(of: layer, &actions)
            flushLocked(&actions)
            return true
        case .failed(let error, let failure):
            // The layer's last word says why. It is lost if the connection is reset, so the stream lingers.
            sendOutputLocked(of: layer, &actions)
            handshake = nil
            timeouts.handshakeBy = .max
            actions.resume(task, throwing: error)
            if end == nil { end = .failed(failure) }
            if phase == .open { transport.finishWriting() }
            lingerLocked(&actions)
            return false
        }
    }
}
