// Names of hosts, looked up by the system's resolver.

public import EventLoop

extension RunLoop {
    /// Looks up the addresses of a host, in the order in which they should be tried (RFC 6724), each once.
    ///
    /// Uses the system's resolver (`getaddrinfo`), which knows `/etc/hosts` and whatever else the system is configured for. It blocks, so
    /// it runs on a thread of its own: neither on a loop's thread, nor on one of Swift's pool. The process has at most 128 such threads,
    /// beside those whose lookups were cancelled; up to 1,024 further lookups wait for one. Lookups of one name that are in flight are one. Numeric hosts (`127.0.0.1`, `::1`, `fe80::1%eth0`) need no thread. Names with other
    /// letters than ASCII's must be given in their encoded form (`xn--…`).
    ///
    /// Cancelling the task ends the waiting at once. A lookup that has begun goes on, because `getaddrinfo` cannot be interrupted, and its
    /// answer is dropped. There is no other time limit than the resolver's own; see `withTimeout`.
    ///
    /// Any task may call this.
    ///
    /// - Parameters:
    ///   - host: a name, or a numeric address.
    ///   - port: the port of the addresses.
    ///   - isolation: the caller's actor.
    /// - Returns: at least one address.
    /// - Throws: `StreamError.hostNotFound` if there is no such host, `.nameServiceFailed` if the name servers did not answer or too many lookups
    ///   wait; `RunLoopEnded` if the loop ends, or has ended; `CancellationError`.
    public func addresses(ofHost host: String, port: UInt16, isolation: isolated (any Actor)? = #isolation) async throws -> [SocketAddress]
    {
        try await addresses(ofHost: host, port: port, resolver: .system, isolation: isolation)
    }

    /// The same, with a resolver for tests.
    package func addresses(
        ofHost host: String, port: UInt16, resolver: Resolver, isolation: isolated (any Actor)? = #isolation
    ) async throws -> [SocketAddress] {
        let lookup = AwaitedLookup()
        return try await withTaskCancellationHandler(
            operation: {
                try await withCheckedThrowingContinuation(isolation: isolation) { continuation in
                    lookup.start(continuation, self) { resolver.start(host, port, $0) }
                }
            }, onCancel: { lookup.end(.failure(CancellationError())) }, isolation: isolation)
    }
}

/// A lookup that a task waits for. The first end counts. Thread-safe.
private final class AwaitedLookup: Sendable {
    typealias Continuation = CheckedContinuation<[RunLoop.SocketAddress], any Error>
    typealias Outcome = Result<[RunLoop.SocketAddress], any Error>

    private struct State {
        var continuation: Continuation?
        var outcome: Outcome?
        var cancel: (@Sendable () -> Void)?
        /// Notices the loop's end.
        var presence: RunLoop.CustomSource?
    }
    private let state = StreamLock(State())

    /// Once.
    func start(_ continuation: Continuation, _ loop: RunLoop, _ begin: (@escaping Resolver.Answer) -> @Sendable () -> Void) {
        let outcome = state.withLock { state in
            if state.outcome == nil { state.continuation = continuation }
            return state.outcome
        }
        if let outcome { return continuation.resume(with: outcome) }
        let presence = RunLoop.CustomSource(label: "lookup", cancel: { [self] _, _ in end(.failure(RunLoopEnded())) }, perform: {})
        guard loop.add(presence, forMode: .common) else { return end(.failure(RunLoopEnded())) }
        let isCancelled = state.withLock { state in
            if state.outcome == nil { state.presence = presence }
            return state.outcome != nil
        }
        if isCancelled { return presence.invalidate() }
        let cancel = begin { [self] in end($0.mapError { $0 }) }
        let isOver = state.withLock { state in
            if state.outcome == nil { state.cancel = cancel }
            return state.outcome != nil
        }
        if isOver { cancel() }
    }

    func end(_ outcome: Outcome) {
        let ended = state.withLock { state -> State? in
            if state.outcome != nil { return nil }
            let ended = state
            state = State(outcome: outcome)
            return ended
        }
        guard let ended else { return }
        ended.cancel?()
        ended.presence?.invalidate()
        ended.continuation?.resume(with: outcome)
    }
}
