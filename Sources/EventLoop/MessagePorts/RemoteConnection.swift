// A connection to a named port: its state, and its end.
//
// Lifecycle of the descriptor: handed over when the connection is made, closed when the last who uses the connection lets go of it, so that
// no thread ever reads or writes a stranger's. Who may be one: the port's object, a request in progress, the engine until the end.

internal import CPlatform

#if canImport(Glibc)
import Glibc
#elseif canImport(Musl)
import Musl
#else
import Darwin
#endif

/// The client's end.
///
/// One lock guards everything but what is read, which belongs to one reader at a time. A thread that waits for its reply is that reader if
/// nobody else is: then no other thread has to be woken, and a request costs a write, a wait and a read. Others that wait meanwhile are told
/// by it, and when it goes, one of them takes over. Requests of tasks, those that run a loop, and replies that came too late are read by the
/// engine's thread, and so is the end.
final class RemoteConnection: @unchecked Sendable {
    // SAFETY: constants; what `state` guards; and `receiver`, which belongs to `State.reader`.

    let descriptor: Int32
    let token: UInt64
    let engine: PortEngine
    let maximumLength: Int
    private let forkEpoch = ForkEpoch.current
    let state = ForkAwareMutex(State())
    // SAFETY: touched only by whom `State.reader` names, and by the last to let go.
    @exclusivity(unchecked) var receiver: FrameReceiver
    private let scratch = FrameReceiver.makeScratch()
    // SAFETY: likewise. How long the socket lets a reader wait, in milliseconds; 0 is for ever.
    @exclusivity(unchecked) var waitLimit: Int64 = 0

    enum Reader: Sendable {
        case nobody
        /// A thread that waits for a reply of its own.
        case thread
        case engine
    }

    struct State: Sendable {
        var isInvalid = false
        var reader = Reader.nobody
        /// The engine's thread is in the receiver at this moment.
        var engineIsReading = false
        var lastConversation: UInt64 = 0
        /// Who waits, by conversation.
        var waiters: [UInt64: ReplyWaiter] = [:]
        /// How many of them do not read for themselves.
        var passiveWaiters = 0
        /// How many replies are still to come that nobody wants any more. They must be read, or the server could not go on.
        var unwantedReplies = 0
        /// Threads that wait for another one to read, in the order in which they came.
        var followers = RevocableQueue<ReplyWaiter>()
        /// What there was no room for.
        var unsent = RevocableQueue<UnsentFrame>()
        /// What the set watches for; nil when the connection is not in it.
        var watched: Readiness?
        var onInvalidation: [@Sendable () -> Void] = []

        var isReadByEngine: Bool { passiveWaiters > 0 || unwantedReplies > 0 }
    }

    /// Owns the descriptor from now on, also when it throws.
    init(_ descriptor: Int32, engine: PortEngine, maximumLength: Int) throws(RunLoop.PortError) {
        (self.descriptor, self.engine, self.maximumLength) = (descriptor, engine, maximumLength)
        token = engine.nextToken()
        receiver = FrameReceiver(
            maximumLength: maximumLength, takesDescriptors: false, peer: PortPeer(of: descriptor)?.process ?? 0, scratch: scratch)
        engine.add(self)
        let code = state.withLock { state in
            updateWatch(&state)
            return state.watched == nil ? errno : 0
        }
        if code != 0 {
            engine.remove(token)
            throw .system(operation: "watching a connection", errno: code)
        }
    }

    deinit {
        receiver.close()
        scratch.deallocate()
        // The parent's connection goes on.
        if belongsToParentProcess { close(descriptor) } else { DescriptorCloser.end(descriptor) }
    }

    /// In a child of fork the connection is the parent's.
    var belongsToParentProcess: Bool { forkEpoch != ForkEpoch.current }

    /// Whether the other end is there. Asks the kernel, so that nobody has to run a loop to know.
    var isValid: Bool {
        if belongsToParentProcess || state.withLock({ $0.isInvalid }) { return false }
        return Readiness.now(of: descriptor, wanted: .closed).isDisjoint(with: [.closed, .broken])
    }

    /// Has the set watch for what is wanted now. Under the lock, so that the last change is the one that stands; any thread may.
    func updateWatch(_ state: inout State) {
        if state.isInvalid || belongsToParentProcess { return }
        var wanted = Readiness.closed
        if state.reader == .engine { wanted.insert(.read) }
        if !state.unsent.isEmpty { wanted.insert(.write) }
        if state.watched == wanted { return }
        if watch(wanted, isNew: state.watched == nil) {
            state.watched = wanted
        } else if state.watched != nil {
            // As it was it would not do: the engine would hear again and again of what nobody wants, or never of what somebody does.
            forgetWatch(&state)
            if watch(wanted, isNew: true) { state.watched = wanted }
        }
    }

    private func watch(_ wanted: Readiness, isNew: Bool) -> Bool {
        var set = engine.set
        return cplatform_port_set_watch(&set, descriptor, token, wanted.rawValue, isNew) == 0
    }

    /// Under the lock.
    func forgetWatch(_ state: inout State) {
        if state.watched == nil { return }
        state.watched = nil
        var set = engine.set
        if !belongsToParentProcess { cplatform_port_set_forget(&set, descriptor) }
    }

    // MARK: The end

    func onInvalidation(_ body: @escaping @Sendable () -> Void) { /* DOES CALLOUT */
        let isInvalid =
            belongsToParentProcess
            || state.withLock { state in
                if !state.isInvalid { state.onInvalidation.append(body) }
                return state.isInvalid
            }
        if isInvalid { body() }
    }

    /// Ends the connection, once: everybody who waits gets `error`. In a child of fork it has ended, for threads of the parent only; those
    /// may have held the lock at the fork.
    func end(_ error: RunLoop.PortError) { /* DOES CALLOUT */
        if belongsToParentProcess { return }
        var tidings = Tidings()
        let bodies = state.withLock { state -> [@Sendable () -> Void]? in
            if state.isInvalid { return nil }
            forgetWatch(&state)
            state.isInvalid = true
            for waiter in state.waiters.values { tidings.finish(waiter, .failure(error)) }
            for unsent in state.unsent.removeAll() {
                (unsent.isOver, unsent.failure) = (true, error)
                tidings.open(unsent.latch)
            }
            (state.waiters, state.followers) = ([:], RevocableQueue())
            (state.passiveWaiters, state.unwantedReplies) = (0, 0)
            defer { state.onInvalidation = [] }
            return state.onInvalidation
        }
        guard let bodies else { return }
        // Whoever reads is woken by it, and the server is told.
        cplatform_shutdown(descriptor)
        engine.remove(token)
        tidings.tell()
        for body in bodies { body() }
    }
}
