// What a stream knows of its peer's end before it has read up to there.

import EventLoop

/// Who wants to know that the peer has finished. Guarded by the stream's lock.
struct PeerFinish {
    /// The transport watches, because somebody has asked.
    var isWatched = false
    /// The peer sends no more, as far as this side has noticed.
    var hasHappened = false
    /// Nobody is called any more: somebody was, or this side has ended the stream.
    var isOver = false
    /// Few streams have any.
    private var waiting: Waiting?

    private final class Waiting: Sendable {
        let body: (@Sendable (ByteStream) -> Void)?
        let stream: ByteStream?
        let waiters: [UInt64: CheckedContinuation<Bool, Never>]

        init(_ body: (@Sendable (ByteStream) -> Void)?, _ stream: ByteStream?, _ waiters: [UInt64: CheckedContinuation<Bool, Never>]) {
            (self.body, self.stream, self.waiters) = (body, stream, waiters)
        }
    }

    var body: (@Sendable (ByteStream) -> Void)? { waiting?.body }
    /// What the body gets. Retained until the end, as by the other handlers.
    var stream: ByteStream? { waiting?.stream }
    var waiters: [UInt64: CheckedContinuation<Bool, Never>] {
        get { waiting?.waiters ?? [:] }
        set { waiting = Waiting(body, stream, newValue) }
    }

    mutating func set(_ body: @escaping @Sendable (ByteStream) -> Void, _ stream: ByteStream) { waiting = Waiting(body, stream, waiters) }

    mutating func forgetAll() { waiting = nil }
}

extension StreamCore {
    /// Asks the kernel, if it is not known yet.
    var peerHasFinished: Bool {
        withLock {
            if locked.phase == .open || locked.phase == .lingering, !locked.peerFinish.hasHappened,
                locked.receiving.isEnded || locked.receiving.holdsEnd || transport.peerHasFinished
            {
                locked.peerFinish.hasHappened = true
            }
            return locked.peerFinish.hasHappened
        }
    }

    func onPeerFinish(_ stream: ByteStream, _ body: @escaping @Sendable (ByteStream) -> Void) { /* DOES CALLOUT */
        var old = PeerFinish()
        defer { withExtendedLifetime(old) {} }
        let isWanted = withLock {
            old = locked.peerFinish
            // After the report of the end nobody is called any more.
            if locked.peerFinish.isOver || locked.isEndReported { return false }
            locked.peerFinish.set(body, stream)
            return true
        }
        if isWanted { watchPeerFinish() }
    }

    /// Returns true when the peer has finished; false when the stream has ended before, or the task was cancelled.
    func waitForPeerFinish() async -> Bool { /* DOES CALLOUT */
        let ticket = withLock(nextTicketLocked)
        return await withTaskCancellationHandler(
            operation: {
                await withCheckedContinuation { (continuation: CheckedContinuation<Bool, Never>) in
                    let answer = withLock { () -> Bool? in
                        if locked.peerFinish.hasHappened { return true }
                        // Under the lock: a later cancellation finds the waiter.
                        if Task.isCancelled || locked.phase == .closed { return false }
                        locked.peerFinish.waiters[ticket] = continuation
                        return nil
                    }
                    if let answer { return continuation.resume(returning: answer) }
                    watchPeerFinish()
                }
            }, onCancel: { withLock { locked.peerFinish.waiters.removeValue(forKey: ticket) }?.resume(returning: false) })
    }

    private func watchPeerFinish() { /* DOES CALLOUT */
        let (isKnown, isNew) = withLock {
            defer { locked.peerFinish.isWatched = true }
            return (locked.peerFinish.hasHappened || locked.receiving.isEnded || locked.phase == .closed, !locked.peerFinish.isWatched)
        }
        if isKnown {
            schedulePeerFinish()
        } else if isNew {
            watchTransport()
        }
    }

    /// Again when reading stops: without descriptors the kernel refuses it, and the transport is in a pause then. While the stream reads, the end is
    /// read.
    func watchTransport() { /* DOES CALLOUT */
        transport.watchPeerFinish(on: loop, mode: mode) { [weak self] in self?.peerDidFinish() }
    }

    /// Another way than the transport's: the peer's last byte was read, or its close_notify.
    func schedulePeerFinish() { /* DOES CALLOUT */
        if perform(isLate: withLock { locked.phase == .closed }, { self.peerDidFinish() }) { return }
        // The loop has ended, or is about to. If the transport is still there, its end calls.
        if withLock({ locked.phase == .closed }) { peerDidFinish() }
    }

    /// On the loop's thread; on the caller's if the loop has ended.
    func peerDidFinish() { /* DOES CALLOUT */
        // Released outside the lock: it has the program's closure.
        var dropped = PeerFinish()
        defer { withExtendedLifetime(dropped) {} }
        var (wasInCall, isLate) = (false, false)
        let (called, isPeers) = withLock { () -> (PeerFinish, Bool) in
            if locked.peerFinish.isOver { return (PeerFinish(), false) }
            locked.peerFinish.hasHappened = true
            if isInLateCallLocked {
                var waiting = PeerFinish()
                swap(&waiting.waiters, &locked.peerFinish.waiters)
                return (waiting, endIsPeersLocked || locked.receiving.isEnded)
            }
            dropped = locked.peerFinish
            defer { locked.peerFinish.forgetAll() }
            if locked.phase != .open, !endIsPeersLocked {
                // This side has ended the stream. Who waits need wait no longer, and learns of the peer's end only if that came first.
                var silent = PeerFinish()
                silent.waiters = locked.peerFinish.waiters
                return (silent, locked.receiving.isEnded)
            }
            if locked.peerFinish.body != nil {
                locked.peerFinish.isOver = true
                wasInCall = locked.isInCall
                locked.isInCall = true
                isLate = locked.phase == .closed
            }
            return (locked.peerFinish, true)
        }
        for waiter in called.waiters.values { waiter.resume(returning: isPeers) }
        guard let body = called.body, let stream = called.stream else { return }
        if isLate { beginLateCall() }
        body(stream)
        if isLate { CallInProgress.end(by: self) }
        withLock { locked.isInCall = wasInCall }
        deliver()
    }

    /// Whether a handler is being called although the transport has closed: perhaps on another thread, because the loop has ended. Its caller goes on
    /// with what is due behind it.
    var isInLateCallLocked: Bool {
        locked.phase == .closed && (locked.isInCall || locked.receiving.isBusy && locked.handlers.receive != nil)
    }

    var endIsPeersLocked: Bool {
        if locked.end == .endOfStream { return true }
        guard case .failed = locked.end else { return false }
        return true
    }

    /// The transport has left the loop. On the loop's thread.
    func endWatchOfPeerFinish() { /* DOES CALLOUT */
        let (isWatched, released, isPeers) = withLock { () -> (Bool, PeerFinish, Bool) in
            if locked.receiving.isEnded || endIsPeersLocked { locked.peerFinish.hasHappened = true }
            if locked.peerFinish.hasHappened && endIsPeersLocked { return (locked.peerFinish.isWatched, PeerFinish(), false) }
            let released = locked.peerFinish
            locked.peerFinish.forgetAll()
            locked.peerFinish.isOver = true
            return (false, released, locked.receiving.isEnded)
        }
        if isWatched { peerDidFinish() }
        for waiter in released.waiters.values { waiter.resume(returning: isPeers) }
    }
}

extension ByteStream {
    /// Whether the peer has shut down its sending side, closed or reset: as soon as the kernel knows it, also while reading is paused, while a task
    /// computes, and with unread bytes before the end. Over TLS also by its close_notify, when that was read.
    ///
    /// A peer that only half-closes sets it, too: it may still want the answer. Any thread; asks the kernel until it is true.
    public var peerHasFinished: Bool { core.peerHasFinished }

    /// Calls `body` once when `peerHasFinished` becomes true, on the loop's thread; in a later pass if it is true already. Never inside this call,
    /// and not after this side has ended the stream or `onEnd` was called. Setting it again replaces the body. The stream lives until its end then,
    /// as with other handlers. Thread-safe. A stream that nobody asks pays nothing for it; one that is asked has a second source.
    public func onPeerFinish(_ body: @escaping @Sendable (ByteStream) -> Void) { core.onPeerFinish(self, body) }

    /// Runs `body`, and cancels it when the peer finishes: for handlers that compute long for a client that may have left. Returns what `body`
    /// returns, or throws what it throws, when it has ended; so a body that ignores its cancellation delays this.
    ///
    /// If the peer has finished already, `body` begins cancelled. If the stream ends otherwise, `body` goes on, also when the peer then closes its
    /// side.
    public func withCancellationOnPeerFinish<Result: Sendable>(
        isolation: isolated (any Actor)? = #isolation, _ body: @escaping @Sendable () async throws -> Result
    ) async throws -> Result {
        try await withThrowingTaskGroup(of: (Result?, Bool).self, returning: Result.self, isolation: isolation) { group in
            if peerHasFinished { group.cancelAll() }
            group.addTask { (try await body(), false) }
            group.addTask { [core] in (nil, await core.waitForPeerFinish()) }
            for try await (result, hasFinished) in group {  // ends: with the body
                if result != nil || hasFinished { group.cancelAll() }
                if let result { return result }
            }
            preconditionFailure("the body returns or throws")
        }
    }
}
