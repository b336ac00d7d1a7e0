// The descriptor of a socket, and what is done with it while it cannot be closed.
//
// Lifecycle of the descriptor: the caller's of CFSocketCreateWithNative, or the one that CFSocketCreate opens. CFSocketInvalidate says whether
// it is to be closed. It is closed with the last reference to this object: the CFSocket has one, each call that uses the descriptor has one,
// and the watcher has one until no loop watches it. So the number is never another socket's while somebody uses it.

internal import EventLoop
internal import Synchronization

final class NativeSocket: Sendable {
    enum Kind: Sendable {
        /// A stream: it is connected or listens, or is not used yet.
        case connection
        /// Datagrams. None of them is the last one.
        case messages
        /// A descriptor that is no socket.
        case other
    }

    let descriptor: CFSocketNativeHandle
    let kind: Kind
    private let identity: FileIdentity
    private let closes = Atomic<Bool>(false)
    /// Its messages may be longer than those of UDP.
    private let hasLongMessages: Bool
    /// Whether `accept` has made a blocking socket non-blocking.
    private let wasBlocking = Atomic<Bool>(false)
    /// Threads that send at the same time take turns, so that their data are not mixed.
    private let sending = SocketTurns()
    /// Threads that connect at the same time take turns: the blocking mode, the error and a failed attempt are the socket's, of which it has one.
    private let connecting = SocketTurns()

    /// Nil if the descriptor is not open.
    init?(_ descriptor: CFSocketNativeHandle) {
        guard let identity = FileIdentity(of: descriptor) else { return nil }
        (self.descriptor, self.identity) = (descriptor, identity)
        kind = SocketCalls.kind(descriptor)
        hasLongMessages = SocketCalls.hasLongMessages(descriptor)
    }

    deinit {
        if closes.load(ordering: .acquiring) {
            SocketCalls.close(descriptor)
        } else if wasBlocking.load(ordering: .acquiring), sending.mark.isOurs, FileIdentity(of: descriptor) == identity {
            // Its owner has not closed it yet: then the number could be another file's. A child shares the mode with its parent.
            SocketCalls.setBlocking(descriptor, true)
        }
    }

    func closeAtEnd() { closes.store(true, ordering: .releasing) }

    /// What the stream is ready for now; nil if it was never connected, and does not connect.
    var readiness: RunLoop.DescriptorSource.Events? {
        guard let (reads, writes) = SocketCalls.readiness(descriptor) else { return nil }
        var events: RunLoop.DescriptorSource.Events = []
        if reads { events.insert(.read) }
        if writes { events.insert(.write) }
        return events
    }

    // MARK: Receiving

    enum Received: Sendable {
        /// `data` is empty after an error, too. Without an address, it is the peer's.
        case data(CFData, from: CFData?)
        case nothing
    }

    /// Receives once, without waiting: from a stream as many bytes at most as in Core Foundation, otherwise a whole message.
    func receive() -> Received {
        let size = hasLongMessages ? max(SocketCalls.sizeOfMessage(descriptor), 65_535) : kind == .connection ? 32_768 : 65_535
        return withUnsafeTemporaryAllocation(byteCount: size, alignment: 8) { buffer in
            let (count, address) = SocketCalls.receive(descriptor, buffer)
            if SocketCalls.wouldWait(count) { return .nothing }
            return .data(count > 0 ? CFData(UnsafeRawBufferPointer(rebasing: buffer[..<count])) : .empty, from: address)
        }
    }

    enum Accepted: Sendable {
        case connection(CFSocketNativeHandle, from: CFData)
        case nothing
        /// The process or the system has no descriptors left.
        case exhausted
        /// The socket does not listen.
        case notListening
    }

    /// Accepts without waiting: another process may have accepted the connection that made the socket ready.
    func accept() -> Accepted {
        if !wasBlocking.load(ordering: .relaxed), SocketCalls.isBlocking(descriptor) {
            wasBlocking.store(true, ordering: .releasing)
            SocketCalls.setBlocking(descriptor, false)
        }
        return SocketCalls.accept(descriptor)
    }

    // MARK: Connecting and sending

    /// Whether a thread waits for the outcome of its attempt.
    var isConnecting: Bool { connecting.isWaiting }

    /// Does not wait with a negative timeout, and then returns `.success` also while the attempt is in progress. With a timeout of zero, waits for
    /// the outcome as long as the system does. `.error` while another thread waits for an outcome, as the system says of most sockets.
    func connect(_ address: CFData, _ timeout: CFTimeInterval) -> CFSocketError {
        let deadline = deadline(after: timeout)
        let result = connecting.take(until: deadline, waitsForOthers: false) {
            timeout < 0 ? connectInBackground(address) : connectAndWait(address, deadline)
        }
        return result ?? .error
    }

    private func connectInBackground(_ address: CFData) -> CFSocketError {
        let error = withoutBlocking { SocketCalls.connect(descriptor, address) }
        return error == 0 || error == SocketCalls.inProgress ? .success : .error
    }

    private func connectAndWait(_ address: CFData, _ deadline: ContinuousClock.Instant?) -> CFSocketError {
        // A blocking call waits for room in the queue of a Unix socket, too.
        let begin = { SocketCalls.connect(self.descriptor, address) }
        if deadline == nil && kind == .connection { connecting.beginWaiting() }
        var error = deadline == nil ? begin() : withoutBlocking(begin)
        var backoff = Backoff(until: deadline)
        // The queue of a Unix socket is full, and nothing reports that there is room.
        while deadline != nil, SocketCalls.wouldWait(-Int(error)) {  // ends: with another outcome, or at the deadline
            connecting.beginWaiting()
            if !backoff.pause() { return .timeout }
            error = withoutBlocking(begin)
        }
        if error == SocketCalls.inProgress {
            connecting.beginWaiting()
            guard SocketCalls.waitUntilWritable(descriptor, deadline) else { return .timeout }
            error = SocketCalls.takeError(descriptor)
            if error != 0 && kind == .connection { SocketCalls.forgetAttempt(descriptor) }
        }
        return error == 0 ? .success : .error
    }

    /// A socket of datagrams is connected at once, and a thread may send on it meanwhile.
    private func withoutBlocking(_ body: () -> Int32) -> Int32 {
        guard kind == .connection, SocketCalls.isBlocking(descriptor) else { return body() }
        SocketCalls.setBlocking(descriptor, false)
        defer { SocketCalls.setBlocking(descriptor, true) }
        return body()
    }

    /// Sends everything, waiting for room until `deadline`, or as long as the socket blocks.
    func send(_ data: CFData, to address: CFData?, _ timeout: CFTimeInterval) -> CFSocketError {
        let deadline = deadline(after: timeout)
        let waits = deadline != nil || SocketCalls.isBlocking(descriptor)
        let result = sending.take(until: deadline, waitsForOthers: waits) { () -> CFSocketError in
            var sent = 0
            var backoff: Backoff?
            repeat {  // ends: with the data, an error, or the deadline
                let count = SocketCalls.send(descriptor, data.bytes + sent, data.count - sent, address)
                if count >= 0 {
                    sent += count
                    backoff = nil
                } else if !SocketCalls.wouldWait(count) || !waits {
                    return .error
                } else {
                    sending.beginWaiting()
                    if backoff?.pause() == false || !SocketCalls.waitUntilWritable(descriptor, deadline) { return .timeout }
                    // poll(2) calls a socket writable whose receiver has no room, so the second attempt in vain pauses.
                    if backoff == nil { backoff = Backoff(until: deadline) }
                }
            } while sent < data.count
            return .success
        }
        return result ?? (waits && sending.mark.isOurs ? .timeout : .error)
    }
}

/// The end of a positive timeout; nil if there is none.
func deadline(after timeout: CFTimeInterval) -> ContinuousClock.Instant? {
    timeout > 0 ? .now + Duration(timeout) : nil
}
