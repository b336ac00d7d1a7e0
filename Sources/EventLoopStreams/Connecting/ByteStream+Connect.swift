// Connects a stream to an address, or to a host by its name.

public import EventLoop

extension ByteStream {
    /// Connects to the first address of a host that answers (Happy Eyeballs, RFC 8305).
    ///
    /// Looks the name up as `RunLoop.addresses(ofHost:port:)` does. Then it tries the addresses in turn, IPv6 and IPv4 alternately,
    /// beginning with the resolver's first. Each attempt starts 250 ms after the one before, or as soon as one has failed. The first
    /// connection wins, and the other attempts are closed.
    ///
    /// The attempts are sources in `mode` of `loop`, so nothing starts or ends while the loop runs in other modes. From the call until it
    /// returns, the mode is not empty.
    ///
    /// Any task may call this. If the task is cancelled, everything is closed at once.
    ///
    /// - Parameters:
    ///   - host: a name, or a numeric address.
    ///   - port: of the server.
    ///   - timeout: limits the lookup and all attempts together, in the loop's time. A connection that exists when it passes is a success.
    ///   - loop: serves the attempts and the stream.
    ///   - mode: of the attempts and of the stream.
    ///   - options: of the stream.
    ///   - label: of the stream, for warnings, recordings and `debugDescription`.
    ///   - isolation: the caller's actor.
    ///   - file: with `line`, the place that warnings and recordings name.
    ///   - line: see `file`.
    /// - Throws: `StreamError.hostNotFound` and `.nameServiceFailed`; `StreamError.timedOut`; the `SourceError` of an attempt if all have failed: the first in order
    ///   that is more than the lack of a route, or else the first; `RunLoopEnded` when the loop's thread exits; `CancellationError`.
    public static func connect(
        host: String, port: UInt16, timeout: Duration = .seconds(30), on loop: RunLoop, mode: RunLoop.Mode = .common,
        options: Options = Options(),
        label: String? = nil, isolation: isolated (any Actor)? = #isolation, file: StaticString = #fileID, line: UInt = #line
    ) async throws -> ByteStream {
        let stream = try await connect(
            host: host, port: port, resolver: .system, timeout: timeout, on: loop, mode: mode, options: options, label: label, file: file,
            line: line)
        stream.connectedHost = host
        return stream
    }

    /// Connects to one address.
    ///
    /// - Throws: the `SourceError` of the attempt, `.badAddress` for a host that is not numeric; `StreamError.timedOut` after `timeout` of
    ///   the loop's time; `RunLoopEnded` when the loop's thread exits; `CancellationError`. Other than that, as
    ///   `connect(host:port:timeout:on:mode:options:label:isolation:file:line:)`.
    public static func connect(
        to address: RunLoop.SocketAddress, timeout: Duration = .seconds(30), on loop: RunLoop, mode: RunLoop.Mode = .common,
        options: Options = Options(), label: String? = nil, isolation: isolated (any Actor)? = #isolation, file: StaticString = #fileID,
        line: UInt = #line
    ) async throws -> ByteStream {
        // The loop's thread starts the attempt, as it does after a lookup.
        let known = Resolver { _, _, answer in
            answer(.success([address]))
            return {}
        }
        return try await connect(
            host: "", port: 0, resolver: known, timeout: timeout, on: loop, mode: mode, options: options, label: label, file: file,
            line: line)
    }

    /// The same, with a resolver for tests.
    package static func connect(
        host: String, port: UInt16, resolver: Resolver, timeout: Duration = .seconds(30), on loop: RunLoop, mode: RunLoop.Mode = .common,
        options: Options = Options(), label: String? = nil, isolation: isolated (any Actor)? = #isolation, file: StaticString = #fileID,
        line: UInt = #line
    ) async throws -> ByteStream {
        options.check()
        let attempts = ConnectionAttempts(
            ConnectionAttempts.Target(
                loop: loop, mode: mode, timeout: timeout, label: label, file: file, line: line, socket: options.socket,
                makeStream: { descriptor throws(RunLoop.SourceError) in
                    try ByteStream(adopting: descriptor, on: loop, mode: mode, options: options, label: label, file: file, line: line)
                }))
        return try await attempts.connect(isolation: isolation) { resolver.start(host, port, $0) }
    }
}
