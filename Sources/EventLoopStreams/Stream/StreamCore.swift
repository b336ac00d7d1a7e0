// The state machine of a stream.
//
// Lifecycle: made by a ByteStream. Its transport's sources retain it until they have left the loop, so it outlives the ByteStream, whose last
// release ends it. With handlers the core retains the ByteStream until the end was reported.

import EventLoop

/// What happens in a stream. Every change is made under the lock; what it requires outside is collected in `StreamActions`.
final class StreamCore: TransportEvents, PassEndListener, @unchecked Sendable {
    // SAFETY: constants, and what `mutex` guards.

    let loop: RunLoop
    let mode: RunLoop.Mode
    let options: ByteStream.Options
    let transport: any StreamTransport
    private let mutex = LoopLock<Void>(())

    #if DEBUG
    // SAFETY: guarded by `mutex`, as `locked` asserts. Allocated here, because `_read` and `_modify` would allocate for each access.
    private nonisolated(unsafe) let state: UnsafeMutablePointer<StreamState> = {
        let state = UnsafeMutablePointer<StreamState>.allocate(capacity: 1)
        state.initialize(to: StreamState())
        return state
    }()

    deinit {
        state.deinitialize(count: 1)
        state.deallocate()
    }

    var locked: StreamState {
        unsafeAddress {
            assert(mutex.isHeld, "the state of a stream is read and written under its lock")
            return UnsafePointer(state)
        }
        unsafeMutableAddress {
            assert(mutex.isHeld, "the state of a stream is read and written under its lock")
            return state
        }
    }
    #else
    // SAFETY: guarded by `mutex`.
    @exclusivity(unchecked) var locked = StreamState()
    #endif

    init(_ transport: any StreamTransport, on loop: RunLoop, _ mode: RunLoop.Mode, _ options: ByteStream.Options) {
        (self.transport, self.loop, self.mode, self.options) = (transport, loop, mode, options)
    }

    // MARK: TransportEvents

    package override func ready(read: Bool, write: Bool) { /* DOES CALLOUT */ transferWhatIsReady(read: read, write: write) }
    package override func transportWillClose(_ failure: RunLoop.SourceError?) { stopUsingTransport(failure) }
    package override func transportDidClose() { /* DOES CALLOUT */ finishWithoutTransport() }

    /// Joins the loop.
    func open(label: String?, file: StaticString, line: UInt) throws(RunLoop.SourceError) {
        withLock { locked.timeouts = Timeouts(options) }
        do {
            try transport.open(on: loop, mode: mode, label: label, file: file, line: line, self)
        } catch {
            withLock { (locked.phase, locked.end) = (.closed, .failed(error)) }
            throw error
        }
        change { startTimeoutsLocked(&$0) }
    }

    // MARK: The lock

    @inline(__always) func lock() { _ = mutex.lockValue() }

    @inline(__always) func unlock() { mutex.unlock() }

    func withLock<R>(_ body: () -> R) -> R {
        lock()
        defer { unlock() }
        return body()
    }

    /// Calls `body` under the lock, and then does what it asks for.
    func change<R>(_ body: (inout StreamActions) -> R) -> R { /* DOES CALLOUT */
        var actions = StreamActions()
        lock()
        let result = body(&actions)
        unlock()
        perform(actions)
        return result
    }

    func nextTicketLocked() -> UInt64 {
        locked.lastTicket += 1
        return locked.lastTicket
    }

    // MARK: After the lock

    /// Resumes tasks, closes, and sees to it that the handlers are called: at once if the caller is the loop's thread and expects it.
    @inline(__always) func perform(_ actions: consuming StreamActions, callsHandlers: Bool = false) { /* DOES CALLOUT */
        if let reader = actions.reader { reader.resume() }
        if !actions.senders.isEmpty { resume(actions.senders) }
        if actions.armsTimer { armTimer() }
        if actions.finishesWriting { transport.didFinishWriting() }
        if actions.peerFinishes { schedulePeerFinish() }
        if actions.watchesPeer { watchTransport() }
        if actions.closes { close() }
        if actions.delivers { if callsHandlers { deliver() } else { scheduleDelivery() } }
    }

    @inline(never) private func resume(_ senders: [Sender]) { for sender in senders { sender.resume() } }

    private func close() { /* DOES CALLOUT */
        withLock { locked.timeouts?.timer }?.invalidate()
        transport.close()
    }

    /// Has the loop's thread call `deliver` in one of the stream's modes.
    private func scheduleDelivery() { /* DOES CALLOUT */
        let (isNew, isLate) = withLock {
            defer { locked.isDeliveryScheduled = true }
            return (!locked.isDeliveryScheduled, locked.phase == .closed)
        }
        if !isNew { return }
        let body: @Sendable () -> Void = {
            self.withLock { self.locked.isDeliveryScheduled = false }
            self.deliver()
        }
        if perform(isLate: isLate, body) { return }
        // The loop has ended, or is about to. If the transport is still there, its end calls the handlers.
        let isOver = withLock {
            locked.isDeliveryScheduled = false
            return locked.phase == .closed
        }
        if isOver { deliver() }
    }

    /// Has the loop's thread call `body` in one of the stream's modes. False if the loop has ended, or is about to.
    ///
    /// A loop that ends drops its performs. Until the transport has closed, its end calls the handlers in their place. Afterwards (`isLate`) nobody
    /// else does, so a dropped `body` is called when it is released.
    func perform(isLate: Bool, _ body: @escaping @Sendable () -> Void) -> Bool { /* DOES CALLOUT */
        var body = body
        if isLate {
            let call = LateCall(loop, body)
            body = { call.body() }
        }
        return mode == .common ? loop.perform(body) : loop.perform(inModes: [mode], body)
    }
}

/// What a loop is to perform for a stream whose transport has closed. A second call, if the loop ends between the perform and the last release, finds
/// nothing to do.
private final class LateCall: Sendable {
    let body: @Sendable () -> Void
    private let loop: RunLoop

    init(_ loop: RunLoop, _ body: @escaping @Sendable () -> Void) { (self.loop, self.body) = (loop, body) }

    deinit { if loop.isOurs && !loop.isValid { body() } }
}
