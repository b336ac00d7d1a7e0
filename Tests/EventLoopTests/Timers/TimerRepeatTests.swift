// Repeating timers (semantics 5):
//  2  The next date is the first slot of the grid (date + k · interval) after the end of the callout, so a timer does not drift
//     however late it fires. During the callout, nextFire still returns the slot that is firing.
//  3  Missed slots: a callout that takes too long drops the slots that pass meanwhile; a loop that was busy elsewhere or did not run
//     fires once, late, as soon as it can, then continues on the grid.
// 12  A timer that becomes due while the loop runs another mode fires once when its own mode runs.

import EventLoop
import EventLoopTestSupport
import Testing

@Suite(.tags(.memory)) struct TimerRepeatTests {
    // MARK: 2

    @Test func `a repeating timer fires on its grid, once per pass`() throws {
        let trace = try inManualTime { loop, clock, trace in
            trace.observe(loop)
            loop.add(RunLoop.Timer(fireAt: .ms(10), interval: .milliseconds(10)) { _ in trace.add("tick@\(clock.ms)") })
            trace.add("-> \(loop.run(until: .ms(35)))")
            return trace.description
        }
        #expect(trace == "E T S W A tick@10 T S W A tick@20 T S W A tick@30 T S W A X -> timedOut")
    }

    @Test func `a repeating timer's first date need not be one interval after the start`() throws {
        let trace = try inManualTime { loop, clock, trace in
            loop.add(RunLoop.Timer(fireAt: .ms(3), interval: .milliseconds(10)) { _ in trace.add("tick@\(clock.ms)") })
            trace.add("-> \(loop.run(until: .ms(35)))")
            return trace.description
        }
        #expect(trace == "tick@3 tick@13 tick@23 tick@33 -> timedOut")
    }

    @Test func `long callouts cause no drift`() throws {
        let trace = try inManualTime { loop, clock, trace in
            loop.add(
                RunLoop.Timer(fireAt: .ms(10), interval: .milliseconds(10)) { _ in
                    trace.add("tick@\(clock.ms)")
                    clock.advance(by: .milliseconds(3))
                })
            trace.add("-> \(loop.run(until: .ms(45)))")
            return trace.description
        }
        #expect(trace == "tick@10 tick@20 tick@30 tick@40 -> timedOut")
    }

    @Test func `a late fire causes no drift`() throws {
        let trace = try onFreshThread { loop in
            let clock = RunLoop.ManualClock()
            loop.use(clock)
            let trace = Trace()
            let timer = RunLoop.Timer(fireAt: .ms(10), interval: .milliseconds(10)) { _ in trace.add("tick@\(clock.ms)") }
            loop.add(timer)
            clock.advance(by: .milliseconds(13))
            _ = loop.run(for: .zero)
            trace.add("next \(timer.nextFire.nanoseconds / 1_000_000)")
            clock.advance(by: .milliseconds(7))
            _ = loop.run(for: .zero)
            return trace.description
        }
        #expect(trace == "tick@13 next 20 tick@20")
    }

    @Test func `during the callout nextFire returns the slot that is firing, not the current time or the next slot`() throws {
        let trace = try onFreshThread { loop in
            let clock = RunLoop.ManualClock()
            loop.use(clock)
            let trace = Trace()
            loop.add(
                RunLoop.Timer(fireAt: .ms(10), interval: .milliseconds(10)) { timer in
                    trace.add("at \(clock.ms) slot \(timer.nextFire.nanoseconds / 1_000_000)")
                })
            clock.advance(by: .milliseconds(13))
            _ = loop.run(for: .zero)
            return trace.description
        }
        #expect(trace == "at 13 slot 10")
    }

    // MARK: 3

    @Test func `a callout that takes too long drops the slots that pass meanwhile`() throws {
        let trace = try inManualTime { loop, clock, trace in
            let calls = Box(0)
            loop.add(
                RunLoop.Timer(fireAt: .ms(10), interval: .milliseconds(10)) { _ in
                    trace.add("tick@\(clock.ms)")
                    if calls.increment() == 1 { clock.advance(by: .milliseconds(25)) }
                })
            trace.add("-> \(loop.run(until: .ms(55)))")
            return trace.description
        }
        #expect(trace == "tick@10 tick@40 tick@50 -> timedOut")
    }

    @Test func `a callout that ends exactly on a slot drops that slot`() throws {
        let trace = try inManualTime { loop, clock, trace in
            loop.add(
                RunLoop.Timer(fireAt: .ms(10), interval: .milliseconds(10)) { _ in
                    trace.add("tick@\(clock.ms)")
                    clock.advance(by: .milliseconds(10))
                })
            trace.add("-> \(loop.run(until: .ms(55)))")
            return trace.description
        }
        #expect(trace == "tick@10 tick@30 tick@50 -> timedOut")
    }

    @Test func `after slots missed during another item's callout, a timer fires once late, then on its grid`() throws {
        let trace = try inManualTime { loop, clock, trace in
            let source = RunLoop.CustomSource(perform: {
                trace.add("busy@\(clock.ms)")
                clock.advance(by: .milliseconds(35))
            })
            loop.add(source)
            loop.add(RunLoop.Timer(fireAt: .ms(10), interval: .milliseconds(10)) { _ in trace.add("tick@\(clock.ms)") })
            source.signal()
            trace.add("-> \(loop.run(until: .ms(55)))")
            return trace.description
        }
        #expect(trace == "busy@0 tick@35 tick@40 tick@50 -> timedOut")
    }

    @Test func `after slots missed while the loop did not run, a timer fires once late, then on its grid`() throws {
        let trace = try inManualTime { loop, clock, trace in
            loop.add(RunLoop.Timer(fireAt: .ms(10), interval: .milliseconds(10)) { _ in trace.add("tick@\(clock.ms)") })
            clock.advance(by: .milliseconds(35))
            trace.add("-> \(loop.run(until: .ms(55)))")
            return trace.description
        }
        #expect(trace == "tick@35 tick@40 tick@50 -> timedOut")
    }

    // MARK: 12

    @Test func `after slots missed while another mode ran, a timer fires once late, then on its grid`() throws {
        let trace = try inManualTime { loop, clock, trace in
            let alive = loop.keepAlive(forMode: "other")
            defer { alive.cancel() }
            loop.add(RunLoop.Timer(fireAt: .ms(10), interval: .milliseconds(10)) { _ in trace.add("tick@\(clock.ms)") })
            trace.add("other \(loop.run(mode: "other", until: .ms(35)))")
            trace.add("default \(loop.run(until: .ms(55)))")
            return trace.description
        }
        #expect(trace == "other timedOut tick@35 tick@40 tick@50 default timedOut")
    }
}
