// Sending on a connection to a named port.

internal import CPlatform

#if canImport(Glibc)
import Glibc
#elseif canImport(Musl)
import Musl
#else
import Darwin
#endif

extension RemoteConnection {
    enum Sent {
        case whole
        /// What is left stands in the queue.
        case partly(UnsentFrame)
        case failed(RunLoop.PortError)
        /// The other end is gone.
        case ended
    }

    /// Sends a one-way message; blocks until there is room for it, or the deadline.
    func send(id: Int32, data: [UInt8], descriptors: [Int32], deadline: @autoclosure () -> RunLoop.Instant) throws(RunLoop.PortError)
    { /* DOES CALLOUT */
        try check(data, descriptors)
        let frame = OutgoingFrame(.message, conversation: 0, id: id, body: data, descriptors: descriptors.count)
        let sent = state.withLock { transmit(frame, descriptors, latch: Latch(), &$0) }
        try finish(sent, deadline())
    }

    /// Notes the waiter and sends its request; blocks until there is room for it, or the deadline. When this throws, nobody waits any more.
    func sendRequest(
        _ waiter: ReplyWaiter, id: Int32, data: [UInt8], descriptors: [Int32], deadline: @autoclosure () -> RunLoop.Instant
    ) throws(RunLoop.PortError) { /* DOES CALLOUT */
        try check(data, descriptors)
        let sent = state.withLock { beginRequest(waiter, id, data, descriptors, latch: Latch(), &$0) }
        do { try finish(sent, deadline()) } catch {
            state.withLock { _ = removeWaiter(waiter, &$0) }
            throw error
        }
    }

    /// Notes the waiter and sends what there is room for of its request; the engine sends the rest. When this throws, nobody waits.
    func startRequest(
        _ waiter: ReplyWaiter, id: Int32, data: [UInt8], descriptors: [Int32]
    ) throws(RunLoop.PortError) { /* DOES CALLOUT */
        try check(data, descriptors)
        switch state.withLock({ beginRequest(waiter, id, data, descriptors, latch: nil, &$0) }) {
        case .whole, .partly: return
        case .failed(let error): throw error
        case .ended:
            end(.becameInvalid)
            throw .invalidPort
        }
    }

    func check(_ data: [UInt8], _ descriptors: [Int32]) throws(RunLoop.PortError) {
        if data.count > maximumLength { throw .messageTooLarge(data.count) }
        if descriptors.count > Frame.descriptorLimit { throw .messageTooLarge(descriptors.count) }
        if belongsToParentProcess { throw .invalidPort }
    }

    /// Under the lock.
    func beginRequest(
        _ waiter: ReplyWaiter, _ id: Int32, _ data: [UInt8], _ descriptors: [Int32], latch: @autoclosure () -> Latch?, _ state: inout State
    ) -> Sent {
        state.lastConversation += 1
        waiter.conversation = state.lastConversation
        let frame = OutgoingFrame(
            .request, conversation: waiter.conversation, id: id, body: data, descriptors: descriptors.count)
        let sent = transmit(frame, descriptors, latch: latch(), &state)
        switch sent {
        case .failed, .ended: return sent
        case .partly(let unsent):
            waiter.unsent = unsent
            unsent.sender = waiter.kind
        case .whole: break
        }
        state.waiters[waiter.conversation] = waiter
        if !waiter.isThread {
            state.passiveWaiters += 1
            if state.reader == .nobody { state.reader = .engine }
            updateWatch(&state)
        }
        return sent
    }

    /// Sends what there is room for, and queues the rest, behind what is queued. Under the lock: one frame is not sent into another.
    private func transmit(
        _ frame: consuming OutgoingFrame, _ descriptors: [Int32], latch: @autoclosure () -> Latch?, _ state: inout State
    ) -> Sent {
        if state.isInvalid { return .failed(.invalidPort) }
        if state.unsent.isEmpty {
            switch frame.send(to: descriptor, passing: descriptors) {
            case 0: return .whole
            case EAGAIN: break
            case EPIPE, ECONNRESET, ENOTCONN: return .ended
            case let code where frame.offset == 0: return .failed(.system(operation: "sendmsg", errno: code))
            // A frame that has begun and cannot go on leaves nothing to go on with.
            default: return .ended
            }
        }
        let unsent = UnsentFrame(frame, descriptors: descriptors, latch: latch())
        unsent.ticket = state.unsent.append(unsent)
        updateWatch(&state)
        return .partly(unsent)
    }

    /// What the sender is told, when it has gone or not.
    private func finish(_ sent: Sent, _ deadline: @autoclosure () -> RunLoop.Instant) throws(RunLoop.PortError) { /* DOES CALLOUT */
        switch sent {
        case .whole: return
        case .failed(let error): throw error
        case .ended:
            end(.becameInvalid)
            throw .invalidPort
        case .partly(let unsent):
            _ = unsent.latch?.wait(until: deadline())
            let (isOver, failure) = state.withLock { state in
                if !unsent.isOver { withdraw(unsent, &state) }
                return (unsent.isOver, unsent.failure)
            }
            if let failure { throw failure }
            if !isOver { throw .sendTimedOut }
        }
    }

    /// Takes back a frame whose time has passed. One that has begun must be ended, or nothing could follow it; its seal says that it is not to be
    /// read. Under the lock.
    func withdraw(_ unsent: UnsentFrame, _ state: inout State) {
        if unsent.frame.offset == 0 {
            state.unsent.remove(unsent.ticket)
            updateWatch(&state)
        } else {
            unsent.frame.seal = Frame.cancelled
        }
    }

    /// Sends what waits. On the engine's thread, which the set has told that there is room.
    func sendQueued() { /* DOES CALLOUT */
        var tidings = Tidings()
        let isBroken = state.withLock { state in
            while !state.isInvalid, let first = state.unsent.first {  // ends: one goes a turn, or there is no more room
                let code = first.frame.send(to: descriptor, passing: first.descriptors)
                if code == EAGAIN { break }
                if code != 0 {
                    guard first.frame.offset == 0, code != EPIPE, code != ECONNRESET, code != ENOTCONN else { return true }
                    first.failure = .system(operation: "sendmsg", errno: code)
                    if let waiter = state.waiters[first.frame.conversation], waiter.unsent === first, removeWaiter(waiter, &state) {
                        tidings.finish(waiter, .failure(.system(operation: "sendmsg", errno: code)))
                    }
                }
                first.isOver = true
                tidings.open(first.latch)
                tidings.wake(first.sender)
                state.unsent.remove(first.ticket)
            }
            updateWatch(&state)
            return false
        }
        tidings.tell()
        if isBroken { end(.becameInvalid) }
    }
}
