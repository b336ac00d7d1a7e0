// Loop threads as a service of swift-service-lifecycle.

#if ServiceLifecycle

public import EventLoop
public import EventLoopSupervisor
public import ServiceLifecycle

/// Threads with run loops as a `Service`: they run until the service group shuts down.
///
/// - *Graceful shutdown* stops the threads; they drain as after `RunLoopThread.stop()`. `run()` returns when all have ended.
/// - *Cancellation* stops them without draining, also while they drain. `run()` still waits until all have ended, because `teardown` must
///   have returned; a handler that does not return delays it. Then it returns, as after a graceful shutdown: Control-C is no failure of
///   the service.
/// - If other code ends a thread, `run()` ends the others with a graceful shutdown, and returns. A service group treats that as it is
///   configured to treat a service that finishes.
///
/// No call blocks a thread of Swift's pool.
public struct RunLoopService: Service {
    let start: @Sendable () throws -> any LoopThreads
    let supervisor: RunLoop.Supervisor?

    /// Starts a group of threads when the service runs.
    ///
    /// The arguments are those of `RunLoopThreadGroup.init(count:name:setup:teardown:)`. If a thread cannot be started, or if its `setup`
    /// throws, `run()` throws that error when the threads that were started have ended.
    ///
    /// `supervisor` is notified that the service is up when every `setup` has returned, and that it stops when the graceful shutdown comes to
    /// this service: in a `ServiceGroup` the services behind it shut down first. It watches the loops. Give it to one service only. If it cannot
    /// be notified that the service is up, `run()` ends the threads and throws the error.
    public init(
        count: Int = 1, name: String = "loop", supervisor: RunLoop.Supervisor? = nil,
        setup: (@Sendable (RunLoop) throws -> Void)? = nil, teardown: (@Sendable (RunLoop) -> Void)? = nil
    ) {
        start = { GroupOfThreads(try RunLoopThreadGroup(count: count, name: name, setup: setup, teardown: teardown)) }
        self.supervisor = supervisor
    }

    /// The same with threads that pass what `setup` returns to `drain` and `teardown`, as in
    /// `RunLoopThreadGroup.init(count:name:drainLimit:setup:drain:teardown:)`.
    public init<Context>(
        count: Int = 1, name: String = "loop", drainLimit: Duration = RunLoopThread.defaultDrainLimit,
        supervisor: RunLoop.Supervisor? = nil,
        setup: @escaping @Sendable (RunLoop) throws -> Context,
        drain: (@Sendable (RunLoop, Context) -> Void)? = nil,
        teardown: @escaping @Sendable (RunLoop, Context) -> Void
    ) {
        start = {
            GroupOfThreads(
                try RunLoopThreadGroup(count: count, name: name, drainLimit: drainLimit, setup: setup, drain: drain, teardown: teardown))
        }
        self.supervisor = supervisor
    }

    /// A group that runs already. The service ends it, and can therefore run once.
    public init(_ group: RunLoopThreadGroup, supervisor: RunLoop.Supervisor? = nil) {
        start = { GroupOfThreads(group) }
        self.supervisor = supervisor
    }

    /// A thread that runs already. The service ends it, and can therefore run once.
    public init(_ thread: RunLoopThread, supervisor: RunLoop.Supervisor? = nil) {
        start = { SingleThread(thread: thread) }
        self.supervisor = supervisor
    }

    /// Runs until a graceful shutdown, a cancellation, or the end of the threads. Called by the service group.
    public func run() async throws {
        let threads = try await onThreadOfItsOwn { [start] in try start() }
        do {
            try await notify { supervisor in
                try supervisor.watch(threads.runLoops)
                try supervisor.notifyReady()
            }
        } catch {
            await end(threads, drains: false)
            throw error
        }
        let reason = await reasonToEnd(threads.runLoops)
        // The service ends whether or not the service manager hears of it.
        try? await notify { try $0.notifyStopping() }
        await end(threads, drains: reason != .cancelled)
    }

    /// A notification waits while the service manager has no room, so it is sent from a thread of its own.
    private func notify(_ body: @escaping @Sendable (RunLoop.Supervisor) throws -> Void) async throws {
        guard let supervisor, supervisor.isPresent else { return }
        try await onThreadOfItsOwn { try body(supervisor) }
    }

    private enum Reason { case shutDown, cancelled, ended }

    private func reasonToEnd(_ loops: [RunLoop]) async -> Reason {
        await withTaskGroup(of: Reason.self) { group in
            group.addTask {
                do { try await gracefulShutdown() } catch { return .cancelled }
                return .shutDown
            }
            for loop in loops {
                // On a thread of the pool, even if this task prefers one of the loops: there the closure would be called at once.
                group.addTask(executorPreference: globalConcurrentExecutor) {
                    await endOf(loop) ? .ended : .cancelled
                }
            }
            let first = await group.next()!  // there are children
            group.cancelAll()
            return Task.isCancelled && first == .ended ? .cancelled : first
        }
    }

    /// Ends the threads, and waits for that even if the task is cancelled.
    private func end(_ threads: any LoopThreads, drains: Bool) async {
        let rest = await threads.stop()
        if !drains { for thread in rest { thread.stop(drainingFor: .zero) } }
        await withTaskCancellationHandler {
            // A task of its own is not cancelled.
            await Task { for thread in rest { await thread.join() } }.value
        } onCancel: {
            for thread in rest { thread.stop(drainingFor: .zero) }
        }
    }
}

/// Suspends until the loop has ended, and returns true; false if the task is cancelled first.
func endOf(_ loop: RunLoop) async -> Bool {
    // Nobody runs this mode. So the closure waits there until the thread ends, which performs or drops it.
    do { try await loop.performAsync(inModes: ["EventLoopServiceLifecycle.end"]) {} } catch is CancellationError { return false } catch {}
    return true
}

#endif
