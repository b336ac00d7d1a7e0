import Synchronization

/// A fixed set of loop threads for a server. Thread-safe.
public final class RunLoopThreadGroup: Sendable {
    let threads: [RunLoopThread]
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
    public func next() -> RunLoop { threads[Int(turn.add(1, ordering: .relaxed).oldValue % UInt64(threads.count))].runLoop }
}
