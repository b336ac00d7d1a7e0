// A fixed set of loop threads.

internal import CPlatform
import Synchronization

#if canImport(Glibc)
import Glibc
#elseif canImport(Musl)
import Musl
#else
import Darwin
#endif

/// A fixed set of loop threads for a server. Thread-safe.
public final class RunLoopThreadGroup: Sendable {
    private let threads: [RunLoopThread]
    private let turn = Atomic<UInt64>(0)

    /// Starts `count` threads, named `name-0`, `name-1` and so on. If a thread cannot be started, or its `setup` throws, ends the threads
    /// that were started and throws the error. A count below one is a precondition failure.
    public convenience init(
        count: Int, name: String = "loop",
        setup: (@Sendable (RunLoop) throws -> Void)? = nil, teardown: (@Sendable (RunLoop) -> Void)? = nil
    ) throws { /* DOES CALLOUT */
        try self.init(count: count) { try RunLoopThread(name: "\(name)-\($0)", setup: setup, teardown: teardown) }
    }

    /// The same with threads that pass what `setup` returns to `drain` and `teardown`, as in
    /// `RunLoopThread.init(name:stackSize:drainLimit:setup:drain:teardown:)`. `shutdown` has all threads drain at the same time.
    public convenience init<Context>(
        count: Int, name: String = "loop", drainLimit: Duration = RunLoopThread.defaultDrainLimit,
        setup: @escaping @Sendable (RunLoop) throws -> Context,
        drain: (@Sendable (RunLoop, Context) -> Void)? = nil,
        teardown: @escaping @Sendable (RunLoop, Context) -> Void
    ) throws { /* DOES CALLOUT */
        try self.init(count: count) {
            try RunLoopThread(name: "\(name)-\($0)", drainLimit: drainLimit, setup: setup, drain: drain, teardown: teardown)
        }
    }

    private init(count: Int, _ start: (Int) throws -> RunLoopThread) throws { /* DOES CALLOUT */
        precondition(count > 0, "a group has at least one thread, and count is \(count); pass a positive count")
        var started: [RunLoopThread] = []
        do {
            for index in 0..<count { started.append(try start(index)) }
        } catch {
            for thread in started { thread.stop() }
            for thread in started { thread.join() }
            throw error
        }
        threads = started
    }

    /// The loops of the group's threads, in the order of the threads' numbers.
    public var runLoops: [RunLoop] { threads.map(\.runLoop) }

    /// The next loop, round robin.
    public func next() -> RunLoop {
        let turn = turn.add(1, ordering: .relaxed).oldValue
        return threads[Int(turn % UInt64(threads.count))].runLoop
    }

    /// Stops and joins every thread. While a thread is stuck in a handler or waits for holds, reports it on standard error every ten seconds.
    /// Calling it on a member thread is a precondition failure.
    public func shutdown() {
        shutdown(reportingEvery: .seconds(10), writeToStandardError)
    }

    /// As `shutdown()`, but each thread waits for its holds no longer than `limit` (`RunLoopThread.stop(drainingFor:)`).
    public func shutdown(drainingFor limit: Duration) {
        preconditionOutside()
        for thread in threads { thread.stop(drainingFor: limit) }
        shutdown()
    }

    /// Like `shutdown()`, but calls `report` with the message each `interval` while a thread is stuck. For tests, which do not wait for ten
    /// seconds.
    package func shutdown(reportingEvery interval: Duration, _ report: (String) -> Void) { /* DOES CALLOUT */
        stopAll()
        for thread in threads {
            // Ends when the handler returns or the draining is over; until then it is reported.
            while !thread.join(timeout: interval) {
                report("run loop thread \"\(thread.name)\" was told to stop and \(thread.obstacle)\n")
            }
        }
    }

    /// Stops every thread, and waits at most `timeout` (for all together, in real time). Returns the threads that have not ended.
    public func shutdown(timeout: Duration) -> [RunLoopThread] {
        stopAll()
        let deadline = RunLoop.Instant.now.advanced(by: timeout)
        return threads.filter { !$0.join(timeout: RunLoop.Instant.now.duration(to: deadline)) }
    }

    private func stopAll() {
        preconditionOutside()
        for thread in threads { thread.stop() }
    }

    private func preconditionOutside() {
        precondition(
            !threads.contains { $0.runLoop.isCurrent && !$0.runLoop.belongsToParentProcess },
            "shutdown joins the group's threads, so it cannot be called on one of them; call it from another thread")
    }

    private func writeToStandardError(_ text: String) {
        let bytes = Array(text.utf8)
        // If the message cannot be written, there is nowhere else to report it.
        _ = bytes.withUnsafeBytes { write(STDERR_FILENO, $0.baseAddress, $0.count) }
    }
}
