// The loop of one test, and how the test finds it.

public import EventLoop

/// A thread with a loop for the time of one test.
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

    /// Calls `function` on the loop's thread: what has no other executor runs there, and so does a function that is not async.
    func perform(_ function: @Sendable () async throws -> Void) async throws { /* DOES CALLOUT */
        try await withTaskExecutorPreference(thread.runLoop) { try await function() }
    }

    /// Ends the thread, and returns what was on its loop, when the thread is gone.
    func end() async -> [String] {
        thread.stop()
        let left = await end.hasCome()
        thread.join()  // it has done all that it had to do
        return left
    }
}

/// The end of a thread, to be waited for without blocking one of the pool.
private final class End: Sendable {
    private let left: AsyncStream<[String]>
    private let continuation: AsyncStream<[String]>.Continuation

    init() { (left, continuation) = AsyncStream.makeStream() }

    func come(leaving left: [String]) {
        continuation.yield(left)
        continuation.finish()
    }

    /// Waits also when the test's task was cancelled: a time limit cancels it, and the thread is to be gone nevertheless.
    func hasCome() async -> [String] {
        let left = left
        return await Task.detached { await left.first { _ in true } ?? [] }.value
    }
}

extension RunLoop {
    /// The loop of the running test, which has the trait `.runLoop`; elsewhere a precondition failure.
    ///
    /// It is known to the test's task and to the tasks that this has made, detached ones excepted. A handler that the loop calls belongs to
    /// no task: fetch the loop before, and use it there.
    public static var ofTest: RunLoop { test("RunLoop.ofTest").thread.runLoop }

    fileprivate static func test(_ what: String) -> TestRunLoop {
        guard let test = TestRunLoop.ofTask else {
            preconditionFailure("\(what) is for tests with the trait .runLoop, and for their tasks; a handler belongs to no task")
        }
        return test
    }
}

extension RunLoop.ManualClock {
    /// The clock of the running test, which has the trait `.runLoop(.manualTime)`; elsewhere a precondition failure. Known where
    /// `RunLoop.ofTest` is.
    public static var ofTest: RunLoop.ManualClock {
        guard let clock = RunLoop.test("ManualClock.ofTest").clock else {
            preconditionFailure("the test's loop is in real time; give the test the trait .runLoop(.manualTime)")
        }
        return clock
    }
}
