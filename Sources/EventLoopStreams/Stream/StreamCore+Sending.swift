// From the program to the transport.

import EventLoop
import EventLoopLibC

extension StreamCore {
    var canWriteLocked: Bool {
        locked.phase == .open && !locked.sending.isFinishing && locked.sending.failure == nil
            && (locked.end == nil || locked.end == .endOfStream)
    }

    /// Why nothing can be written.
    func writeErrorLocked() -> any Error {
        if let failure = locked.sending.failure { return failure }
        guard let end = locked.laterEnd?.end ?? locked.end, end != .endOfStream else { return StreamError.closed }
        return Self.error(for: end)
    }

    // MARK: Handlers

    /// Queues bytes. False if it is full now, or if the stream takes no more.
    func send(_ bytes: [UInt8]) -> Bool { /* DOES CALLOUT */
        change { actions in
            guard canWriteLocked else { return false }
            enqueueLocked(bytes, &actions)
            return canWriteLocked && locked.sending.waiting < options.highWater
        }
    }

    /// The same for bytes that the caller keeps: what the kernel takes at once is not copied.
    func send(_ bytes: UnsafeRawBufferPointer) -> Bool { /* DOES CALLOUT */
        change { actions in
            guard canWriteLocked else { return false }
            let sent = sendInPlaceLocked(bytes, &actions)
            if sent < bytes.count && canWriteLocked { enqueueLocked(UnsafeRawBufferPointer(rebasing: bytes[sent...]), &actions) }
            return canWriteLocked && locked.sending.waiting < options.highWater
        }
    }

    /// How many bytes the transport has taken: none if others wait, or if a layer has to see them. It is asked until it says that it takes no more,
    /// because a file that took a part never reports room: its next answer is why.
    private func sendInPlaceLocked(_ bytes: UnsafeRawBufferPointer, _ actions: inout StreamActions) -> Int {
        guard layer == nil, locked.sending.isEmpty, locked.sending.writers.isEmpty, !locked.sending.isBlocked, !bytes.isEmpty else {
            return 0
        }
        if isInHandlerLocked {
            if waitsForReturnLocked && (locked.sending.sendsInCall > 0 || bytes.count <= OutputQueue.gatheredCapacity) { return 0 }
            locked.sending.sendsInCall = min(locked.sending.sendsInCall + 1, 2)
        }
        var sent = 0
        while sent < bytes.count {  // ends: the rest becomes shorter with each iteration, or the transport takes no more
            var rest = UnsafeRawBufferPointer(rebasing: bytes[sent...])
            switch withUnsafePointer(to: &rest, { transport.write(UnsafeBufferPointer(start: $0, count: 1)) }) {
            case .bytes(let count):
                sent += count
                locked.sending.total &+= UInt64(count)
                noteActivityLocked()
            case .wouldBlock, .end:
                blockLocked()
                return sent
            case .failed(let error):
                locked.sending.failure = error
                writingFailedLocked(&actions)
                return sent
            }
        }
        return sent
    }

    /// The first bytes that a handler sends go out at once. Further ones wait for each other until it returns, and go out in one call; in the next
    /// call, the first ones wait as well. If the handler runs its loop instead of returning, the loop sends them.
    private func enqueueLocked(_ bytes: [UInt8], isTask: Bool = false, _ actions: inout StreamActions) {
        if !locked.sending.writers.isEmpty {
            // Behind the tasks that wait, which it must not overtake or starve.
            locked.sending.writers.append(Sender(bytes))
            locked.sending.heldBack += bytes.count
            (locked.sending.wasFull, locked.sending.owesRoom) = (true, false)
            return
        }
        if locked.sending.isEmpty { startWaitingLocked() }
        locked.sending.output.append(bytes)
        if isTask && locked.sending.queued < options.highWater && gathersLocked { return }
        sendQueuedLocked(&actions)
    }

    /// The same for bytes that the caller keeps. A few behind others are copied without an array of their own.
    private func enqueueLocked(_ bytes: UnsafeRawBufferPointer, _ actions: inout StreamActions) {
        if locked.sending.writers.isEmpty && locked.sending.output.gather(bytes) { return sendQueuedLocked(&actions) }
        enqueueLocked([UInt8](bytes), &actions)
    }

    private func sendQueuedLocked(_ actions: inout StreamActions) {
        tryToSendLocked(&actions)
        if locked.sending.waiting >= options.highWater { (locked.sending.wasFull, locked.sending.owesRoom) = (true, false) }
        if !locked.sending.isEmpty { armLocked(&actions) }
    }

    /// Whether what is queued waits for the end of the pass that the loop's thread is in.
    private var gathersLocked: Bool {
        if locked.sending.isBlocked || !loop.isCurrent { return false }
        if !locked.sending.waitsForPassEnd { locked.sending.waitsForPassEnd = loop.callAtEndOfPass(self) }
        return locked.sending.waitsForPassEnd
    }

    /// Sends what tasks have written in the pass, and what a handler has sent that runs its loop.
    func passWillEnd() { /* DOES CALLOUT */
        change { actions in
            (locked.sending.waitsForPassEnd, locked.sending.isGathering) = (false, false)
            if !locked.sending.isEmpty { flushLocked(&actions) }
        }
    }

    private func tryToSendLocked(_ actions: inout StreamActions) {
        if locked.sending.isBlocked { return }
        if isInHandlerLocked {
            let waits = waitsForReturnLocked
            locked.sending.sendsInCall = min(locked.sending.sendsInCall + 1, 2)
            // A full queue goes out at once, so that the result of `send` says what the kernel does not take.
            if waits && locked.sending.queued < options.highWater {
                if locked.sending.isGathering { return }
                locked.sending.isGathering = true
                // If the handler runs its loop instead of returning, a pass of that run ends first.
                if !gathersLocked { setInterestLocked(write: true) }
                return
            }
        }
        flushLocked(&actions)
    }

    /// Whether the caller is the handler of received bytes, or code that it calls.
    private var isInHandlerLocked: Bool { locked.receiving.isBusy && locked.handlers.receive != nil && loop.isCurrent }

    /// Whether what the handler sends next waits until it returns.
    private var waitsForReturnLocked: Bool { locked.sending.sendsInCall > 0 || locked.sending.firstWaits }

    /// Before the stream ends: sends what waits only for the end of a call or of a pass, as far as the kernel takes it.
    func sendGatheredLocked() {
        guard locked.phase == .open, locked.sending.failure == nil, !locked.sending.isBlocked, !locked.sending.isEmpty else { return }
        // What was written after `startTLS` does not go out in the clear.
        if layerToBegin != nil { return }
        if let layer { guard case .done = layer.handshake else { return } }
        transferLocked()
        locked.sending.failure = nil
    }

    // MARK: Tasks

    /// Queues bytes if there is room. Throws why nothing can be written.
    func write(_ bytes: [UInt8]) throws -> Admission { /* DOES CALLOUT */
        try change { actions -> Result<Admission, any Error> in
            guard canWriteLocked else { return .failure(writeErrorLocked()) }
            guard locked.sending.writers.isEmpty, locked.sending.waiting < options.highWater else { return .success(.full) }
            guard let admission = locked.sending.takeTurn(bytes.count) else { return .failure(CancellationError()) }
            enqueueLocked(bytes, isTask: true, &actions)
            // The transport failed to take them.
            return locked.sending.failure.map { .failure($0) } ?? .success(admission)
        }.get()
    }

    /// Waits for room, in the order of the calls, and queues the bytes.
    func waitToWrite(_ bytes: [UInt8], isolation: isolated (any Actor)?) async throws { /* DOES CALLOUT */
        try await waitToSend(bytes, isolation: isolation) { sender, actions in
            guard canWriteLocked else { return actions.resume(sender, throwing: writeErrorLocked()) }
            locked.sending.writers.append(sender)
            flushLocked(&actions)
        }
    }

    /// Signals the end to the peer, behind everything that was written, and waits until that is sent.
    func finishWriting(isolation: isolated (any Actor)?) async throws { /* DOES CALLOUT */
        try await waitToSend([], isolation: isolation) { sender, actions in
            if locked.sending.isFinished && !locked.sending.closesWhenFinished { return actions.resume(sender) }
            guard canWriteLocked || locked.sending.isFinishing && locked.phase == .open && locked.sending.failure == nil else {
                return actions.resume(sender, throwing: writeErrorLocked())
            }
            locked.sending.isFinishing = true
            locked.sending.finishers.append(sender)
            flushLocked(&actions)
        }
    }

    /// The same without waiting.
    func finishSending() { /* DOES CALLOUT */
        change { actions in
            guard canWriteLocked else { return }
            locked.sending.isFinishing = true
            flushLocked(&actions)
        }
    }

    /// Calls `register` under the lock with a sender that it keeps or resumes.
    func waitToSend(
        _ bytes: [UInt8], isolation: isolated (any Actor)?, _ register: (Sender, inout StreamActions) -> Void
    ) async throws { /* DOES CALLOUT */
        let ticket = withLock(nextTicketLocked)
        try await withTaskCancellationHandler(
            operation: {
                try await withCheckedThrowingContinuation(isolation: isolation) { continuation in
                    change { actions in
                        let sender = Sender(bytes, ticket: ticket, continuation)
                        // Under the lock: a later cancellation finds the sender.
                        if Task.isCancelled { return actions.resume(sender, throwing: CancellationError()) }
                        register(sender, &actions)
                    }
                }
            }, onCancel: { cancel(ticket) }, isolation: isolation)
    }

    /// Ends the wait of a task that was cancelled. What it wanted to write is not queued; what it wanted to read stays.
    func cancel(_ ticket: UInt64) { /* DOES CALLOUT */
        change { actions in
            if locked.receiving.reader?.ticket == ticket, let reader = locked.receiving.reader {
                locked.receiving.reader = nil
                actions.resume(reader, .failure(CancellationError()))
            } else if let index = locked.sending.writers.firstIndex(where: { $0.ticket == ticket }) {
                actions.resume(locked.sending.writers.remove(at: index), throwing: CancellationError())
                // It may have been the last before the end.
                flushLocked(&actions)
            } else if let index = locked.sending.finishers.firstIndex(where: { $0.ticket == ticket }) {
                actions.resume(locked.sending.finishers.remove(at: index), throwing: CancellationError())
            } else if handshake?.ticket == ticket, let task = handshake {
                handshake = nil
                actions.resume(task, throwing: CancellationError())
                // Half a handshake is no use.
                endLocked(.closed, &actions)
            }
        }
    }

    // MARK: The transport

    /// Sends what it takes, lets waiting writers queue theirs, and finishes when everything is sent.
    func flushLocked(_ actions: inout StreamActions) {
        guard locked.phase == .open, locked.sending.failure == nil else { return }
        repeat {  // ends: writers that were let in are gone from the list
            if !locked.sending.isBlocked { transferLocked() }
            if locked.sending.failure != nil { return writingFailedLocked(&actions) }
        } while admitWritersLocked(&actions)
        // Also if the layer takes no more: then room is of no use.
        if !locked.sending.isGathering && (locked.sending.isEmpty || !locked.sending.isBlocked) { setInterestLocked(write: false) }
        if locked.sending.wasFull && locked.sending.waiting <= options.lowWater {
            (locked.sending.wasFull, locked.sending.owesRoom) = (false, true)
            if locked.handlers.room != nil { actions.delivers = true }
        }
        finishLocked(&actions)
        if locked.receiving.holdsEnd && !holdsEndLocked { receiveHeldEndLocked(&actions) }
        if !locked.sending.isEmpty || locked.sending.isLayerBlocked { armLocked(&actions) }
    }

    private func transferLocked() {
        while fillWireLocked() {  // ends: the queue becomes shorter with each iteration, or the transport takes no more
            let usesWire = !locked.sending.isWireEmpty
            let result = usesWire ? locked.sending.wire.write(to: transport) : locked.sending.output.write(to: transport)
            switch result {
            case .bytes(let count):
                if usesWire { locked.sending.wire.dropFirst(count) } else { locked.sending.output.dropFirst(count) }
                locked.sending.total &+= UInt64(count)
                noteActivityLocked()
                startWaitingLocked()
            case .wouldBlock, .end: return blockLocked()
            case .failed(let error): return locked.sending.failure = error
            }
            if usesWire { locked.sending.answers = min(locked.sending.answers, locked.sending.wire.count) }
        }
    }

    /// The transport takes no more until it reports room.
    private func blockLocked() {
        locked.sending.isBlocked = true
        setInterestLocked(write: true)
    }

    /// Has the layer make the next bytes if all earlier ones are sent. False if there is nothing to send.
    private func fillWireLocked() -> Bool {
        guard let layer else { return !locked.sending.isWireEmpty || !locked.sending.output.isEmpty }
        // Ends: the output becomes shorter with each iteration.
        while locked.sending.isWireEmpty {
            if handshake != nil || locked.sending.output.isEmpty || locked.sending.isLayerBlocked { return false }
            // Whole records of TLS, which have 16,384 bytes.
            let result = locked.sending.output.passFirst(65_536, to: layer)
            locked.sending.wire.append(layer.takeOutput())
            if !noteLayerWriteLocked(result) { return false }
        }
        return true
    }

    /// True if the layer has taken what it was given.
    private func noteLayerWriteLocked(_ result: LayerWrite) -> Bool {
        switch result {
        case .wrote: return true
        case .wantsInput where locked.receiving.isEnded:
            // The peer has ended its side in the middle of what the layer waits for.
            locked.sending.failure = Self.layerWaitsForEver
        case .wantsInput:
            locked.sending.isLayerBlocked = true
            // It gets its bytes even if the program has paused reading.
            setInterestLocked(read: true)
        case .failed(let error): locked.sending.failure = error
        }
        return false
    }

    /// Queues what waiting tasks write, when there is room. True if something was queued.
    private func admitWritersLocked(_ actions: inout StreamActions) -> Bool {
        if locked.sending.writers.isEmpty || locked.sending.queued > options.lowWater { return false }
        var count = 0
        while count < locked.sending.writers.count, locked.sending.queued < options.highWater {
            let writer = locked.sending.writers[count]
            if locked.sending.isEmpty { startWaitingLocked() }
            locked.sending.output.append(writer.bytes)
            if writer.isTask { actions.resume(writer) } else { locked.sending.heldBack -= writer.bytes.count }
            count += 1
        }
        locked.sending.writers.removeFirst(count)
        armLocked(&actions)
        return true
    }

    static var layerWaitsForEver: RunLoop.SourceError { .system(operation: "writing through a layer", errno: EPIPE) }

    func writingFailedLocked(_ actions: inout StreamActions) {
        dropOutputLocked(throwing: writeErrorLocked(), &actions)
        setInterestLocked(write: false)
        // What the peer sent before is read first, on the loop's thread.
        actions.delivers = true
    }

    func dropOutputLocked(throwing error: @autoclosure () -> any Error, _ actions: inout StreamActions) {
        // Usually nobody waits and everything is sent: an error is an allocation.
        if !locked.sending.writers.isEmpty || !locked.sending.finishers.isEmpty {
            let error = error()
            for sender in locked.sending.writers + locked.sending.finishers { actions.resume(sender, throwing: error) }
            (locked.sending.writers, locked.sending.finishers, locked.sending.heldBack) = ([], [], 0)
        }
        if !locked.sending.output.isEmpty { locked.sending.output.removeAll() }
        if !locked.sending.isWireEmpty { locked.sending.wire.removeAll() }
    }

    /// After the last byte: signals the end to the peer, and resumes the tasks that wait for that.
    private func finishLocked(_ actions: inout StreamActions) {
        guard locked.sending.isFinishing, !locked.sending.isFinished, locked.sending.writers.isEmpty, locked.sending.isEmpty,
            handshake == nil
        else { return }
        if let layer, !locked.sending.isLayerFinished {
            if locked.sending.isLayerBlocked { return }
            let result = layer.finishWriting()
            startWaitingLocked()
            locked.sending.wire.append(layer.takeOutput())
            locked.sending.isLayerFinished = noteLayerWriteLocked(result)
            if locked.sending.failure != nil { return writingFailedLocked(&actions) }
            return flushLocked(&actions)
        }
        locked.sending.isFinished = true
        transport.finishWriting()
        actions.finishesWriting = true
        for finisher in locked.sending.finishers { actions.resume(finisher) }
        locked.sending.finishers = []
        if locked.sending.closesWhenFinished { return lingerLocked(&actions) }
        if transport.isWriteOnly {
            // Closing is how its peer learns of the end.
            if locked.end == nil { locked.end = .closed }
            return closeLocked(&actions)
        }
        closeIfFinishedLocked(&actions)
    }

    /// Both directions have ended.
    func closeIfFinishedLocked(_ actions: inout StreamActions) {
        guard locked.sending.isFinished || locked.sending.failure != nil, locked.receiving.isEndTaken, locked.phase == .open else { return }
        if locked.end == nil { locked.end = .endOfStream }
        closeLocked(&actions)
    }

    // MARK: The layer

    /// Sends what the layer has made by itself while it received. A peer that asks for answers and reads none is cut off.
    func sendAnswersLocked(of layer: any StreamLayer, _ actions: inout StreamActions) {
        sendOutputLocked(of: layer, areAnswers: handshake == nil, &actions)
        if locked.sending.answers <= Self.answerLimit { return }
        endLocked(.failed(.system(operation: "waiting for a peer that reads no answers", errno: ENOBUFS)), &actions)
    }

    /// The largest flight that TLS makes by itself after a handshake has some KiB.
    private static var answerLimit: Int { 16_384 }

    /// Sends what the layer has made.
    func sendOutputLocked(of layer: any StreamLayer, areAnswers: Bool = false, _ actions: inout StreamActions) {
        let output = layer.takeOutput()
        // Behind the layer's end the peer expects nothing, and behind the transport's there is no way.
        if output.isEmpty || locked.phase != .open || locked.sending.isLayerFinished { return }
        if areAnswers { locked.sending.answers += output.count }
        if locked.sending.isEmpty { startWaitingLocked() }
        locked.sending.wire.append(output)
        flushLocked(&actions)
    }
}
