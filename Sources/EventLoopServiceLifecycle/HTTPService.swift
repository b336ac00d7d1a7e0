// An HTTP server as a service of swift-service-lifecycle.

#if ServiceLifecycle && HTTP

public import EventLoopHTTP
public import ServiceLifecycle

/// An `HTTPServer` as a `Service`: it serves until the service group shuts down. With the traits `ServiceLifecycle` and `HTTP`.
///
/// As `StreamService`: a *graceful shutdown* and a *cancellation* both end in `server.shutdown(grace:)`, and `run()` returns when every request that
/// had been received is answered, or the grace period is over. The server's loops must run, for example in a `RunLoopService` that comes before
/// this one.
public struct HTTPService: Service {
    private let server: HTTPServer
    private let grace: Duration

    /// - Parameters:
    ///   - server: is shut down when the service ends, so the service can run once.
    ///   - grace: for how long requests may go on after that.
    public init(_ server: HTTPServer, grace: Duration = .seconds(10)) {
        (self.server, self.grace) = (server, grace)
    }

    /// Serves until a graceful shutdown, a cancellation, or the end of the server. Called by the service group.
    ///
    /// - Throws: `RunLoopEnded` if the server's loops have ended under it.
    public func run() async throws {
        try await runServer(server.streams) { [server, grace] in await server.shutdown(grace: grace) }
    }
}

#endif
