// Accepts connections and gives each a task.

public import EventLoop

/// Accepts connections on several loops and gives each a task that prefers its loop.
///
/// ```
/// let server = try StreamServer(listeningOn: .ipv4(host: "127.0.0.1", port: 8080), on: loops) { stream in
///     do {
///         for try await line in stream.lines() { try await stream.write(line + "\n") }
///     } catch {}
/// }
/// await server.shutdown()
/// ```
///
/// **Loops.** A TCP server has a listener on each loop (SO_REUSEPORT). The kernel assigns each connection to one of them, so all of the
/// loops must run. A Unix socket has one listener, on the first loop, and its connections go to the loops in turn. Listeners and streams
/// are sources in the server's mode; tasks run when their loop runs in a common mode. The server keeps its mode from being empty on each of
/// its loops.
///
/// **The end of a connection.** When `serve` returns, the server sends what the stream has not sent yet and closes it
/// (`closeAfterWriting()`). A peer that takes nothing for `writeTimeout`, or for 30 s if that is nil, is cut off.
///
/// **Shortages.** While the process has no descriptors left, listeners back off, and connections wait in the kernel's queue. A connection
/// for which no stream can be made, because the peer has reset it, for example, is closed.
///
/// Releasing the object does not end the server: it serves until `shutdown` is called or its loops end. If a loop ends, its
/// streams end, and the other loops take over its listener. Thread-safe.
public final class StreamServer: Sendable {
    private let core: ServerCore

    /// Starts a server. It listens when this returns.
    ///
    /// - Parameters:
    ///   - address: where to listen. On port 0, the kernel chooses one, which `localAddress` then has.
    ///   - loops: at least one.
    ///   - mode: of each stream and of the listeners.
    ///   - options: of each stream.
    ///   - connectionLimit: at most so many connections are served at a time. Beyond it the listeners pause, and connections wait in the
    ///     kernel's queue. On several loops, a listener may have accepted one more connection before it is paused, which then waits in the
    ///     server. A connection counts until its descriptor is closed.
    ///   - sharesPort: whether other servers may listen on the same port (SO_REUSEPORT), in this process or in another one, if they ask for
    ///     it too. The kernel distributes connections among them. Without it, the server fails if any other socket listens on the port.
    ///     Afterwards, a server on one loop has the port for itself; on several loops, only a server of the same user that asks for
    ///     `sharesPort` can join it. Ignored for Unix sockets.
    ///   - label: of each stream.
    ///   - file: with `line`, the place that warnings and recordings name.
    ///   - line: see `file`.
    ///   - serve: called in a task of its own for each connection.
    /// - Throws: as `SocketSource(listeningOn:)`: `.system` with the operation `bind` and EADDRINUSE if the address is in use, for
    ///   example. `.loopEnded` if one of the loops has ended.
    public init(
        listeningOn address: RunLoop.SocketAddress, on loops: [RunLoop], mode: RunLoop.Mode = .common,
        options: ByteStream.Options = .init(),
        connectionLimit: Int? = nil, sharesPort: Bool = false, label: String? = nil, file: StaticString = #fileID, line: UInt = #line,
        serve: @escaping @Sendable (ByteStream) async -> Void
    ) throws(RunLoop.SourceError) { /* DOES CALLOUT */
        precondition(!loops.isEmpty, "a server without a loop serves nobody; pass at least one loop", file: file, line: line)
        precondition(
            connectionLimit ?? 1 > 0, "a server with a connectionLimit of \(connectionLimit ?? 1) serves nobody; pass 1 or more, or nil",
            file: file, line: line)
        options.check()
        core = ServerCore(
            ServerCore.Settings(
                mode: mode, options: options, connectionLimit: connectionLimit ?? .max, label: label, file: file, line: line, serve: serve))
        localAddress = try core.listen(on: address, loops, sharesPort: sharesPort)
    }

    /// The address that the server listens on, with the port that the kernel chose.
    public let localAddress: RunLoop.SocketAddress

    /// How many connections are served: their descriptors are open.
    public var connections: Int { core.openConnections }

    /// Stops to listen, lets the connections end, and returns when all have ended.
    ///
    /// The listeners close at once; connections that wait in the kernel's queue are reset. Connections that are being served may go on for
    /// `grace`. Then their tasks are cancelled and their streams closed. Returns when every `serve` has returned and every descriptor is
    /// closed, so a `serve` that ignores its cancellation delays it.
    ///
    /// `grace` passes in the time of the server's first loop that has not ended, while that runs in the server's mode or a common one. If
    /// the calling task is cancelled, `grace` is over. This can be called several times, also while a call waits; the shortest `grace`
    /// counts. Any task may call this except those that `serve` runs in, which would wait for themselves.
    public func shutdown(grace: Duration = .seconds(10), isolation: isolated (any Actor)? = #isolation) async {
        precondition(
            !core.isServingCurrentTask,
            "serve waits for its own end when it awaits shutdown(); shut the server down in another task: Task { await server.shutdown() }")
        core.stopListening()
        await withTaskCancellationHandler(
            operation: {
                await withCheckedContinuation(isolation: isolation) { continuation in core.waitForEnd(continuation, grace) }
            }, onCancel: { core.cancelConnections() }, isolation: isolation)
    }
}
