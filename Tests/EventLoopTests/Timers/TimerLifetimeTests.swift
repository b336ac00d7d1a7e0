// Firing by hand, on-demand timers, and the objects that a timer keeps alive (semantics 5):
// 18  fire() calls the handler immediately and does not change the schedule of a repeating timer; it invalidates a one-shot; on an
//     invalid timer it does nothing.
// 20  invalidate releases the handler.
// 16  When the last timer of a mode is removed, its wake-up is cancelled too: the loop makes no pass at the old date.
// 22  An on-demand timer keeps its mode from being empty even without a date; without a date, nextTimerFire ignores it. It
//     fires once each time nextFire is set, and stays valid. It has no date in its callout until one is set, and a date that another thread sets
//     then is fired (Tests/Models/moving.pml has every interleaving).

import EventLoopTestSupport
import Synchronization
import Testing

@testable import EventLoop

@Suite(.tags(.lifetimes)) struct TimerLifetimeTests {
    // MARK: 18

    @Test func `fire calls a repeating timer's handler immediately and does not change its schedule`() throws {
        let trace = try inManualTime { loop, clock, trace in
            let timer = RunLoop.Timer(fireAt: .ms(10), interval: .milliseconds(10)) { _ in trace.add("\(clock.ms)") }
            loop.add(timer)
            clock.advance(by: .milliseconds(4))
            timer.fire()
            trace.add("next \(timer.nextFire.nanoseconds / 1_000_000)")
            _ = loop.run(until: .ms(25))
            return trace.description
        }
        #expect(trace == "4 next 10 10 20")
    }

    // Its date in the past kept the loop from sleeping.
    @Test func `a due timer that another thread has begun to end keeps no loop awake`() throws {
        try inManualTime { loop, _, _ in
            let timer = RunLoop.Timer(fireAt: .ms(0)) { _ in }
            loop.add(timer)
            // The first half of `invalidate`.
            _ = timer.state.invalidate()
            let waker = plainThread {
                defer { loop.stop() }
                try? waitUntilAsleep(loop)
            }
            #expect(loop.run() == .stopped)
            try waker.join()
            #expect(loop.statistics.passes < 5)
            loop.expel(timer)
            #expect(!loop.contains(timer))
        }
    }

    @Test func `fire invalidates a one-shot`() throws {
        let trace = try inManualTime { loop, clock, trace in
            let timer = RunLoop.Timer(fireAt: .ms(10)) { timer in trace.add("\(clock.ms) valid \(timer.isValid);") }
            loop.add(timer)
            timer.fire()
            trace.add("valid \(timer.isValid), in the mode \(loop.contains(timer))")
            trace.add("-> \(loop.run(until: .ms(25)))")
            return trace.description
        }
        #expect(trace == "0 valid true; valid false, in the mode false -> finished")
    }

    @Test func `fire works on a timer that is in no loop, and does nothing on an invalid timer`() throws {
        let trace = try onFreshThread { _ in
            let trace = Trace()
            let timer = RunLoop.Timer(fireAt: .distantFuture) { _ in trace.add("fire") }
            timer.fire()
            timer.fire()
            let repeating = RunLoop.Timer(fireAt: .distantFuture, interval: .seconds(1)) { _ in trace.add("again") }
            repeating.fire()
            repeating.fire()
            repeating.invalidate()
            repeating.fire()
            return trace.description
        }
        #expect(trace == "fire again again")
    }

    @Test func `fire runs on the calling thread`() throws {
        let same = try onFreshThread { loop in
            let thread = Box<UInt>(0)
            let timer = RunLoop.Timer(fireAt: .distantFuture) { _ in thread.value = currentThreadID() }
            loop.add(timer)
            let caller = try plainThread {
                timer.fire()
                return currentThreadID()
            }.join()
            return thread.value == caller
        }
        #expect(same)
    }

    // MARK: 20

    @Test func `invalidating a timer releases its handler although the timer is still retained`() throws {
        let trace = try inManualTime { loop, _, trace in
            func timer(_ name: String, interval: Duration?) -> RunLoop.Timer {
                let canary = Canary { trace.add("\(name) freed") }
                return RunLoop.Timer(fireAt: .ms(10), interval: interval) { _ in withExtendedLifetime(canary) {} }
            }
            let never = timer("never added", interval: nil)
            let repeating = timer("repeating", interval: .milliseconds(10))
            let once = timer("one-shot", interval: nil)
            loop.add(repeating)
            loop.add(once)
            never.invalidate()
            repeating.invalidate()
            trace.add("run")
            _ = loop.run(until: .ms(50))
            return withExtendedLifetime((never, repeating, once)) { trace.description }
        }
        #expect(trace == "never added freed repeating freed run one-shot freed")
    }

    @Test func `a timer invalidated in its own callout releases its handler after the callout has returned`() throws {
        let trace = try inManualTime { loop, _, trace in
            func makeTimer() -> RunLoop.Timer {
                let canary = Canary { trace.add("freed") }
                return RunLoop.Timer(fireAt: .ms(10), interval: .milliseconds(10)) { timer in
                    timer.invalidate()
                    withExtendedLifetime(canary) { trace.add("callout") }
                }
            }
            let timer = makeTimer()
            loop.add(timer)
            trace.add("-> \(loop.run(until: .ms(50)))")
            return withExtendedLifetime(timer) { trace.description }
        }
        #expect(trace == "callout freed -> finished")
    }

    @Test func `a loop that ends releases its timers, which stay valid`() throws {
        let trace = Trace()
        let kept = RunLoop.Timer(fireAt: .distantFuture) { _ in }
        try onFreshThread { loop in
            let canary = Canary { trace.add("freed") }
            loop.add(RunLoop.Timer(fireAt: .distantFuture) { _ in withExtendedLifetime(canary) {} })
            loop.add(kept)
        }
        trace.add("ended, valid \(kept.isValid)")
        let moved = try onFreshThread { loop in loop.add(kept) }
        trace.add("moved \(moved)")
        #expect(trace.description == "freed ended, valid true moved true")
    }

    // MARK: 16

    @Test func `the loop does not wake at the date of a removed timer, in manual time`() throws {
        let trace = try inManualTime { loop, clock, trace in
            trace.observe(loop)
            let alive = loop.keepAlive()
            defer { alive.cancel() }
            let gone = RunLoop.Timer(fireAt: .ms(30), interval: .milliseconds(30)) { _ in trace.add("stray") }
            loop.add(gone)
            _ = loop.run(until: .ms(10))
            gone.invalidate()
            trace.add("-> \(loop.run(until: .ms(100))) @\(clock.ms)")
            return trace.description
        }
        #expect(trace == "E T S W A X E T S W A X -> timedOut @100")
    }

    @Test func `the loop does not wake at the date of a removed timer, in real time`() throws {
        // The timer is armed in the kernel, then a descriptor's handler removes it. If the machine is so slow that the timer fires
        // first, or that the run ends before it sleeps again, the attempt proves nothing and the test repeats it.
        for _ in 0..<20 {
            let trace = try onFreshThread { loop in
                let trace = Trace()
                trace.observe(loop)
                let pipe = Pipe()
                let gone = RunLoop.Timer(after: .milliseconds(40)) { _ in trace.add("fired") }
                loop.add(gone)
                loop.add(
                    try RunLoop.DescriptorSource(descriptor: pipe.readEnd, events: .read) { _, _ in
                        pipe.readAll()
                        trace.add("take away")
                        gone.invalidate()
                    })
                let isOver = Box(false)
                let other = plainThread {
                    try waitUntil("the loop sleeps, or its run is over") { loop.isWaiting || isOver.value }
                    pipe.write()
                }
                _ = loop.run(for: .milliseconds(80))
                isOver.value = true
                try other.join()
                return trace.list
            }
            guard !trace.contains("fired"), trace.count(where: { $0 == "W" }) > 1 else { continue }
            #expect(trace == ["E", "T", "S", "W", "A", "take away", "T", "S", "W", "A", "X"])
            return
        }
        Issue.record("the timer or the end of the run came first twenty times")
    }

    // MARK: 22

    @Test func `an on-demand timer fires once each time its date is set, and stays valid`() throws {
        let trace = try inManualTime { loop, clock, trace in
            trace.observe(loop)
            let timer = RunLoop.Timer.onDemand { _ in trace.add("fire@\(clock.ms)") }
            loop.add(timer)
            timer.nextFire = .ms(10)
            trace.add("-> \(loop.run(until: .ms(50)))")
            timer.nextFire = .ms(70)
            timer.nextFire = .ms(60)
            trace.add("-> \(loop.run(until: .ms(100))) valid \(timer.isValid), in the mode \(loop.contains(timer))")
            return trace.description
        }
        #expect(
            trace == """
                E T S W A fire@10 T S W A X -> timedOut E T S W A fire@60 T S W A X -> timedOut valid true, in the mode true
                """)
    }

    @Test func `an on-demand timer without a date keeps its mode from being empty, and the next fire ignores it`() throws {
        let trace = try inManualTime { loop, clock, trace in
            trace.observe(loop)
            let timer = RunLoop.Timer.onDemand { _ in trace.add("fire") }
            func note() { trace.add(loop.nextTimerFire().map { "next \($0.nanoseconds / 1_000_000)" } ?? "none") }
            loop.add(timer)
            note()
            trace.add("-> \(loop.run(until: .ms(50)))")
            loop.add(RunLoop.Timer(fireAt: .ms(70)) { _ in })
            note()
            timer.invalidate()
            _ = loop.run(until: .ms(100))
            note()
            return trace.description
        }
        #expect(trace == "none E T S W A X -> timedOut next 70 E T S W A X none")
    }

    @Test func `an on-demand timer that sets its date in its callout fires again at that date`() throws {
        let trace = try inManualTime { loop, clock, trace in
            let timer = RunLoop.Timer.onDemand { timer in
                trace.add("\(clock.ms)")
                if clock.ms < 30 { timer.nextFire = clock.now + .milliseconds(10) }
            }
            loop.add(timer)
            timer.nextFire = .ms(10)
            trace.add("-> \(loop.run(until: .ms(90)))")
            return trace.description
        }
        #expect(trace == "10 20 30 -> timedOut")
    }

    @Test func `an on-demand timer's date can be cancelled`() throws {
        let trace = try inManualTime { loop, clock, trace in
            trace.observe(loop)
            let timer = RunLoop.Timer.onDemand { _ in trace.add("timeout") }
            loop.add(timer)
            timer.nextFire = .ms(10)
            loop.add(
                RunLoop.Timer(fireAt: .ms(5)) { _ in
                    trace.add("in time")
                    timer.nextFire = .distantFuture
                })
            trace.add("-> \(loop.run(until: .ms(50)))")
            return trace.description
        }
        #expect(trace == "E T S W A in time T S W A X -> timedOut")
    }

    @Test func `an on-demand timer has no date in its callout until one is set`() throws {
        let trace = try inManualTime { loop, clock, trace in
            let timer = RunLoop.Timer.onDemand { timer in
                trace.add(timer.nextFire == .distantFuture ? "none" : "date")
                trace.add(loop.nextTimerFire() == nil ? "none" : "next")
                if clock.ms == 10 { timer.nextFire = .ms(20) }
                trace.add(timer.nextFire == .distantFuture ? "none" : "date")
            }
            loop.add(timer)
            timer.nextFire = .ms(10)
            _ = loop.run(until: .ms(50))
            return trace.description
        }
        #expect(trace == "none none date none none none")
    }

    @Test func `an on-demand timer that another thread sets to the date that is being fired fires again, once`() throws {
        let calls = try onFreshThread { loop in
            let calls = Box(0)
            let timer = RunLoop.Timer.onDemand { timer in
                // The first step of `setDate` on another thread. The next steps come after the callout.
                if calls.increment() == 1 { timer.date.store(RunLoop.Instant.distantPast.nanoseconds, ordering: .sequentiallyConsistent) }
            }
            loop.add(timer)
            timer.nextFire = .distantPast
            _ = loop.run(for: .zero)
            _ = timer.state.noteDateSet()
            timer.submitRedate(loop.id)
            for _ in 0..<3 { _ = loop.run(for: .zero) }
            return calls.value
        }
        #expect(calls == 2)
    }
}
