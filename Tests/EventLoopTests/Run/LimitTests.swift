// Rules proved here:
// - A run with a limit of 0, a negative limit or a deadline in the past makes exactly one pass and does not sleep.
// - If the limit passes during a callout, the run completes the pass and then ends without another sleep.
// - The limit does not depend on other events. A sleep ends at the earlier of the limit and the next timer.
// - A limit too distant to be represented means no limit.

import EventLoop
import EventLoopTestSupport
import Testing

@Suite struct `The limit of a run` {
    @Test(arguments: [Duration.zero, .nanoseconds(-1), .seconds(-1), .seconds(Int64.min)])
    func `that is not positive makes one pass`(_ limit: Duration) throws {
        try inManualTime { loop, clock, trace in
            trace.observe(loop)
            loop.addIdleSource()
            loop.performBlock { loop.wakeUp() }
            loop.addTimer(at: clock.now + .seconds(1)) { _ in trace.add("timer") }
            #expect(loop.run(for: limit) == .timedOut)
            #expect(trace.take() == "E T S X")
            #expect(clock.now == RunLoop.Instant(nanoseconds: 0))
        }
    }

    @Test func `that is a date in the past makes one pass`() throws {
        try inManualTime { loop, clock, trace in
            clock.advance(by: .seconds(10))
            trace.observe(loop)
            loop.addIdleSource()
            for date in [clock.now, clock.now - .seconds(1), .distantPast] {
                #expect(loop.run(until: date) == .timedOut)
                #expect(trace.take() == "E T S X")
            }
            #expect(clock.now == RunLoop.Instant(nanoseconds: 10_000_000_000))
        }
    }

    @Test func `that is a date in the future ends the run on that date`() throws {
        try inManualTime { loop, clock, trace in
            clock.advance(by: .seconds(10))
            trace.observe(loop)
            loop.addIdleSource()
            #expect(loop.run(until: clock.now + .seconds(5)) == .timedOut)
            #expect(trace.take() == "E T S W A X")
            #expect(clock.now == RunLoop.Instant(nanoseconds: 15_000_000_000))
        }
    }

    @Test(arguments: Callout.allCases)
    func `that passes in a callout lets the pass complete and prevents another:`(_ callout: Callout) throws {
        try inManualTime { loop, clock, trace in
            trace.observe(loop)
            loop.addIdleSource()
            try callout.arrange(loop, clock, trace) { clock.advance(by: .seconds(2)) }
            #expect(loop.run(for: .seconds(1)) == .timedOut)
            #expect(trace.take() == callout.traceOfOnePass)
            #expect(clock.now == RunLoop.Instant(nanoseconds: 2_000_000_000))
        }
    }

    @Test func `ends a sleep before a later timer, but not before an earlier timer`() throws {
        try inManualTime { loop, clock, trace in
            loop.addIdleSource()
            loop.addTimer(at: clock.now + .seconds(3)) { _ in trace.add("timer \(clock.now.nanoseconds)") }
            #expect(loop.run(for: .seconds(2)) == .timedOut)
            #expect(trace.take() == "")
            #expect(clock.now == RunLoop.Instant(nanoseconds: 2_000_000_000))
            #expect(loop.run(for: .seconds(2)) == .timedOut)
            #expect(trace.take() == "timer 3000000000")
            #expect(clock.now == RunLoop.Instant(nanoseconds: 4_000_000_000))
        }
    }

    @Test func `holds over any number of passes`() throws {
        try inManualTime { loop, clock, _ in
            let fired = Counter()
            let timer = RunLoop.Timer(fireAt: clock.now, interval: .milliseconds(100)) { _ in fired.increment() }
            loop.add(timer)
            #expect(loop.run(for: .milliseconds(950)) == .timedOut)
            #expect(fired.value == 10)
            #expect(clock.now == RunLoop.Instant(nanoseconds: 950_000_000))
        }
    }

    @Test func `holds in a run whose source is always ready`() throws {
        try inManualTime { loop, clock, trace in
            loop.addSource(signaled: true) { source in
                clock.advance(by: .milliseconds(10))
                source.signal()
            }
            #expect(loop.run(for: .seconds(1)) == .timedOut)
            #expect(clock.now == RunLoop.Instant(nanoseconds: 1_000_000_000))
        }
    }

    @Test(arguments: [Duration.seconds(Int64.max), .seconds(20 * 365 * 86_400)])
    func `that is very distant does not come early`(_ limit: Duration) throws {
        try inManualTime { loop, clock, trace in
            loop.addTimer(at: clock.now + .seconds(17 * 365 * 86_400)) { _ in
                trace.add("timer")
                loop.stop()
            }
            loop.addIdleSource()
            #expect(loop.run(for: limit) == .stopped)
            #expect(trace.take() == "timer")
        }
    }

    @Test func `does not exist for distantFuture`() throws {
        try inManualTime { loop, clock, trace in
            loop.addTimer(at: clock.now + .seconds(290 * 365 * 86_400)) { _ in
                trace.add("timer")
                loop.stop()
            }
            loop.addIdleSource()
            #expect(loop.run(until: .distantFuture) == .stopped)
            #expect(trace.take() == "timer")
        }
    }

    @Test func `in real time is not early and does not hang`() throws {
        try onFreshThread { loop in
            loop.addIdleSource()
            let start = ContinuousClock.now
            #expect(loop.run(for: .milliseconds(5)) == .timedOut)
            #expect(ContinuousClock.now - start >= .milliseconds(5))
            // A poll with a date that is now once slept.
            #expect(loop.run(until: .now) == .timedOut)
            #expect(ContinuousClock.now - start < patience)
        }
    }

    /// swift-corelibs-foundation PR #2544, and repeated short limits that hung elsewhere.
    @Test func `can be short in many runs in a row`() throws {
        try onFreshThread { loop in
            loop.addIdleSource()
            for _ in 1...500 { #expect(loop.run(for: .microseconds(1)) == .timedOut) }
        }
    }
}
