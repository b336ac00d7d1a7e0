// Rules proved here (RunLoop+Clock.swift, RunLoop+Timeout.swift):
// - A sleep is a timer of the loop. It follows the loop's clock and never ends early. Cancelling the task removes the timer at once.
// - withTimeout cancels its body when the time has passed, and waits for the body. The body runs in the isolation of the code that contains
//   it. withTimeout leaves nothing behind.

import EventLoop
import EventLoopTestSupport
import Testing

/// A `RunLoopThread` whose time moves only when a test moves it.
func withManualThread<R>(
    isolation: isolated (any Actor)? = #isolation, _ body: (RunLoop, RunLoop.ManualClock) async throws -> R
) async throws -> R {
    let clock = RunLoop.ManualClock()
    let thread = try RunLoopThread(name: "manual", setup: { $0.use(clock) })
    defer { thread.stop() }
    return try await body(thread.runLoop, clock)
}

extension RunLoop {
    /// Suspends until the loop holds `count` timers in its default mode.
    func untilItHolds(timers count: Int, _ location: SourceLocation = #_sourceLocation) async throws {
        try await suspendUntil("the loop holds \(count) timers", location) { timerCount == count }
    }

    var timerCount: Int { debugDescription.split(separator: "\n").filter { $0.contains("    timer,") }.count }
}

private struct Failure: Error, Equatable { let number: Int }

@Suite(.bounded, .tags(.threads)) struct `Sleeps and timeouts of tasks` {
    // MARK: Sleeping

    @Test func `a sleep is one timer of the loop, ends at its date, and does not end before`() async throws {
        try await withManualThread { loop, clock in
            let trace = Trace()
            let sleeper = Task {
                try await loop.clock.sleep(until: .ms(10))
                trace.add("awake at \(clock.ms)")
            }
            try await loop.untilItHolds(timers: 1)
            clock.advance(by: .milliseconds(9))
            // The loop makes a pass between the two.
            try await loop.performAsync {}
            trace.add("still asleep at \(clock.ms)")
            clock.advance(by: .milliseconds(1))
            try await sleeper.value
            try await loop.untilItHolds(timers: 0)
            #expect(trace.list == ["still asleep at 9", "awake at 10"])
            #expect(loop.statistics.timersFired == 1)
        }
    }

    @Test func `a cancelled sleep throws, and has removed its timer by then`() async throws {
        try await withManualThread { loop, clock in
            for _ in 0..<100 / roundsDivisor {
                let sleeper = Task { try await loop.clock.sleep(until: .ms(10)) }
                try await loop.untilItHolds(timers: 1)
                sleeper.cancel()
                await #expect(throws: CancellationError.self) { try await sleeper.value }
                #expect(loop.timerCount == 0)
            }
            #expect(loop.statistics.timersFired == 0)
        }
    }

    @Test func `a sleep either ends or throws, however the cancellation and the timer race`() async throws {
        try await withLoopThread { thread in
            let loop = thread.runLoop
            for round in 0..<300 / roundsDivisor {
                let sleeper = Task { try await loop.clock.sleep(for: .microseconds(round % 50)) }
                for _ in 0..<(round % 7) { await Task.yield() }
                sleeper.cancel()
                switch await sleeper.result {
                case .success: break
                case .failure(let error): #expect(error is CancellationError)
                }
            }
            #expect(loop.timerCount == 0)
        }
    }

    @Test func `a sleep on a loop that ends throws RunLoopEnded`() async throws {
        let thread = try RunLoopThread(name: "short")
        let sleeper = Task { try await thread.runLoop.clock.sleep(for: .seconds(3600)) }
        try await thread.runLoop.untilItHolds(timers: 1)
        thread.stop()
        await #expect(throws: RunLoopEnded.self) { try await sleeper.value }
        await #expect(throws: RunLoopEnded.self) { try await thread.runLoop.clock.sleep(for: .zero) }
    }

    // MARK: Timeouts

    @Test func `withTimeout returns the value of a body that returns in time, and leaves no timer behind`() async throws {
        try await withManualThread { loop, clock in
            for number in 0..<100 / roundsDivisor {
                let echoed = try await loop.withTimeout(.seconds(1)) { number }
                #expect(echoed == number)
                #expect(loop.timerCount == 0)
            }
            await #expect(throws: Failure(number: 7)) { try await loop.withTimeout(.seconds(1)) { throw Failure(number: 7) } }
            #expect(loop.timerCount == 0)
        }
    }

    @Test func `if the time passes, withTimeout cancels the body, waits for it, and throws TaskTimedOut`() async throws {
        try await withManualThread { loop, clock in
            let trace = Trace()
            let limited = Task {
                defer { trace.add("returned") }
                try await loop.withTimeout(.milliseconds(10)) {
                    defer { trace.add("body has ended") }
                    try await loop.clock.sleep(until: .ms(20))
                }
            }
            try await loop.untilItHolds(timers: 2)
            clock.advance(by: .milliseconds(10))
            await #expect(throws: TaskTimedOut.self) { try await limited.value }
            #expect(trace.list == ["body has ended", "returned"])
            #expect(loop.timerCount == 0)
            #expect(clock.ms == 10)
        }
    }

    @Test func `a value that the body returns despite the cancellation is not lost`() async throws {
        try await withManualThread { loop, clock in
            let limited = Task {
                try await loop.withTimeout(.milliseconds(10)) {
                    try? await loop.clock.sleep(until: .distantFuture)
                    return Task.isCancelled ? "rescued" : "not cancelled"
                }
            }
            try await loop.untilItHolds(timers: 2)
            clock.advance(by: .milliseconds(10))
            let rescued = try await limited.value
            #expect(rescued == "rescued")
        }
    }

    @Test func `cancelling the caller cancels the body, and withTimeout throws the body's error`() async throws {
        try await withManualThread { loop, clock in
            let limited = Task {
                try await loop.withTimeout(.seconds(1)) { try await loop.clock.sleep(until: .distantFuture) }
            }
            try await loop.untilItHolds(timers: 2)
            limited.cancel()
            await #expect(throws: CancellationError.self) { try await limited.value }
            #expect(loop.timerCount == 0)
        }
    }

    @Test func `the body keeps the isolation of the code around it, and its value need not be Sendable`() async throws {
        final class Note { var text = "from the body" }
        try await withLoopThread { thread in
            let ledger = Ledger(on: thread.runLoop)
            let place = try await ledger.limited(by: thread.runLoop)
            #expect(place == "inside on the loop")
            let note = try await thread.runLoop.withTimeout(patience) { Note() }
            #expect(note.text == "from the body")
        }
    }

    @Test func `if the loop ends, withTimeout cancels the body and throws RunLoopEnded`() async throws {
        let (other, thread) = (try RunLoopThread(name: "other"), try RunLoopThread(name: "short"))
        defer { other.stop() }
        let limited = Task {
            try await thread.runLoop.withTimeout(.seconds(3600)) { try await other.runLoop.clock.sleep(for: .seconds(3600)) }
        }
        try await thread.runLoop.untilItHolds(timers: 1)
        thread.stop()
        await #expect(throws: RunLoopEnded.self) { try await limited.value }
    }

    @Test func `a body that has begun completes even if the limit is zero`() async throws {
        try await withLoopThread { thread in
            let value = try await thread.runLoop.withTimeout(.zero) { 3 }
            #expect(value == 3)
        }
    }
}

extension Ledger {
    /// A body that changes the actor's state without a hop.
    fileprivate func limited(by loop: RunLoop) async throws -> String {
        try await loop.withTimeout(patience) {
            append("inside")
            assertIsolated()
            return entries.joined() + (loop.isCurrent ? " on the loop" : " elsewhere")
        }
    }
}
