// The loop of one test, and how the test gets it.

public import EventLoop

/// A thread with a loop, for one test.
struct TestRunLoop: Sendable {
    @TaskLocal static var ofTask: TestRunLoop?

    let thread: RunLoopThread
    let clock: RunLoop.ManualClock?
    private let end: End

    init(_ time: RunLoopTrait.Time) throws {
        let (clock, end) = (time.makeClock(), End())
        thread = try RunLoopThread(
            name: "test",
            setup: { loop in if let clock { loop.use(clock) } },
            teardown: { loop in end.come(leaving: loop.itemsLeft) })
        self.clock = clock
        self.end = end
    }

    /// Calls `function` on the loop's thread: async code without another executor runs there, and so does a function that is not async.
    func perform(_ function: @Sendable () async throws -> Void) async throws { /* DOES CALLOUT */
        try await withTaskExecutorPreference(thread.runLoop) { try await function() }
    }

    /// Ends the thread, waits for it, and returns the items that were on its loop.
    func end() async -> [String] {
        thread.stop()
        let left = await end.hasCome()
        // Also if the test's task was cancelled.
        _ = await Task.detached { await thread.join() }.value
        return left
    }
}

/// Waits for the end of a thread without blocking a thread of the pool.
private final class End: Sendable {
    private let left: AsyncStream<[String]>
    private let continuation: AsyncStream<[String]>.Continuation

    init() { (left, continuation) = AsyncStream.makeStream() }

    func come(leaving left: [String]) {
        continuation.yield(left)
        continuation.finish()
    }

    /// Waits even if the test's task was cancelled: a time limit cancels it, and the thread must still end.
    func hasCome() async -> [String] {
        let left = left
        return await Task.detached { await left.first { _ in true } ?? [] }.value
    }
}

extension RunLoop {
    /// The loop of the running test, which must have the trait `.runLoop`; otherwise a precondition failure.
    ///
    /// It is available in the test's task and in the tasks that this makes, except detached ones. A handler that the loop calls belongs to
    /// no task: read the property before, and capture the loop.
    public static var ofTest: RunLoop { test("RunLoop.ofTest").thread.runLoop }

    fileprivate static func test(_ what: String) -> TestRunLoop {
        guard let test = TestRunLoop.ofTask else {
            preconditionFailure("\(what) is for tests with the trait .runLoop, and for their tasks; a handler belongs to no task")
        }
        return test
    }
}

extension RunLoop.ManualClock {
    /// The clock of the running test, which must have the trait `.runLoop(.manualTime)`; otherwise a precondition failure. Available where
    /// `RunLoop.ofTest` is.
    public static var ofTest: RunLoop.ManualClock {
        guard let clock = RunLoop.test("ManualClock.ofTest").clock else {
            preconditionFailure("the test's loop is in real time; give the test the trait .runLoop(.manualTime)")
        }
        return clock
    }
}
