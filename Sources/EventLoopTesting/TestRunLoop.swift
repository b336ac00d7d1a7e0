// The loop of one test, and how the test gets it.

public import EventLoop

/// A thread with a loop, for one test.
struct TestRunLoop: Sendable {
    @TaskLocal static var ofTask: TestRunLoop?

    let thread: RunLoopThread
    let clock: RunLoop.ManualClock?
    private let left: ItemsLeft

    init(_ time: RunLoopTrait.Time) throws {
        let (clock, left) = (time.makeClock(), ItemsLeft())
        thread = try RunLoopThread(
            name: "test",
            setup: { loop in if let clock { loop.use(clock) } },
            teardown: { loop in left.note(loop.itemsLeft) })
        self.clock = clock
        self.left = left
    }

    /// Calls `function` on the loop's thread: async code without another executor runs there, and so does a function that is not async.
    func perform(_ function: @Sendable () async throws -> Void) async throws { /* DOES CALLOUT */
        try await withTaskExecutorPreference(thread.runLoop) { try await function() }
    }

    /// Ends the thread, waits for it, and returns the items that were on its loop.
    func end() async -> [String] {
        // In manual time a wait for holds would have no end, because nobody advances the clock any more.
        if clock == nil { thread.stop() } else { thread.stop(drainingFor: .zero) }
        // Also if the test's task was cancelled: a time limit cancels it, and the thread must still end.
        _ = await Task.detached { await thread.join() }.value
        return left.all
    }
}

/// The items that were on a loop at the teardown of its thread. None if the thread ended inside a handler: then there is no teardown.
private final class ItemsLeft: Sendable {
    private let items = LoopLock<[String]>([])

    var all: [String] { items.withLock { $0 } }
    func note(_ left: [String]) { items.withLock { $0 = left } }
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
