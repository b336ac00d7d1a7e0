// Several timers, and changes to them (semantics 5):
//  4  All due timers fire in one pass, sorted by date, then by insertion or, if that was later, by when the date was set, by whichever
//     thread; `order` has no effect. The loop checks each timer again
//     before it fires: if an earlier timer invalidates, removes or postpones a later one, the later one does not fire. This also
//     holds for a removal from the running mode alone.
//  5  A timer added during a pass, even with a past date, fires in the next pass.
//  6  Setting nextFire: in the timer's own callout, any later date takes effect, and a past date means now; the grid restarts from the
//     new date. A one-shot cannot be rescheduled in its callout. Before the timer is added, the date is only stored. On an invalid
//     timer, the setter does nothing.
// 11  A timer invalidated in its own callout does not fire again. A timer removed in it does not fire again either, but stays valid.
// 13  The next date of a mode is its earliest timer's date; a mode without timers has none.

import EventLoop
import EventLoopTestSupport
import Testing

@Suite(.tags(.lifetimes)) struct TimerSchedulingTests {
    // MARK: 4

    @Test func `all due timers fire in one pass, sorted by date and then by insertion, whatever their order`() throws {
        let trace = try inManualTime { loop, clock, trace in
            trace.observe(loop)
            func timer(_ name: String, _ date: Int64, order: Int) -> RunLoop.Timer {
                RunLoop.Timer(fireAt: .ms(date), order: order) { _ in trace.add(name) }
            }
            // The timers are made and added in different orders, so that the trace shows which order counts.
            let (tie3, tie2, tie1) = (timer("tie3", 20, order: -9), timer("tie2", 20, order: 0), timer("tie1", 20, order: 9))
            loop.add(timer("last", 30, order: -100))
            loop.add(tie1)
            loop.add(timer("first", 10, order: 100))
            loop.add(tie2)
            loop.add(tie3)
            clock.advance(by: .milliseconds(40))
            trace.add("-> \(loop.run(until: .ms(90)))")
            return trace.description
        }
        #expect(trace == "E T S W A first tie1 tie2 tie3 last X -> finished")
    }

    /// How much the loop has seen of the timers when the other thread sets their dates.
    @Test(arguments: ["known", "not seen", "in two modes", "in a mode that is not seen", "in a mode again"])
    func `timers with equal dates fire in the order in which another thread set the dates last:`(_ state: String) throws {
        let trace = try inManualTime { loop, clock, trace in
            let timers = ["a", "b", "c"].map { name in RunLoop.Timer(fireAt: .distantFuture) { _ in trace.add(name) } }
            @Sendable func addAll(_ mode: RunLoop.Mode = .default) { for timer in timers { loop.add(timer, forMode: mode) } }
            if state != "not seen" { addAll() }
            if state == "in two modes" { addAll("other") }
            _ = loop.run(until: .distantPast)
            try plainThread {
                if state == "not seen" { addAll() }
                for timer in timers { timer.nextFire = .ms(10) }
                if state == "in a mode that is not seen" { addAll("other") }
                if state == "in a mode again" {
                    for timer in timers { loop.remove(timer) }
                    addAll()
                }
                for index in [1, 0] { timers[index].nextFire = .ms(10) }
            }.join()
            _ = loop.run(until: .ms(20))
            return trace.description
        }
        #expect(trace == "c b a")
    }

    @Test func `timers that are not due at the same time fire in separate passes`() throws {
        let trace = try inManualTime { loop, clock, trace in
            trace.observe(loop)
            loop.add(RunLoop.Timer(fireAt: .ms(20)) { _ in trace.add("b@\(clock.ms)") })
            loop.add(RunLoop.Timer(fireAt: .ms(10)) { _ in trace.add("a@\(clock.ms)") })
            trace.add("-> \(loop.run(until: .ms(90)))")
            return trace.description
        }
        #expect(trace == "E T S W A a@10 T S W A b@20 X -> finished")
    }

    /// Two timers are due in one pass, and the first one changes the second.
    private func firstDue(does change: @escaping @Sendable (RunLoop, RunLoop.Timer) -> Void) throws -> String {
        try inManualTime { loop, clock, trace in
            trace.observe(loop)
            let second = RunLoop.Timer(fireAt: .ms(20)) { _ in trace.add("second@\(clock.ms)") }
            loop.add(
                RunLoop.Timer(fireAt: .ms(10)) { _ in
                    trace.add("first@\(clock.ms)")
                    change(loop, second)
                })
            loop.add(second)
            loop.add(second, forMode: "other")
            clock.advance(by: .milliseconds(30))
            trace.add("-> \(loop.run(until: .ms(90))) \(second.isValid ? "valid" : "invalid")")
            return trace.description
        }
    }

    @Test func `a timer invalidated by an earlier timer of the pass does not fire`() throws {
        let trace = try firstDue { _, second in second.invalidate() }
        #expect(trace == "E T S W A first@30 X -> finished invalid")
    }

    @Test func `a timer removed from every mode by an earlier timer of the pass does not fire`() throws {
        let trace = try firstDue { loop, second in
            loop.remove(second)
            loop.remove(second, forMode: "other")
        }
        #expect(trace == "E T S W A first@30 X -> finished valid")
    }

    @Test func `a timer removed from only the running mode by an earlier timer of the pass does not fire`() throws {
        let trace = try firstDue { loop, second in loop.remove(second) }
        #expect(trace == "E T S W A first@30 X -> finished valid")
    }

    @Test func `a timer postponed by an earlier timer of the pass fires only at its new date`() throws {
        let trace = try firstDue { _, second in second.nextFire = .ms(50) }
        #expect(trace == "E T S W A first@30 T S W A second@50 X -> finished invalid")
    }

    @Test func `another thread's change to a later timer takes effect while an earlier timer fires`() throws {
        let changes: [(name: String, change: @Sendable (RunLoop, RunLoop.Timer) -> Void)] = [
            ("invalidate", { _, second in second.invalidate() }),
            ("remove", { loop, second in loop.remove(second) }),
            ("postpone", { _, second in second.nextFire = .ms(50) }),
            ("nothing", { _, _ in }),
        ]
        let fired = try changes.map { name, change in
            let trace = try firstDue { loop, second in _ = try? plainThread { change(loop, second) }.join() }
            return "\(name): \(trace.split(separator: " ").filter { $0.hasPrefix("second") }.joined())"
        }
        #expect(fired == ["invalidate: ", "remove: ", "postpone: second@50", "nothing: second@30"])
    }

    @Test func `a timer that has left the running mode fires when another of its modes runs`() throws {
        let trace = try inManualTime { loop, clock, trace in
            let timer = RunLoop.Timer(fireAt: .ms(10)) { _ in trace.add("fire@\(clock.ms)") }
            let alive = loop.keepAlive()
            defer { alive.cancel() }
            loop.add(timer)
            loop.add(timer, forMode: "other")
            loop.remove(timer)
            trace.add("default \(loop.run(until: .ms(30)))")
            trace.add("other \(loop.run(mode: "other", until: .ms(50)))")
            return trace.description
        }
        #expect(trace == "default timedOut fire@30 other finished")
    }

    // MARK: 5

    @Test func `a timer that a timer adds fires in the next pass, even with a past date`() throws {
        let trace = try inManualTime { loop, clock, trace in
            trace.observe(loop)
            loop.add(
                RunLoop.Timer(fireAt: .ms(10)) { _ in
                    trace.add("a@\(clock.ms)")
                    loop.add(RunLoop.Timer(fireAt: .ms(5)) { _ in trace.add("b@\(clock.ms)") })
                })
            trace.add("-> \(loop.run(until: .ms(90)))")
            return trace.description
        }
        #expect(trace == "E T S W A a@10 T S W A b@10 X -> finished")
    }

    @Test func `a timer that adds another one each time does not prolong the pass`() throws {
        let trace = try inManualTime { loop, clock, trace in
            trace.observe(loop)
            @Sendable func addAnother(_ number: Int) {
                loop.add(
                    RunLoop.Timer(fireAt: .distantPast) { _ in
                        trace.add("\(number)")
                        if number == 3 { loop.stop() } else { addAnother(number + 1) }
                    })
            }
            addAnother(1)
            trace.add("-> \(loop.run(until: .ms(90)))")
            return trace.description
        }
        #expect(trace == "E T S W A 1 T S W A 2 T S W A 3 X -> stopped")
    }

    // MARK: 6

    /// A timer with an interval of 10 ms sets its next date in its first callout, at 10 ms.
    private func redated(in callout: @escaping @Sendable (RunLoop.Timer) -> Void, until limit: Int64) throws -> String {
        try inManualTime { loop, clock, trace in
            let calls = Box(0)
            loop.add(
                RunLoop.Timer(fireAt: .ms(10), interval: .milliseconds(10)) { timer in
                    trace.add("\(clock.ms)")
                    if calls.increment() == 1 { callout(timer) }
                })
            _ = loop.run(until: .ms(limit))
            return trace.description
        }
    }

    @Test func `a date later than the next slot, set in the callout, restarts the grid there`() throws {
        #expect(try redated(in: { $0.nextFire = .ms(35) }, until: 60) == "10 35 45 55")
    }

    @Test func `a date earlier than the next slot, set in the callout, restarts the grid there`() throws {
        #expect(try redated(in: { $0.nextFire = .ms(13) }, until: 40) == "10 13 23 33")
    }

    @Test func `a past date set in the callout means now: the timer fires again in the next pass`() throws {
        let trace = try inManualTime { loop, clock, trace in
            trace.observe(loop)
            let calls = Box(0)
            loop.add(
                RunLoop.Timer(fireAt: .ms(10), interval: .milliseconds(10)) { timer in
                    trace.add("tick@\(clock.ms)")
                    if calls.increment() == 1 { timer.nextFire = .ms(0) }
                })
            trace.add("-> \(loop.run(until: .ms(25)))")
            return trace.description
        }
        #expect(trace == "E T S W A tick@10 T S W A tick@10 T S W A tick@20 T S W A X -> timedOut")
    }

    @Test func `a past date set in the callout restarts the grid at the current time`() throws {
        let trace = try inManualTime { loop, clock, trace in
            let calls = Box(0)
            loop.add(
                RunLoop.Timer(fireAt: .ms(40), interval: .milliseconds(60)) { timer in
                    trace.add("\(clock.ms)")
                    guard calls.increment() == 1 else { return }
                    clock.advance(by: .milliseconds(5))
                    timer.nextFire = .ms(20)
                    trace.add("reads \(timer.nextFire.nanoseconds / 1_000_000)")
                    clock.advance(by: .milliseconds(3))
                })
            _ = loop.run(until: .ms(200))
            return trace.description
        }
        #expect(trace == "40 reads 20 48 105 165")
    }

    /// The places where the date is set: before the timer is in a loop, on its loop, and on another thread.
    @Test(arguments: ["before it is added", "in its loop", "in two modes", "by another thread"])
    func `a past date set outside the callout restarts the grid at the current time too:`(_ place: String) throws {
        let trace = try inManualTime { loop, clock, trace in
            let timer = RunLoop.Timer(fireAt: .ms(500), interval: .milliseconds(60)) { _ in trace.add("\(clock.ms)") }
            clock.advance(by: .milliseconds(30))
            if place != "before it is added" { loop.add(timer) }
            if place == "in two modes" { loop.add(timer, forMode: "other") }
            if place == "by another thread" {
                try plainThread { timer.nextFire = .ms(10) }.join()
            } else {
                timer.nextFire = .ms(10)
            }
            trace.add("reads \(timer.nextFire.nanoseconds / 1_000_000)")
            if place == "before it is added" { loop.add(timer) }
            clock.advance(by: .milliseconds(12))
            _ = loop.run(until: .ms(160))
            return trace.description
        }
        #expect(trace == "reads 10 42 90 150")
    }

    @Test(arguments: [(10, "42 90 150"), (75, "75 135")])
    func `a date that a thread without a loop sets before the timer is added is compared with the time of the loop that takes the timer`(
        date: Int, expected: String
    ) throws {
        let trace = try inManualTime { loop, clock, trace in
            let timer = RunLoop.Timer(fireAt: .distantFuture, interval: .milliseconds(60)) { _ in trace.add("\(clock.ms)") }
            clock.advance(by: .milliseconds(30))
            // In real time, which is the time of a thread without a loop, both dates are in the past.
            try plainThread { timer.nextFire = .ms(Int64(date)) }.join()
            #expect(timer.nextFire == .ms(Int64(date)))
            loop.add(timer)
            #expect(timer.nextFire == .ms(Int64(date)))
            clock.advance(by: .milliseconds(12))
            _ = loop.run(until: .ms(160))
            return trace.description
        }
        #expect(trace == expected)
    }

    @Test func `the last of several dates set in one callout takes effect`() throws {
        let trace = try redated(
            in: { timer in
                timer.nextFire = .ms(13)
                timer.nextFire = .ms(35)
                timer.nextFire = .ms(17)
            }, until: 40)
        #expect(trace == "10 17 27 37")
    }

    @Test func `a one-shot cannot be rescheduled in its callout`() throws {
        let trace = try inManualTime { loop, clock, trace in
            let alive = loop.keepAlive()
            defer { alive.cancel() }
            let timer = RunLoop.Timer(fireAt: .ms(10)) { timer in
                trace.add("fire@\(clock.ms)")
                timer.nextFire = .ms(20)
            }
            loop.add(timer)
            trace.add("-> \(loop.run(until: .ms(50)))")
            trace.add("valid \(timer.isValid), in the mode \(loop.contains(timer)), date none \(timer.nextFire == .distantFuture)")
            return trace.description
        }
        #expect(trace == "fire@10 -> timedOut valid false, in the mode false, date none true")
    }

    @Test func `a date set before the timer is added is only stored`() throws {
        let trace = try inManualTime { loop, clock, trace in
            let timer = RunLoop.Timer(fireAt: .ms(10), interval: .milliseconds(10)) { _ in trace.add("\(clock.ms)") }
            timer.nextFire = .ms(33)
            trace.add("next \(timer.nextFire.nanoseconds / 1_000_000);")
            loop.add(timer)
            _ = loop.run(until: .ms(60))
            return trace.description
        }
        #expect(trace == "next 33; 33 43 53")
    }

    @Test func `a waiting timer and its grid move to an earlier or a later date`() throws {
        let trace = try inManualTime { loop, clock, trace in
            let moved = RunLoop.Timer(fireAt: .ms(40), interval: .milliseconds(40)) { _ in trace.add("\(clock.ms)") }
            loop.add(moved)
            loop.add(RunLoop.Timer(fireAt: .ms(5)) { _ in moved.nextFire = .ms(13) })  // earlier: 13, then 53
            loop.add(RunLoop.Timer(fireAt: .ms(20)) { _ in moved.nextFire = .ms(70) })  // later: 70, then 110
            _ = loop.run(until: .ms(120))
            return trace.description
        }
        #expect(trace == "13 70 110")
    }

    @Test func `a timer moved later many times does not wake the loop at its old dates`() throws {
        let trace = try inManualTime { loop, clock, trace in
            trace.observe(loop)
            let idle = RunLoop.Timer(fireAt: .ms(10)) { _ in trace.add("idle@\(clock.ms)") }
            loop.add(idle)
            loop.add(
                RunLoop.Timer(fireAt: .ms(5)) { _ in
                    trace.add("move")
                    for date in 11...40 { idle.nextFire = .ms(Int64(date)) }
                })
            trace.add("-> \(loop.run(until: .ms(90)))")
            return trace.description
        }
        #expect(trace == "E T S W A move T S W A idle@40 X -> finished")
    }

    @Test func `setting the date of an invalid timer does nothing`() throws {
        let trace = try inManualTime { loop, _, trace in
            let timer = RunLoop.Timer(fireAt: .ms(10), interval: .milliseconds(10)) { _ in trace.add("fire") }
            loop.add(timer)
            timer.invalidate()
            timer.nextFire = .ms(20)
            trace.add("none \(timer.nextFire == .distantFuture), valid \(timer.isValid) -> \(loop.run(until: .ms(50)))")
            return trace.description
        }
        #expect(trace == "none true, valid false -> finished")
    }

    // MARK: 11

    @Test func `a timer invalidated in its own callout does not fire again`() throws {
        let trace = try inManualTime { loop, clock, trace in
            let timer = RunLoop.Timer(fireAt: .ms(10), interval: .milliseconds(10)) { timer in
                trace.add("\(clock.ms)")
                if clock.ms == 20 { timer.invalidate() }
            }
            loop.add(timer)
            trace.add("-> \(loop.run(until: .ms(50))) valid \(timer.isValid)")
            return trace.description
        }
        #expect(trace == "10 20 -> finished valid false")
    }

    @Test func `a timer removed in its own callout does not fire again but stays valid, and can be added again`() throws {
        let trace = try inManualTime { loop, clock, trace in
            let timer = RunLoop.Timer(fireAt: .ms(10), interval: .milliseconds(10)) { timer in
                trace.add("\(clock.ms)")
                if clock.ms == 20 { loop.remove(timer) }
            }
            loop.add(timer)
            trace.add("-> \(loop.run(until: .ms(50))) valid \(timer.isValid), added \(loop.add(timer)),")
            clock.advance(by: .milliseconds(25))
            trace.add("-> \(loop.run(until: .ms(65)))")
            return trace.description
        }
        // The timer last fired at 20. It is added again at 45 and then fires once, late, for the slots that it missed.
        #expect(trace == "10 20 -> finished valid true, added true, 45 50 60 -> timedOut")
    }

    // MARK: 13

    @Test func `the next fire of the common modes is that of the timers added to them`() throws {
        try inManualTime { loop, _, _ in
            loop.add(RunLoop.Timer(fireAt: .ms(10)) { _ in })
            #expect(loop.nextTimerFire(forMode: .common) == nil)
            for date in [30, 20, 40] { loop.add(RunLoop.Timer(fireAt: .ms(Int64(date))) { _ in }, forMode: .common) }
            #expect(loop.nextTimerFire(forMode: .common) == .ms(20))
            #expect(loop.nextTimerFire() == .ms(10))
        }
    }

    @Test func `the next fire of a mode is its earliest timer's date, and nil without timers`() throws {
        let trace = try inManualTime { loop, _, trace in
            func note(_ mode: RunLoop.Mode) {
                trace.add(loop.nextTimerFire(forMode: mode).map { "\($0.nanoseconds / 1_000_000)" } ?? "none")
            }
            note(.default)
            note("nowhere")
            let early = RunLoop.Timer(fireAt: .ms(10)) { _ in trace.add("early") }
            let late = RunLoop.Timer(fireAt: .ms(20), interval: .milliseconds(20)) { _ in trace.add("late") }
            loop.add(late)
            note(.default)
            loop.add(early)
            note(.default)
            early.nextFire = .ms(30)
            note(.default)
            early.nextFire = .ms(15)
            note(.default)
            loop.remove(early)
            note(.default)
            _ = loop.run(until: .ms(25))
            note(.default)
            late.invalidate()
            note(.default)
            return trace.description + (loop.modes.contains("nowhere") ? " made" : "")
        }
        #expect(trace == "none none 20 10 20 15 20 late 40 none")
    }

    @Test func `reading the next fire does not fire due timers`() throws {
        let trace = try inManualTime { loop, clock, trace in
            loop.add(RunLoop.Timer(fireAt: .ms(10)) { _ in trace.add("fire") })
            clock.advance(by: .milliseconds(20))
            trace.add("next \(loop.nextTimerFire()!.nanoseconds / 1_000_000)")
            trace.add("next \(loop.nextTimerFire()!.nanoseconds / 1_000_000)")
            trace.add("-> \(loop.run(until: .ms(50)))")
            return trace.description
        }
        #expect(trace == "next 10 next 10 fire -> finished")
    }
}
