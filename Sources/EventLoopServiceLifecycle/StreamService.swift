// A server of byte streams as a service of swift-service-lifecycle.

#if ServiceLifecycle

import EventLoop
public import EventLoopStreams
public import ServiceLifecycle

/// A `StreamServer` as a `Service`: it serves until the service group shuts down.
///
/// A *graceful shutdown* and a *cancellation* (Control-C, as a service group is usually configured) both end in
/// `server.shutdown(grace:)`: it accepts no more, and the connections have the grace period to end. `run()` returns when all have ended. If all
/// loops of the server end under it, `run()` throws `RunLoopEnded`.
///
/// The server listens from its own initializer on, and its loops must run: give their threads to a `RunLoopService` that comes before this one,
/// or let the main loop run. A service group shuts services down in reverse order, so the server ends before its loops do.
public struct StreamService: Service {
    private let server: StreamServer
    private let grace: Duration

    /// - Parameters:
    ///   - server: is shut down when the service ends, so the service can run once.
    ///   - grace: for how long connections may go on after that.
    public init(_ server: StreamServer, grace: Duration = .seconds(10)) {
        (self.server, self.grace) = (server, grace)
    }

    /// Serves until a graceful shutdown, a cancellation, or the end of the server. Called by the service group.
    ///
    /// - Throws: `RunLoopEnded` if the server's loops have ended under it.
    public func run() async throws {
        try await runServer(server) { [server, grace] in await server.shutdown(grace: grace) }
    }
}

/// Waits for a graceful shutdown, a cancellation, or the end of all loops of `server`, and then calls `shutdown`. Throws `RunLoopEnded` in the
/// last case.
func runServer(_ server: StreamServer, _ shutdown: @escaping @Sendable () async -> Void) async throws {
    let hasLostItsLoops = await withTaskGroup(of: Bool.self) { group in
        group.addTask {
            try? await gracefulShutdown()
            return false
        }
        // On a thread of the pool: see `RunLoopService`.
        group.addTask(executorPreference: globalConcurrentExecutor) { await server.waitForEnd() == .loopEnded }
        let first = await group.next()!  // there are two children
        group.cancelAll()
        return first
    }
    // In a task of its own: a cancelled task would end the grace period at once.
    await Task { await shutdown() }.value
    // A cancellation ends the services of the loops at the same time.
    if hasLostItsLoops && !Task.isCancelled { throw RunLoopEnded() }
}

#endif
