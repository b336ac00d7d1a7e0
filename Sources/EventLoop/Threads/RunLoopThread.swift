// A thread whose only work is its run loop.

internal import CPlatform
import Synchronization

#if canImport(Glibc)
import Glibc
#elseif canImport(Musl)
import Musl
#else
import Darwin
#endif

/// A thread whose only work is its run loop; it runs in `.default` and lives until `stop()`.
///
/// Dropping the object does not end the thread. Thread-safe.
public final class RunLoopThread: Sendable {
    public let name: String
    /// The thread's loop, ready from `init` on.
    public let runLoop: RunLoop
    private let life: ThreadLife

    /// Starts the thread and returns once its loop is ready.
    ///
    /// `setup` runs on it first; what it throws comes out here, and the thread is gone. `teardown` runs on it last, when its run has ended
    /// and before its loop does. Throws `SourceError.system` when the system has no thread or no descriptors left. `stackSize` is in bytes;
    /// nil is the system's default.
    public init(
        name: String, stackSize: Int? = nil,
        setup: (@Sendable (RunLoop) throws -> Void)? = nil, teardown: (@Sendable (RunLoop) -> Void)? = nil
    ) throws { /* DOES CALLOUT */
        self.name = name
        life = ThreadLife(name: name, setup: setup, teardown: teardown)
        try life.start(stackSize: stackSize)
        _ = life.started.wait(until: nil)
        let outcome = life.outcome.withLock { outcome in
            defer { outcome = nil }
            return outcome!  // the latch opens when there is one
        }
        if case .failure = outcome { _ = life.ended.wait(until: nil) }
        runLoop = try outcome.get()
    }

    /// Ends the thread after the pass in progress; never lost, however early. What was accepted before is still performed, in one last
    /// batch before `teardown`; nothing more is accepted. In a child of fork it does nothing. Thread-safe. (`runLoop.stop()` ends a run
    /// only; the thread runs again.)
    public func stop() {
        // In this order: a thread that finds itself stopping has a loop that takes nothing more.
        runLoop.terminate()
        life.isStopping.store(true, ordering: .sequentiallyConsistent)
    }

    /// Blocks until the thread has ended; false when `timeout` passed first (real time). From the thread itself it is a precondition
    /// failure: it would wait for itself. In a child of fork the thread does not exist, and `join` returns true at once.
    @discardableResult
    public func join(timeout: Duration? = nil) -> Bool {
        if runLoop.belongsToParentProcess { return true }
        precondition(!runLoop.isCurrent, "a run loop thread cannot join itself; call join from another thread, or stop() to end this one")
        return life.ended.wait(until: timeout.map { RunLoop.Instant.now.advanced(by: $0) })
    }
}

/// What the thread and its handle share.
///
/// Lifecycle: held by the handle, and by the thread from its start to its end; the thread is detached, and `ended` opens as its last act
/// that anybody can see.
private final class ThreadLife: Sendable {
    let name: String
    let started = Latch()
    let ended = Latch()
    let isStopping = Atomic<Bool>(false)
    let outcome = ForkAwareMutex<Result<RunLoop, any Error>?>(nil)
    private let setup: ForkAwareMutex<(@Sendable (RunLoop) throws -> Void)?>
    private let teardown: ForkAwareMutex<(@Sendable (RunLoop) -> Void)?>

    init(name: String, setup: (@Sendable (RunLoop) throws -> Void)?, teardown: (@Sendable (RunLoop) -> Void)?) {
        self.name = name
        self.setup = ForkAwareMutex(setup)
        self.teardown = ForkAwareMutex(teardown)
    }

    func start(stackSize: Int?) throws {
        let code = NativeThread.start(stackSize: stackSize) { [self] in live() }
        if code == 0 { return }
        let stack = stackSize.map { " with a stack of \($0) bytes" } ?? ""
        throw RunLoop.SourceError.system(operation: "starting a thread" + stack, errno: code)
    }

    /// The thread's whole life.
    fileprivate func live() { /* DOES CALLOUT */
        cplatform_name_this_thread(name)
        run()
        LoopLifetime.endLoopOfThisThread()
        ended.open()
    }

    private func run() { /* DOES CALLOUT */
        guard let loop = RunLoop() else {
            return begin(.failure(RunLoop.SourceError.system(operation: "making a run loop", errno: errno)))
        }
        LoopLifetime.adopt(loop)
        let keepAlive = loop.keepAlive()
        do {
            try loop.prepareDefaultMode()
            try take(setup)?(loop)
        } catch {
            return begin(.failure(error))
        }
        begin(.success(loop))
        while !isStopping.load(ordering: .sequentiallyConsistent) {  // ends: with stop(), which ends the runs in progress
            _ = loop.run(.default, limit: .max, returnsAfterSource: false)
        }
        loop.performLastBatch()
        take(teardown)?(loop)
        keepAlive.cancel()
    }

    private func begin(_ result: Result<RunLoop, any Error>) {
        outcome.withLock { $0 = result }
        started.open()
    }

    private func take<Closure: Sendable>(_ closure: borrowing ForkAwareMutex<Closure?>) -> Closure? {
        closure.withLock { closure in
            defer { closure = nil }
            return closure
        }
    }
}
