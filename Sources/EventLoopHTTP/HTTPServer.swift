// The server's public face.

#if HTTP

public import EventLoop
package import EventLoopStreams
internal import HTTPTypes

/// An HTTP/1.1 server on run loops.
///
/// ```
/// let server = try HTTPServer(listeningOn: .ipv4(host: "127.0.0.1", port: 8080), on: loops) { request in
///     request.path == "/" ? .text("hello\n") : .text("not found\n", status: .notFound)
/// }
/// await server.shutdown()
/// ```
///
/// **Requests.** A handler gets a request when its body has come, and runs in a task of its own that prefers the loop of the connection. The task is
/// cancelled when the client goes. One request of a connection is served at a time: those that follow wait in the kernel.
///
/// **Answers.** HEAD, keep-alive, `Expect: 100-continue`, pipelining and `Date` need nothing from the handler. What a handler throws is answered with
/// 500 and passed to the warning handler (`RunLoop.setWarningHandler`). Requests that are malformed, ambiguous or too large are answered with
/// 400, 408, 413, 414, 417, 431, 501 or 505 and never reach the handler.
///
/// **Loops.** As `StreamServer`: a listener on each loop, and a connection stays on its loop. Connections are sources in the server's mode; tasks
/// run when their loop runs in a common mode.
///
/// Releasing the object does not end the server: it serves until `shutdown` is called or its loops end. Thread-safe. CFRunLoop has no counterpart;
/// Core Foundation has `CFHTTPMessage` for the messages.
public final class HTTPServer: Sendable {
    let core: HTTPServerCore
    /// For services: it accepts the connections.
    package let streams: StreamServer

    /// Starts a server. It listens when this returns.
    ///
    /// - Parameters:
    ///   - address: where to listen. On port 0, the kernel chooses one, which `localAddress` then has.
    ///   - loops: at least one.
    ///   - mode: in which connections are served.
    ///   - options: limits and timeouts.
    ///   - sharesPort: whether other servers may listen on the same port (SO_REUSEPORT), if they ask for it, too.
    ///   - label: for warnings and recordings.
    ///   - file: with `line`, the place that warnings and recordings name.
    ///   - line: see `file`.
    ///   - respond: called with each request, in a task of its own.
    /// - Throws: as `StreamServer(listeningOn:)`: `.system` with the operation `bind` and EADDRINUSE if the address is in use, for example;
    ///   `.loopEnded` if one of the loops has ended.
    public init(
        listeningOn address: RunLoop.SocketAddress, on loops: [RunLoop], mode: RunLoop.Mode = .default, options: Options = Options(),
        sharesPort: Bool = false, label: String? = nil, file: StaticString = #fileID, line: UInt = #line,
        respond: @escaping @Sendable (Request) async throws -> Response
    ) throws(RunLoop.SourceError) { /* DOES CALLOUT */
        let core = HTTPServerCore(loops, mode, options, label: label, file: file, line: line, respond)
        self.core = core
        streams = try StreamServer(
            listeningOn: address, on: loops, mode: mode, options: core.streamOptions, connectionLimit: options.connectionLimit,
            sharesPort: sharesPort, label: label, file: file, line: line, serve: { await core.serve($0) })
    }

    /// Starts a server on sockets that listen already: of systemd, of a parent process, or of a predecessor. They are closed by the server, also when
    /// this throws.
    ///
    /// Otherwise as `init(listeningOn:)` and as `StreamServer(adopting:)`.
    public init(
        adopting listeners: [Int32], on loops: [RunLoop], mode: RunLoop.Mode = .default, options: Options = Options(),
        label: String? = nil, file: StaticString = #fileID, line: UInt = #line,
        respond: @escaping @Sendable (Request) async throws -> Response
    ) throws(RunLoop.SourceError) { /* DOES CALLOUT */
        let core = HTTPServerCore(loops, mode, options, label: label, file: file, line: line, respond)
        self.core = core
        streams = try StreamServer(
            adopting: listeners, on: loops, mode: mode, options: core.streamOptions, connectionLimit: options.connectionLimit, label: label,
            file: file, line: line, serve: { await core.serve($0) })
    }

    /// The address that the server listens on, with the port that the kernel chose.
    public var localAddress: RunLoop.SocketAddress { streams.localAddress }

    /// How many connections are open, idle ones included.
    public var connections: Int { streams.connections }

    /// Stops to listen, answers the requests that have been received, and returns when every connection is closed and every handler has returned.
    ///
    /// The last answer of each connection carries `Connection: close`; what its client sends behind that is not read. Idle connections are
    /// closed. Connections that wait in the kernel's queue are accepted, and their requests are answered; one that has sent nothing within a
    /// second is closed. After `grace`, in the loop's time, handlers are cancelled and connections cut.
    ///
    /// If the calling task is cancelled, `grace` is over. This can be called several times; the shortest `grace` counts. Any task may call this
    /// except a handler's, which would wait for itself: `Task { await server.shutdown() }`.
    public func shutdown(grace: Duration = .seconds(10), isolation: isolated (any Actor)? = #isolation) async {
        guard streams.isOurs else { return }
        precondition(
            !core.isRespondingInCurrentTask,
            "a handler waits for its own end when it awaits shutdown(); shut the server down in another task: Task { await server.shutdown() }"
        )
        core.drain()
        await streams.shutdown(grace: grace, isolation: isolation)
        core.finish()
    }
}

#endif
