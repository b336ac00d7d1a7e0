// Tolerance (semantics 5.14): a timer limits its tolerance to min(tolerance, interval / 2), never below zero; a one-shot keeps its value.
// A tolerant timer is never early and at most its tolerance late; the slots of its grid do not move. Its purpose: a wake-up
// within the tolerance fires the timer too.

import EventLoop
import EventLoopTestSupport
import Testing

@Suite(.tags(.memory)) struct TimerToleranceTests {
    @Test func `tolerance returns the value that is in effect`() throws {
        let read = try onFreshThread { _ in
            func tolerance(_ tolerance: Duration, interval: Duration?) -> Duration {
                let byInit = RunLoop.Timer(fireAt: .ms(10), interval: interval, tolerance: tolerance) { _ in }
                let bySetter = RunLoop.Timer(fireAt: .ms(10), interval: interval) { _ in }
                bySetter.tolerance = tolerance
                return byInit.tolerance == bySetter.tolerance ? byInit.tolerance : .seconds(-1)
            }
            return [
                tolerance(.milliseconds(3), interval: .milliseconds(10)),
                tolerance(.milliseconds(5), interval: .milliseconds(10)),
                tolerance(.milliseconds(30), interval: .milliseconds(10)),
                tolerance(.milliseconds(-1), interval: .milliseconds(10)),
                tolerance(.milliseconds(30), interval: nil),
                tolerance(.milliseconds(-1), interval: nil),
            ]
        }
        #expect(read == [.milliseconds(3), .milliseconds(5), .milliseconds(5), .zero, .milliseconds(30), .zero])
    }

    @Test func `a wake-up for another timer within the tolerance fires the tolerant timer too`() throws {
        let trace = try inManualTime { loop, clock, trace in
            trace.observe(loop)
            loop.add(RunLoop.Timer(fireAt: .ms(10), tolerance: .milliseconds(20)) { _ in trace.add("tolerant@\(clock.ms)") })
            loop.add(RunLoop.Timer(fireAt: .ms(15)) { _ in trace.add("exact@\(clock.ms)") })
            trace.add("-> \(loop.run(until: .ms(90)))")
            return trace.description
        }
        #expect(trace == "E T S W A tolerant@15 exact@15 X -> finished")
    }

    @Test func `without tolerance the same two timers need two wake-ups`() throws {
        let trace = try inManualTime { loop, clock, trace in
            trace.observe(loop)
            loop.add(RunLoop.Timer(fireAt: .ms(10)) { _ in trace.add("a@\(clock.ms)") })
            loop.add(RunLoop.Timer(fireAt: .ms(15)) { _ in trace.add("b@\(clock.ms)") })
            trace.add("-> \(loop.run(until: .ms(90)))")
            return trace.description
        }
        #expect(trace == "E T S W A a@10 T S W A b@15 X -> finished")
    }

    @Test func `a tolerant timer is never early, even if a wake-up comes just before its date`() throws {
        let trace = try inManualTime { loop, clock, trace in
            loop.add(
                RunLoop.Timer(fireAt: .ms(10), tolerance: .milliseconds(4)) { _ in
                    trace.add(clock.ms < 10 ? "early" : clock.ms > 14 ? "late" : "in time")
                })
            loop.add(RunLoop.Timer(fireAt: .ms(9)) { _ in trace.add("before@\(clock.ms)") })
            _ = loop.run(until: .ms(90))
            return trace.description
        }
        #expect(trace == "before@9 in time")
    }

    @Test func `tolerance moves no slot of the grid`() throws {
        let (lateness, nexts) = try inManualTime { loop, clock, _ in
            let lateness = Box<[Int64]>([])
            let nexts = Box<[Int64]>([])
            let timer = RunLoop.Timer(fireAt: .ms(10), interval: .milliseconds(10), tolerance: .milliseconds(5)) { timer in
                lateness.change { $0.append(clock.ms - timer.nextFire.nanoseconds / 1_000_000) }
            }
            loop.add(timer)
            // Some of the wake-ups at 13, 26, 39, 52, … fall within the tolerance, others outside it.
            loop.add(
                RunLoop.Timer(fireAt: .ms(13), interval: .milliseconds(13)) { _ in
                    nexts.change { $0.append(timer.nextFire.nanoseconds / 1_000_000) }
                })
            _ = loop.run(until: .ms(107))
            return (lateness.value, nexts.value)
        }
        #expect(lateness.count == 10)
        #expect(lateness.allSatisfy { (0...5).contains($0) }, "\(lateness)")
        #expect(nexts.allSatisfy { $0 % 10 == 0 }, "\(nexts)")
    }

    @Test func `the wake-up for the run's limit fires a tolerant timer that is due`() throws {
        let trace = try inManualTime { loop, clock, trace in
            trace.observe(loop)
            loop.add(RunLoop.Timer(fireAt: .ms(10), tolerance: .seconds(10)) { _ in trace.add("fire@\(clock.ms)") })
            trace.add("-> \(loop.run(until: .ms(50)))")
            return trace.description
        }
        #expect(trace == "E T S W A fire@50 X -> timedOut")
    }
}
