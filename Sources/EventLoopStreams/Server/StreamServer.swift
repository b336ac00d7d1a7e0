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
/// **Tasks.** The task of a connection has no task-locals, and the default priority. It is cancelled when the grace of `shutdown` is over, and when
/// the server's last loop has ended; not when its client goes.
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
    let core: ServerCore

    /// Starts a server. It listens when this returns.
    ///
    /// - Parameters:
    ///   - address: where to listen. On port 0, the kernel chooses one, which `localAddress` then has.
    ///   - loops: at least one.
    ///   - mode: of each stream and of the listeners.
    ///   - options: of each stream.
    ///   - connectionLimit: at most so many connections are served at a time. Beyond it the listeners pause, and connections wait in the
    ///     kernel's queue. On several loops, and during a `shutdown`, a listener may have accepted one more connection before it is paused,
    ///     which then waits in the server. A connection counts until its descriptor is closed.
    ///   - sharesPort: whether other servers may listen on the same port (SO_REUSEPORT), in this process or in another one, if they ask for
    ///     it too. The kernel distributes connections among them. Without it, the server fails if any other socket listens on the port.
    ///     Afterwards, a server on one loop has the port for itself; on several loops, only a server of the same user that asks for
    ///     `sharesPort` can join it. Ignored for Unix sockets.
    ///   - backlog: how many connections may wait in the kernel's queue. The system has a limit of its own (`net.core.somaxconn`).
    ///   - ipv6Only: whether a server on `::` refuses IPv4.
    ///   - label: of each stream.
    ///   - file: with `line`, the place that warnings and recordings name.
    ///   - line: see `file`.
    ///   - serve: called in a task of its own for each connection.
    /// - Throws: as `SocketSource(listeningOn:)`: `.system` with the operation `bind` and EADDRINUSE if the address is in use, for
    ///   example. `.loopEnded` if one of the loops has ended.
    public init(
        listeningOn address: RunLoop.SocketAddress, on loops: [RunLoop], mode: RunLoop.Mode = .common,
        options: ByteStream.Options = .init(),
        connectionLimit: Int? = nil, sharesPort: Bool = false, backlog: Int32 = 1024, ipv6Only: Bool = false, label: String? = nil,
        file: StaticString = #fileID, line: UInt = #line,
        serve: @escaping @Sendable (ByteStream) async -> Void
    ) throws(RunLoop.SourceError) { /* DOES CALLOUT */
        core = Self.makeCore(loops, mode, options, connectionLimit, label, file, line, serve)
        let listeners = ServerListeners(
            address: address, sharesPort: sharesPort, backlog: backlog, ipv6Only: ipv6Only, label: label, file: file, line: line)
        localAddress =
            try core.listen(loops) { accept throws(RunLoop.SourceError) in try listeners.make(loops.count, accept) } ?? address
    }

    /// Starts a server on sockets that listen already: those that a service manager has bound (`Supervisor.sockets`), or that a predecessor
    /// hands over.
    ///
    /// The descriptors are the server's from now on, and closed by it, also when this throws. The sockets stay as they are: O_NONBLOCK does not
    /// change, and the file of a Unix socket is left alone. `shutdown` closes only this server's descriptors, so a successor that has
    /// them, too, loses nothing. Listeners are spread over the loops; if there are fewer of them than loops, the connections go to the
    /// loops in turn. `localAddress` is the first one's. Other than that, as
    /// `init(listeningOn:on:mode:options:connectionLimit:sharesPort:backlog:ipv6Only:label:file:line:serve:)`.
    ///
    /// - Throws: `.badDescriptor` for a descriptor that is not open, or is in the list twice; `.system` for one that is no stream socket
    ///   that listens, and for an empty list; `.loopEnded`.
    public convenience init(
        adopting listeners: [Int32], on loops: [RunLoop], mode: RunLoop.Mode = .common, options: ByteStream.Options = .init(),
        connectionLimit: Int? = nil, label: String? = nil, file: StaticString = #fileID, line: UInt = #line,
        serve: @escaping @Sendable (ByteStream) async -> Void
    ) throws(RunLoop.SourceError) { /* DOES CALLOUT */
        try self.init(
            Self.makeCore(loops, mode, options, connectionLimit, label, file, line, serve), loops
        ) { accept throws(RunLoop.SourceError) in
            try ServerListeners.adopt(listeners, label: label, file: file, line: line, accept)
        }
    }

    package typealias MakeTask = @Sendable (_ connection: UInt64, _ body: @escaping @Sendable () async -> Void) -> Task<Void, Never>

    /// A server on a listener of another kind, which `make` makes; it calls its argument with each connection.
    package convenience init(
        accepting make: (@escaping @Sendable (IncomingConnection) -> Void) -> any ServerListener, on loop: RunLoop,
        options: ByteStream.Options, connectionLimit: Int?, label: String?, file: StaticString, line: UInt,
        makeTask: @escaping MakeTask, serve: @escaping @Sendable (ByteStream) async -> Void
    ) throws(RunLoop.SourceError) { /* DOES CALLOUT */
        try self.init(
            Self.makeCore([loop], .common, options, connectionLimit, label, file, line, makeTask: makeTask, serve), [loop]
        ) { accept throws(RunLoop.SourceError) in [make { accept($0, 0) }] }
    }

    /// Forgets everything without ending it: see `ServerCore.abandon`.
    package func abandon() { /* DOES CALLOUT */ core.abandon() }

    private init(
        _ core: ServerCore, _ loops: [RunLoop],
        _ make: (@escaping ServerListeners.Accept) throws(RunLoop.SourceError) -> [any ServerListener]
    ) throws(RunLoop.SourceError) {
        self.core = core
        // A listener whose address is of an unknown kind is not adopted.
        localAddress = try core.listen(loops, make)!
    }

    private static func makeCore(
        _ loops: [RunLoop], _ mode: RunLoop.Mode, _ options: ByteStream.Options, _ connectionLimit: Int?, _ label: String?,
        _ file: StaticString, _ line: UInt, makeTask: MakeTask? = nil, _ serve: @escaping @Sendable (ByteStream) async -> Void
    ) -> ServerCore {
        precondition(!loops.isEmpty, "a server without a loop serves nobody; pass at least one loop", file: file, line: line)
        precondition(
            connectionLimit ?? 1 > 0, "a server with a connectionLimit of \(connectionLimit ?? 1) serves nobody; pass 1 or more, or nil",
            file: file, line: line)
        options.check()
        return ServerCore(
            ServerCore.Settings(
                mode: mode, options: options, connectionLimit: connectionLimit ?? .max, label: label, file: file, line: line,
                makeTask: makeTask,
                serve: serve))
    }

    /// The address that the server listens on, with the port that the kernel chose.
    public let localAddress: RunLoop.SocketAddress

    /// False in a child of fork, if the parent made it.
    package var isOurs: Bool { core.mark.isOurs }

    /// How many connections are served: their descriptors are open.
    public var connections: Int { core.openConnections }

    /// Stops to listen, lets the connections end, and returns when all have ended.
    ///
    /// No client that has connected before the call is reset: the connections in the kernel's queues are accepted and served first, and new
    /// ones are refused meanwhile, as far as the system can do that (docs/handover.md). Then the listeners close. Connections may go on for
    /// `grace`. Then their tasks are cancelled and their streams closed. Returns when every `serve` has returned and every descriptor is
    /// closed, so a `serve` that ignores its cancellation delays it.
    ///
    /// Of an adopted listener, only this server's descriptor closes. From its queue the server accepts as many clients as `connectionLimit` has
    /// room for, and none without a `grace`. The others are left to the processes that have the socket, too; if none has, they are reset.
    ///
    /// `grace` passes in the time of the server's first loop that has not ended, while that runs in the server's mode or a common one. If
    /// the calling task is cancelled, `grace` is over. This can be called several times, also while a call waits; the shortest `grace`
    /// counts. Any task may call this except those that `serve` runs in, which would wait for themselves.
    public func shutdown(grace: Duration = .seconds(10), isolation: isolated (any Actor)? = #isolation) async {
        guard isOurs else { return }
        precondition(
            !core.isServingCurrentTask,
            "serve waits for its own end when it awaits shutdown(); shut the server down in another task: Task { await server.shutdown() }")
        core.stopListening(isGraceOver: grace <= .zero || Task.isCancelled)
        let wait = core.makeWait()
        core.startGrace(grace)
        core.finishIfDone()
        _ = await wait.outcome(until: nil, isolation: isolation) { [core] in core.cancelConnections() }
    }

    /// False after `shutdown` has begun, when every loop of the server has ended, and when its last listener has failed, after which the
    /// server serves its connections until `shutdown`. Thread-safe.
    public var isAccepting: Bool { core.isAccepting }

    /// Returns when the server has ended, with every `serve` returned and every descriptor closed: `.closed` after `shutdown`, `.loopEnded` when
    /// its loops have ended under it. Then its tasks are cancelled. Any task may call this, except those that `serve` runs in.
    ///
    /// If the calling task is cancelled, it returns at once, with `.loopEnded` if the loops have ended, and `.closed` otherwise: `isAccepting` says
    /// whether the server goes on. In debug builds, a loop that ends under a server prints a warning, and so does a listener that fails.
    public func waitForEnd(isolation: isolated (any Actor)? = #isolation) async -> ByteStream.End {
        let wait = core.makeWait()
        return await wait.outcome(until: nil, isolation: isolation) { [core] in core.withdraw(wait) }
    }
}
