// A connection to a named port: its state, and its end.
//
// Lifecycle of the descriptor: passed to `init`, closed in `deinit`, so that no thread ever reads or writes another file that reuses its
// number. Owners of a connection: the port's object, requests in progress, and the engine until the connection ends.

internal import CPlatform
internal import EventLoop
internal import EventLoopLibC

/// The client's end.
///
/// One lock guards everything except the receiver, which belongs to one *reader* at a time. A thread that waits for its reply becomes the
/// reader if there is none: then no other thread has to be woken, and a request costs a write, a wait and a read. The reader completes
/// other waiters too, and when it has its own reply, another waiting thread becomes the reader. The engine's thread reads for tasks and for
/// threads that run a loop. It also reads late replies, and notices the end of the connection.
final class RemoteConnection: @unchecked Sendable {
    // SAFETY: constants; `state` is guarded; `receiver` and `waitLimit` belong to `State.reader`.

    let descriptor: Int32
    /// The port's, for messages of errors.
    let name: String
    let token: UInt64
    let engine: PortEngine
    let maximumLength: Int
    private let mark = ProcessMark()
    let state = LoopLock(State())
    // SAFETY: touched only by the reader (`State.reader`) and by `deinit`.
    var receiver: FrameReceiver
    private let scratch = FrameReceiver.makeScratch()
    // SAFETY: likewise.
    /// The socket's limit for a blocking read, in milliseconds; 0 for none.
    var waitLimit: Int64 = 0

    enum Reader: Sendable {
        case nobody
        /// A thread that waits for its own reply.
        case thread
        case engine
    }

    struct State: Sendable {
        var isInvalid = false
        var reader = Reader.nobody
        /// The engine's thread is using the receiver at this moment.
        var engineIsReading = false
        var lastConversation: UInt64 = 0
        /// By conversation.
        var waiters: [UInt64: ReplyWaiter] = [:]
        /// The number of waiters for which the engine reads.
        var passiveWaiters = 0
        /// The number of replies that may still arrive for abandoned requests. They must be read, because the server waits for room to send
        /// them.
        var abandonedReplies = 0
        /// Threads that wait while another one reads, in order of arrival.
        var followers = LinkedQueue<ReplyWaiter>()
        /// Frames that the socket had no room for.
        var unsent = LinkedQueue<UnsentFrame>()
        /// What the engine's set watches the connection for; nil if it is not in the set.
        var watched: Readiness?
        var onInvalidation: [@Sendable () -> Void] = []

        var isReadByEngine: Bool { passiveWaiters > 0 || abandonedReplies > 0 }
    }

    /// Takes ownership of the descriptor, also if it throws.
    init(_ descriptor: Int32, to name: String = "", engine: PortEngine, maximumLength: Int) throws(RunLoop.PortError) {
        (self.descriptor, self.name, self.engine, self.maximumLength) = (descriptor, name, engine, maximumLength)
        token = engine.nextToken()
        receiver = FrameReceiver(
            maximumLength: maximumLength, takesDescriptors: false, peer: PortPeer(of: descriptor)?.process ?? 0, scratch: scratch)
        if !engine.add(self) { throw failure("watching a connection", ESRCH) }
        let code = state.withLock { state in
            updateWatch(&state)
            return state.watched == nil ? errno : 0
        }
        if code != 0 {
            engine.remove(token)
            throw failure("watching a connection", code)
        }
    }

    deinit {
        receiver.close()
        scratch.deallocate()
        if isOurs { DescriptorCloser.end(descriptor) } else { cplatform_close(descriptor) }
    }

    var isOurs: Bool { mark.isOurs }

    /// Whether the other end is open. Asks the kernel, so no loop has to run.
    var isValid: Bool {
        if !isOurs || state.withLock({ $0.isInvalid }) { return false }
        return Readiness.now(of: descriptor, wanted: .closed).isDisjoint(with: [.closed, .broken])
    }

    /// Watches the connection for whatever is needed now. Called under the lock, so that the last change prevails, on any thread.
    func updateWatch(_ state: inout State) {
        if state.isInvalid || !isOurs { return }
        var wanted = Readiness.closed
        if state.reader == .engine { wanted.insert(.read) }
        if !state.unsent.isEmpty { wanted.insert(.write) }
        if state.watched == wanted { return }
        if watch(wanted, isNew: state.watched == nil) {
            state.watched = wanted
        } else if state.watched != nil {
            // The old watch must not stay: the engine would spin on events that nobody handles, or never see those that somebody waits for.
            forgetWatch(&state)
            if watch(wanted, isNew: true) { state.watched = wanted }
        }
    }

    private func watch(_ wanted: Readiness, isNew: Bool) -> Bool {
        var set = engine.set
        return cplatform_port_set_watch(&set, descriptor, token, wanted.rawValue, isNew) == 0
    }

    /// Called under the lock.
    func forgetWatch(_ state: inout State) {
        if state.watched == nil { return }
        state.watched = nil
        var set = engine.set
        if isOurs { cplatform_port_set_forget(&set, descriptor) }
    }

    /// The error of an operation, which names the port.
    func failure(_ operation: String, _ errno: Int32) -> RunLoop.PortError {
        .system(operation: "\(operation) to the message port \(quoted(name))", errno: errno)
    }

    // MARK: The end

    func onInvalidation(_ body: @escaping @Sendable () -> Void) { /* DOES CALLOUT */
        let isInvalid =
            !isOurs
            || state.withLock { state in
                if !state.isInvalid { state.onInvalidation.append(body) }
                return state.isInvalid
            }
        if isInvalid { body() }
    }

    /// Ends the connection and completes all waiters with `error`. No-op if it has ended.
    func end(_ error: RunLoop.PortError) { /* DOES CALLOUT */
        guard isOurs else { return }
        var wakeUps = DeferredWakeUps()
        let bodies = state.withLock { state -> [@Sendable () -> Void]? in
            if state.isInvalid { return nil }
            forgetWatch(&state)
            state.isInvalid = true
            for waiter in state.waiters.values { wakeUps.complete(waiter, .failure(error)) }
            for unsent in state.unsent.removeAll() {
                (unsent.isFinished, unsent.failure) = (true, error)
                wakeUps.wakeSender(of: unsent)
            }
            (state.waiters, state.followers) = ([:], LinkedQueue())
            (state.passiveWaiters, state.abandonedReplies) = (0, 0)
            defer { state.onInvalidation = [] }
            return state.onInvalidation
        }
        guard var rest = bodies?[...] else { return }
        // Wakes the reader and notifies the server.
        cplatform_shutdown(descriptor)
        engine.remove(token)
        wakeUps.performAll()
        // If one closure ends the thread, the others are called all the same.
        CallInProgress.callForEach({ rest.popFirst() }, { $0() })
    }
}
