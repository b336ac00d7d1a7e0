// Timers, one at a time (semantics 5):
//  1  A timer fires as soon as its date is reached, never early. A one-shot is valid during its callout; after the callout it is invalid
//     and in no mode, and its date is distantFuture. A negative interval means that the timer does not repeat.
//     (1.4) A one-shot that is firing keeps its mode from being empty until its callout has returned.
//  7  A date in the past: nextFire reports it, the first pass fires the timer, and the timer keeps its original grid.
// 12  A loop that is not running fires nothing.
// 17  fireAt:interval: with zero or less fires once; every: treats zero or less, and every shorter interval, as 0.1 ms.
// 19  The first date of a timer that is made but not scheduled is now + interval.
// 21  Any representable instant is a date.

import EventLoop
import EventLoopTestSupport
import Testing

@Suite(.tags(.memory)) struct TimerFiringTests {
    // MARK: 1

    @Test func `a one-shot timer fires once, at its date`() throws {
        let trace = try inManualTime { loop, clock, trace in
            trace.observe(loop)
            let alive = loop.keepAlive()
            defer { alive.cancel() }
            loop.add(RunLoop.Timer(fireAt: .ms(10)) { _ in trace.add("fire@\(clock.ms)") })
            trace.add("-> \(loop.run(until: .ms(50))) @\(clock.ms)")
            return trace.description
        }
        #expect(trace == "E T S W A fire@10 T S W A X -> timedOut @50")
    }

    @Test func `a run whose mode held only a one-shot finishes in the pass that fires it`() throws {
        let trace = try inManualTime { loop, clock, trace in
            trace.observe(loop)
            loop.add(RunLoop.Timer(fireAt: .ms(10)) { _ in trace.add("fire@\(clock.ms)") })
            trace.add("-> \(loop.run(until: .ms(50))) @\(clock.ms)")
            return trace.description
        }
        #expect(trace == "E T S W A fire@10 X -> finished @10")
    }

    @Test func `a timer does not fire even a nanosecond early`() throws {
        let trace = try onFreshThread { loop in
            let clock = RunLoop.ManualClock()
            loop.use(clock)
            let trace = Trace()
            trace.observe(loop)
            loop.add(RunLoop.Timer(fireAt: .ms(10)) { _ in trace.add("fire") })
            clock.advance(by: .nanoseconds(9_999_999))
            trace.add("-> \(loop.run(for: .zero))")
            clock.advance(by: .nanoseconds(1))
            trace.add("-> \(loop.run(for: .zero))")
            return trace.description
        }
        #expect(trace == "E T S X -> timedOut E T S fire X -> timedOut")
    }

    @Test func `for a timer that is already due, the run makes a wait that returns immediately`() throws {
        let trace = try inManualTime { loop, clock, trace in
            trace.observe(loop)
            loop.add(RunLoop.Timer(fireAt: .ms(0)) { _ in trace.add("fire@\(clock.ms)") })
            trace.add("-> \(loop.run(until: .ms(50)))")
            return trace.description
        }
        #expect(trace == "E T S W A fire@0 X -> finished")
    }

    @Test func `a one-shot is valid during its callout; afterwards it is invalid, in no mode and without a date`() throws {
        let states = try inManualTime { loop, _, trace in
            let describe: @Sendable (RunLoop.Timer) -> Void = { timer in
                let modes = [RunLoop.Mode.default, "other"].filter { loop.contains(timer, forMode: $0) }
                let date = timer.nextFire == .distantFuture ? "none" : "\(timer.nextFire.nanoseconds)"
                trace.add("\(timer.isValid ? "valid" : "invalid") in \(modes) date \(date);")
            }
            let timer = RunLoop.Timer(fireAt: .ms(10)) { describe($0) }
            loop.add(timer)
            loop.add(timer, forMode: "other")
            trace.add("\(loop.run(until: .ms(50)));")
            describe(timer)
            return trace.description
        }
        #expect(states == "valid in [default, other] date 10000000; finished; invalid in [] date none;")
    }

    @Test(arguments: [Duration.zero, .milliseconds(-5), .seconds(-1_000_000)])
    func `a timer with an interval of zero or less fires once`(interval: Duration) throws {
        let trace = try inManualTime { loop, clock, trace in
            let alive = loop.keepAlive()
            defer { alive.cancel() }
            let timer = RunLoop.Timer(fireAt: .ms(10), interval: interval) { _ in trace.add("fire@\(clock.ms)") }
            loop.add(timer)
            trace.add("-> \(loop.run(until: .ms(50))) valid \(timer.isValid)")
            return trace.description
        }
        #expect(trace == "fire@10 -> timedOut valid false")
    }

    @Test func `a one-shot that is firing keeps its mode from being empty`() throws {
        let trace = try inManualTime { loop, clock, trace in
            loop.add(
                RunLoop.Timer(fireAt: .ms(10)) { _ in
                    trace.add("nested \(loop.run(for: .milliseconds(5))) @\(clock.ms)")
                })
            trace.add("outer \(loop.run(until: .ms(50))) @\(clock.ms)")
            return trace.description
        }
        #expect(trace == "nested timedOut @15 outer finished @15")
    }

    // MARK: 7

    @Test func `a timer with a date in the past reports that date, fires in the first pass, and keeps its grid`() throws {
        let trace = try inManualTime { loop, clock, trace in
            clock.advance(by: .milliseconds(100))
            let timer = RunLoop.Timer(fireAt: .ms(7), interval: .milliseconds(10)) { _ in trace.add("fire@\(clock.ms)") }
            trace.add("next \(timer.nextFire.nanoseconds)")
            loop.add(timer)
            trace.add("next \(timer.nextFire.nanoseconds)")
            trace.add("-> \(loop.run(until: .ms(125)))")
            return trace.description
        }
        #expect(trace == "next 7000000 next 7000000 fire@100 fire@107 fire@117 -> timedOut")
    }

    @Test func `a date reads back as it was set last, also after one in the past and in the distant future`() throws {
        let dates = try inManualTime { loop, clock, _ in
            clock.advance(by: .milliseconds(100))
            let timer = RunLoop.Timer(fireAt: .ms(200), interval: .milliseconds(10), label: "labelled") { _ in }
            loop.add(timer)
            return [RunLoop.Instant.distantFuture, .ms(50), .ms(100), .ms(60), .ms(300), .distantFuture].map { date in
                timer.nextFire = date
                return timer.nextFire == date
            }
        }
        #expect(dates == Array(repeating: true, count: 6))
    }

    // MARK: 12

    @Test func `a loop that is not running fires nothing`() throws {
        let trace = try onFreshThread { loop in
            let clock = RunLoop.ManualClock()
            loop.use(clock)
            let trace = Trace()
            loop.add(RunLoop.Timer(fireAt: .ms(10)) { _ in trace.add("fire@\(clock.ms)") })
            clock.advance(by: .milliseconds(20))
            trace.add("idle@\(clock.ms)")
            trace.add("-> \(loop.run(for: .zero))")
            return trace.description
        }
        #expect(trace == "idle@20 fire@20 -> timedOut")
    }

    // MARK: 17

    @Test(arguments: [Duration.zero, .milliseconds(-3), .nanoseconds(1), .microseconds(99)])
    func `an every interval below a tenth of a millisecond counts as a tenth of a millisecond`(interval: Duration) throws {
        let (read, gaps) = try inManualTime { loop, clock, _ in
            let times = Box<[Int64]>([])
            let timer = RunLoop.Timer.scheduled(every: interval) { timer in
                let count = times.change { list in
                    list.append(clock.now.nanoseconds)
                    return list.count
                }
                if count == 4 { timer.invalidate() }
            }
            let read = timer.interval
            _ = loop.run(until: .ms(50))
            return (read, zip(times.value, times.value.dropFirst()).map { $1 - $0 })
        }
        #expect(read == .microseconds(100))
        #expect(gaps == [100_000, 100_000, 100_000])
    }

    @Test func `a tiny positive interval of fireAt counts as a tenth of a millisecond too`() throws {
        let count = try inManualTime { loop, _, _ in
            let count = Box(0)
            loop.add(RunLoop.Timer(fireAt: .ms(0), interval: .nanoseconds(1)) { _ in count.increment() })
            _ = loop.run(until: Instant(nanoseconds: 950_000))
            return count.value
        }
        #expect(count == 10)  // at 0, 0.1, … 0.9 ms
    }

    // MARK: 19

    @Test func `the first date of a timer that is not yet scheduled is one interval from now`() throws {
        let offsets = try onFreshThread { _ in
            let before = RunLoop.Instant.now
            let timers = [
                RunLoop.Timer(after: .seconds(10)) { _ in },
                RunLoop.Timer(every: .seconds(10)) { _ in },
            ]
            let after = RunLoop.Instant.now
            return timers.map { $0.nextFire >= before + .seconds(10) && $0.nextFire <= after + .seconds(10) }
        }
        #expect(offsets == [true, true])
    }

    @Test func `a scheduled timer counts from its loop's time and is in the default mode`() throws {
        let trace = try inManualTime { loop, clock, trace in
            clock.advance(by: .milliseconds(100))
            let once = RunLoop.Timer.scheduled(after: .milliseconds(15)) { _ in trace.add("once@\(clock.ms)") }
            let often = RunLoop.Timer.scheduled(every: .milliseconds(10)) { _ in trace.add("often@\(clock.ms)") }
            trace.add("\(loop.contains(once)) \(loop.contains(often))")
            trace.add("-> \(loop.run(until: .ms(125)))")
            return trace.description
        }
        #expect(trace == "true true often@110 once@115 often@120 -> timedOut")
    }

    @Test func `a timer made on a loop's thread counts from that loop's time`() throws {
        let trace = try inManualTime { loop, clock, trace in
            clock.advance(by: .milliseconds(100))
            loop.add(RunLoop.Timer(after: .milliseconds(15)) { _ in trace.add("once@\(clock.ms)") })
            loop.add(RunLoop.Timer(every: .milliseconds(10)) { _ in trace.add("often@\(clock.ms)") })
            trace.add("-> \(loop.run(until: .ms(125)))")
            return trace.description
        }
        #expect(trace == "often@110 once@115 often@120 -> timedOut")
    }

    // MARK: 21

    @Test func `a timer centuries ahead fires at its date, not after sixteen years`() throws {
        let century: Int64 = 100 * 365 * 86_400
        let trace = try inManualTime { loop, clock, trace in
            loop.add(
                RunLoop.Timer(fireAt: Instant(nanoseconds: 0) + .seconds(century)) { _ in
                    trace.add("fire@\(clock.now.nanoseconds / 1_000_000_000)")
                })
            trace.add("-> \(loop.run(until: .distantFuture))")
            return trace.description
        }
        #expect(trace == "fire@3153600000 -> finished")
    }

    @Test func `the last representable instants are valid dates`() throws {
        let last = RunLoop.Instant(nanoseconds: .max - 1)
        let (read, trace) = try inManualTime { loop, clock, trace in
            let timer = RunLoop.Timer(fireAt: last, interval: .seconds(1)) { _ in trace.add("fire") }
            loop.add(timer)
            trace.add("-> \(loop.run(until: .ms(10)))")
            return (timer.nextFire, trace.description)
        }
        #expect(read == last)
        #expect(trace == "-> timedOut")
    }

    @Test func `a timer in the distant future keeps its mode from being empty and never fires`() throws {
        let trace = try inManualTime { loop, clock, trace in
            trace.observe(loop)
            loop.add(RunLoop.Timer(fireAt: .distantFuture, interval: .milliseconds(1)) { _ in trace.add("fire") })
            trace.add("-> \(loop.run(until: .ms(10)))")
            return trace.description
        }
        #expect(trace == "E T S W A X -> timedOut")
    }

    @Test func `a repeating timer in the distant past fires once immediately, then within an interval`() throws {
        let (first, next) = try inManualTime { loop, clock, _ in
            let fired = Box<[Int64]>([])
            let timer = RunLoop.Timer(fireAt: .distantPast, interval: .milliseconds(10)) { _ in
                fired.change { $0.append(clock.now.nanoseconds) }
            }
            loop.add(timer)
            _ = loop.run(for: .zero)
            return (fired.value, timer.nextFire)
        }
        #expect(first == [0])
        #expect(next > .ms(0) && next <= .ms(10))
    }
}

private typealias Instant = RunLoop.Instant
