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

/// A thread whose only work is its run loop. It runs the loop in `.default` until `stop()`.
///
/// Releasing the object does not end the thread. Thread-safe.
public final class RunLoopThread: Sendable {
    public let name: String
    /// The thread's loop, which is ready when `init` returns.
    public let runLoop: RunLoop
    private let life: ThreadLife

    /// Starts the thread, and returns when its loop is ready.
    ///
    /// `setup` runs first on the thread. If it throws, the thread ends, and this initializer throws the same error. `teardown` runs last on
    /// the thread, after its last run and before its loop ends. Throws `SourceError.system` if the system has no threads or no descriptors
    /// left. `stackSize` is in bytes; nil means the system's default.
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

    /// Ends the thread after the pass in progress. It takes effect however early it is called. The thread still performs everything that
    /// its loop accepted earlier, in one last batch before `teardown`; the loop accepts nothing more. No-op in a child of fork.
    /// Thread-safe. (`runLoop.stop()` only ends a run; then the thread runs its loop again.)
    public func stop() {
        // This order guarantees that the loop of a stopping thread accepts nothing more.
        runLoop.terminate()
        life.isStopping.store(true, ordering: .sequentiallyConsistent)
    }

    /// Blocks until the thread has ended. Returns false if `timeout` (real time) passes first. Calling it on the thread itself is a
    /// precondition failure, because the thread would wait for itself. In a child of fork the thread does not exist, and `join` returns
    /// true at once.
    @discardableResult
    public func join(timeout: Duration? = nil) -> Bool {
        if runLoop.belongsToParentProcess { return true }
        precondition(!runLoop.isCurrent, "a run loop thread cannot join itself; call join from another thread, or stop() to end this one")
        return life.ended.wait(until: timeout.map { RunLoop.Instant.now.advanced(by: $0) })
    }
}

/// State that the thread and its handle share.
///
/// Lifecycle: retained by the handle, and by the thread from start to end. The thread is detached. Opening `ended` is its last visible
/// action.
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

    /// The body of the thread.
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
