// A trait of Swift Testing that gives every test a run loop of its own.
//
// Lifecycle of a test's loop: it is made with its thread before the test begins, and ends with it before the result is reported, together
// with everything that the test has left on it. No test sees anything of another.

public import EventLoop
public import Testing

/// Runs each test on a run loop of its own, on a thread of its own, in real time or in manual time.
///
/// The body of the test, async or not, runs on the loop's thread. So do the `init` of its suite and the tasks that the test makes, unless
/// they belong to an actor (including `@MainActor`) or are detached. There, `RunLoop.current` is the loop. The thread runs the loop while
/// the body is suspended. A body that is not async runs the loop itself, with `RunLoop.current.run(for:)`; jobs of actors and tasks on the
/// loop wait in the meantime. As on every `RunLoopThread`, the loop's default mode is never empty, so a run of it ends with its limit, a
/// stop or a source.
///
/// For one test write `@Test(.runLoop)` or `@Test(.runLoop(.manualTime))`; for all tests of a suite, `@Suite(.runLoop(.manualTime))`. Each
/// test, and each case of a test with arguments, has its own loop. A trait on a test overrides that of its suite. The test gets the loop
/// from `RunLoop.ofTest`, and the clock from `RunLoop.ManualClock.ofTest`.
///
/// If no thread or descriptors are available, the test fails with `RunLoop.SourceError`, and its body is not called.
public struct RunLoopTrait: TestTrait, SuiteTrait, TestScoping {
    /// The time of a test's loop.
    public struct Time: Sendable {
        let makeClock: @Sendable () -> RunLoop.ManualClock?

        /// The monotonic clock.
        public static let realTime = Time { nil }
        /// A `ManualClock` that starts at zero and moves when the test moves it.
        public static let manualTime = Time { RunLoop.ManualClock() }
        /// A `ManualClock` that starts at `start`. With `autoAdvance` it jumps to the next deadline whenever the loop would wait for it.
        public static func manualTime(autoAdvance: Bool, start: RunLoop.Instant = RunLoop.Instant(nanoseconds: 0)) -> Time {
            Time { RunLoop.ManualClock(start: start, autoAdvance: autoAdvance) }
        }
    }

    let time: Time
    let mustBeLeftEmpty: Bool

    /// Each test of a suite has its own loop.
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
    /// Runs each test on its own run loop, in real time.
    public static var runLoop: Self { runLoop() }

    /// Runs each test on its own run loop.
    ///
    /// With `mustBeLeftEmpty`, an issue is recorded if sources, timers or observers are on the loop when the test returns; it names each of
    /// them and where it was made. Otherwise they end silently with the loop.
    public static func runLoop(_ time: RunLoopTrait.Time = .realTime, mustBeLeftEmpty: Bool = false) -> Self {
        RunLoopTrait(time: time, mustBeLeftEmpty: mustBeLeftEmpty)
    }
}
