// A trait of Swift Testing that gives every test a run loop of its own.
//
// Lifecycle of a test's loop: made with its thread before the test begins, ended with it before the test is reported; what the test left on
// it goes with it. Nothing of one test can be met by another.

public import EventLoop
public import Testing

/// Runs each test on a run loop of its own, on a thread of its own, in real time or in manual time.
///
/// The body of the test, async or not, runs on the loop's thread, and so do the `init` of its suite and the tasks that the test makes, unless
/// they belong to an actor (`@MainActor` among them) or are detached. `RunLoop.current` is the loop there. The thread runs the loop while the
/// body is suspended; a body that is not async runs it itself, with `RunLoop.current.run(for:)`, and jobs of actors and tasks on the loop wait
/// meanwhile. The default mode of the loop is never empty, as on every `RunLoopThread`, so a run of it ends with its limit, a stop or a source.
///
/// For a test, `@Test(.runLoop)` or `@Test(.runLoop(.manualTime))`; for all the tests of a suite, `@Suite(.runLoop(.manualTime))`: each of
/// them, and each case of a test with arguments, gets another loop. On a suite and on a test of it, the test's own counts. The test finds the
/// loop as `RunLoop.ofTest`, and the clock as `RunLoop.ManualClock.ofTest`.
///
/// A test that cannot have a thread or descriptors fails with `RunLoop.SourceError`, and its body is not called.
public struct RunLoopTrait: TestTrait, SuiteTrait, TestScoping {
    /// What the loop of a test goes by.
    public struct Time: Sendable {
        let makeClock: @Sendable () -> RunLoop.ManualClock?

        /// The monotonic clock.
        public static let realTime = Time { nil }
        /// A `ManualClock` that starts at zero and moves when the test tells it to.
        public static let manualTime = Time { RunLoop.ManualClock() }
        /// A `ManualClock` that starts at `start`. With `autoAdvance` it jumps to the next deadline whenever the loop would wait for it.
        public static func manualTime(autoAdvance: Bool, start: RunLoop.Instant = RunLoop.Instant(nanoseconds: 0)) -> Time {
            Time { RunLoop.ManualClock(start: start, autoAdvance: autoAdvance) }
        }
    }

    let time: Time
    let mustBeLeftEmpty: Bool

    /// Each test of a suite has a loop of its own.
    public var isRecursive: Bool { true }

    /// Makes the loop, performs the test with it, and returns when the loop's thread has ended.
    public func provideScope(
        for test: Test, testCase: Test.Case?, performing function: @Sendable () async throws -> Void
    ) async throws { /* DOES CALLOUT */
        let scope = try TestRunLoop(time)
        do {
            try await TestRunLoop.$ofTask.withValue(scope) { try await scope.perform(function) }
        } catch {
            _ = await scope.end()
            throw error
        }
        let left = await scope.end()
        if mustBeLeftEmpty && !left.isEmpty {
            Issue.record("the test left on its run loop:\n\(left.joined(separator: "\n"))", sourceLocation: test.sourceLocation)
        }
    }
}

extension Trait where Self == RunLoopTrait {
    /// Each test on a run loop of its own, in real time.
    public static var runLoop: Self { runLoop() }

    /// Each test on a run loop of its own.
    ///
    /// With `mustBeLeftEmpty`, a test that returns while sources, timers or observers are on the loop has an issue recorded, which names each
    /// with the place where it was made. Without, they go silently: the loop ends with the test.
    public static func runLoop(_ time: RunLoopTrait.Time = .realTime, mustBeLeftEmpty: Bool = false) -> Self {
        RunLoopTrait(time: time, mustBeLeftEmpty: mustBeLeftEmpty)
    }
}
