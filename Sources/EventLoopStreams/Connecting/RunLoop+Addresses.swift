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
        try Task.checkCancellation()
        let wait = TaskWait<Result<[SocketAddress], any Error>>()
        // Notices the loop's end.
        let presence = CustomSource(label: "lookup", cancel: { _, _ in wait.deliver(.failure(RunLoopEnded())) }, perform: {})
        defer { presence.invalidate() }
        guard add(presence, forMode: .common) else { throw RunLoopEnded() }
        let cancel = resolver.start(host, port) { wait.deliver($0.mapError { $0 }) }
        defer { cancel() }
        return try await wait.outcome(until: nil, isolation: isolation) { wait.deliver(.failure(CancellationError())) }.get()
    }
}
