// Timers, modes, loops and nested runs (semantics 5):
//  8  Adding: a loop refuses an invalid timer; adding a timer twice to a mode equals adding it once; a timer in several modes
//     fires once per slot; each mode has its own membership; a timer that leaves its last mode stays valid and may join another loop.
// 10  Nested runs: every mode skips a timer that is firing until its callout returns; other timers fire. A nested run in
//     another mode defers the outer mode's timers.
//  9  A timer that another thread adds or moves reaches a sleeping loop without wakeUp; so does the last timer's invalidation.
//  6  Setting nextFire on another thread wakes the loop and re-arms its wait.

import EventLoop
import EventLoopTestSupport
import Testing

@Suite(.tags(.lifetimes)) struct TimerMembershipTests {
    // MARK: 8

    @Test func `a loop refuses an invalid timer`() throws {
        let outcome = try inManualTime { loop, _, _ in
            let timer = RunLoop.Timer(fireAt: .ms(10)) { _ in }
            timer.invalidate()
            return "added \(loop.add(timer)), in the mode \(loop.contains(timer)), \(loop.run(until: .ms(50)))"
        }
        #expect(outcome == "added false, in the mode false, finished")
    }

    @Test func `a timer added twice to a mode fires once per slot, and one removal removes it`() throws {
        let trace = try inManualTime { loop, clock, trace in
            let timer = RunLoop.Timer(fireAt: .ms(10), interval: .milliseconds(10)) { _ in trace.add("\(clock.ms)") }
            trace.add("\(loop.add(timer)) \(loop.add(timer));")
            trace.add("-> \(loop.run(until: .ms(25)));")
            loop.remove(timer)
            trace.add("\(loop.contains(timer)) -> \(loop.run(until: .ms(50)))")
            return trace.description
        }
        #expect(trace == "true true; 10 20 -> timedOut; false -> finished")
    }

    @Test func `a timer in several modes fires once per slot`() throws {
        let trace = try inManualTime { loop, clock, trace in
            let timer = RunLoop.Timer(fireAt: .ms(10), interval: .milliseconds(10)) { _ in
                trace.add("\(loop.currentMode!)@\(clock.ms)")
            }
            loop.add(timer, forMode: "a")
            loop.add(timer, forMode: "b")
            // One mode runs from before a slot until after it, then the other mode runs immediately.
            _ = loop.run(mode: "a", until: .ms(12))
            _ = loop.run(mode: "b", until: .ms(18))
            _ = loop.run(mode: "b", until: .ms(22))
            _ = loop.run(mode: "a", until: .ms(32))
            return trace.description
        }
        #expect(trace == "a@10 b@20 a@30")
    }

    @Test func `a timer's membership is separate for each mode`() throws {
        let outcome = try inManualTime { loop, clock, trace in
            let timer = RunLoop.Timer(fireAt: .ms(10), interval: .milliseconds(10)) { _ in trace.add("\(loop.currentMode!)@\(clock.ms)") }
            func note() {
                let modes: [RunLoop.Mode] = [.default, "a", "b", "c"]
                trace.add("\(modes.filter { loop.contains(timer, forMode: $0) });")
            }
            note()
            loop.add(timer, forMode: "a")
            loop.add(timer, forMode: "b")
            note()
            loop.remove(timer, forMode: "c")
            loop.remove(timer, forMode: "a")
            note()
            trace.add("a \(loop.run(mode: "a", until: .ms(15)));")
            trace.add("b \(loop.run(mode: "b", until: .ms(15)));")
            timer.invalidate()
            note()
            return trace.description
        }
        #expect(outcome == "[]; [a, b]; [b]; a finished; b@10 b timedOut; [];")
    }

    @Test func `removal from the common modes leaves a timer in a mode that is not one of them`() throws {
        let trace = try inManualTime { loop, _, trace in
            let timer = RunLoop.Timer(fireAt: .ms(10)) { _ in trace.add("fired") }
            loop.add(timer, forMode: "private")
            loop.add(timer, forMode: .common)
            loop.remove(timer, forMode: .default)
            loop.remove(timer, forMode: .common)
            trace.add("\(loop.contains(timer, forMode: .common)) \(loop.contains(timer, forMode: "private"))")
            trace.add("-> \(loop.run(mode: "private", until: .ms(50)))")
            return trace.description
        }
        #expect(trace == "false true fired -> finished")
    }

    @Test func `a timer belongs to one loop until it leaves its last mode there`() throws {
        let outcome = try onFreshThread { loop in
            let other = try RunLoopThread(name: "other")
            defer {
                other.stop()
                #expect(other.join(timeout: patience))
            }
            let trace = Trace()
            let timer = RunLoop.Timer(fireAt: .distantFuture) { _ in }
            loop.add(timer)
            loop.add(timer, forMode: "second")
            func tryOther() { trace.add("\(other.runLoop.add(timer)) \(other.runLoop.contains(timer));") }
            tryOther()
            loop.remove(timer)
            tryOther()
            loop.remove(timer, forMode: "second")
            trace.add("valid \(timer.isValid);")
            tryOther()
            trace.add("back \(loop.add(timer)) \(loop.contains(timer))")
            return trace.description
        }
        #expect(outcome == "false false; false false; valid true; true true; back false false")
    }

    @Test func `a timer moved to another loop fires there`() throws {
        let fired = try onFreshThread { loop in
            let other = try RunLoopThread(name: "other")
            defer {
                other.stop()
                #expect(other.join(timeout: patience))
            }
            let onOther = Box<Bool?>(nil)
            let timer = RunLoop.Timer(fireAt: .distantPast) { _ in
                onOther.value = other.runLoop.isCurrent
                loop.stop()
            }
            loop.add(timer)
            loop.remove(timer)
            let alive = loop.keepAlive()
            defer { alive.cancel() }
            loop.add(RunLoop.Timer(after: .zero) { _ in other.runLoop.add(timer) })
            return loop.run(for: patience) == .stopped ? onOther.value : nil
        }
        #expect(fired == true)
    }

    // MARK: 10

    @Test func `nested runs in every mode skip a firing timer and fire other timers`() throws {
        let trace = try inManualTime { loop, clock, trace in
            let nested = Box(false)
            let outer = RunLoop.Timer(fireAt: .ms(10), interval: .milliseconds(10)) { _ in
                trace.add("outer@\(clock.ms)")
                guard !nested.value else { return }
                nested.value = true
                trace.add("[ \(loop.run(mode: .default, until: .ms(25))) \(loop.run(mode: "other", until: .ms(45))) ]")
            }
            let inner = RunLoop.Timer(fireAt: .ms(22), interval: .milliseconds(10)) { _ in trace.add("inner@\(clock.ms)") }
            for timer in [outer, inner] {
                loop.add(timer)
                loop.add(timer, forMode: "other")
            }
            _ = loop.run(until: .ms(55))
            return trace.description
        }
        #expect(trace == "outer@10 inner@22 inner@32 inner@42 [ timedOut timedOut ] outer@50 inner@52")
    }

    @Test func `a nested run in another mode defers the timers of the outer mode`() throws {
        let trace = try inManualTime { loop, clock, trace in
            loop.add(
                RunLoop.Timer(fireAt: .ms(10)) { _ in
                    trace.add("begin@\(clock.ms)")
                    _ = loop.run(mode: "other", until: .ms(40))
                    trace.add("end@\(clock.ms)")
                })
            loop.add(RunLoop.Timer(fireAt: .ms(15), interval: .milliseconds(15)) { _ in trace.add("held@\(clock.ms)") })
            loop.add(RunLoop.Timer(fireAt: .ms(20), interval: .milliseconds(15)) { _ in trace.add("other@\(clock.ms)") }, forMode: "other")
            _ = loop.run(until: .ms(50))
            return trace.description
        }
        #expect(trace == "begin@10 other@20 other@35 end@40 held@40 held@45")
    }

    @Test func `a timer whose callout runs the loop continues on its grid after the callout returns`() throws {
        let trace = try inManualTime { loop, clock, trace in
            let calls = Box(0)
            loop.add(
                RunLoop.Timer(fireAt: .ms(10), interval: .milliseconds(10)) { timer in
                    trace.add("\(clock.ms)")
                    if calls.increment() == 1 {
                        _ = loop.run(until: .ms(33))
                        trace.add("slot \(timer.nextFire.nanoseconds / 1_000_000)")
                    }
                })
            _ = loop.run(until: .ms(55))
            return trace.description
        }
        #expect(trace == "10 slot 10 40 50")
    }

    // MARK: 9 and 6, from another thread

    @Test func `a timer added by another thread reaches a sleeping loop`() throws {
        let result = try onFreshThread { loop in
            let alive = loop.keepAlive()
            defer { alive.cancel() }
            let other = plainThread {
                try waitUntilAsleep(loop)
                return loop.add(RunLoop.Timer(fireAt: .now) { _ in loop.stop() })
            }
            let result = loop.run(for: patience)
            return "\(try other.join()) \(result)"
        }
        #expect(result == "true stopped")
    }

    @Test func `an earlier date set by another thread reaches a sleeping loop`() throws {
        let result = try onFreshThread { loop in
            let timer = RunLoop.Timer(fireAt: .now + .seconds(600)) { _ in loop.stop() }
            loop.add(timer)
            let other = plainThread {
                try waitUntilAsleep(loop)
                timer.nextFire = .now
            }
            let result = loop.run(for: patience)
            try other.join()
            return result
        }
        #expect(result == .stopped)
    }

    @Test func `a timer postponed by another thread does not fire at its old date`() throws {
        let trace = try onFreshThread { loop in
            let trace = Trace()
            let clock = RunLoop.ManualClock()
            loop.use(clock)
            let timer = RunLoop.Timer(fireAt: .ms(10)) { _ in trace.add("fire@\(clock.ms)") }
            loop.add(timer)
            let other = plainThread {
                defer { loop.stop(sticky: true) }
                try waitUntilAsleep(loop)
                timer.nextFire = .ms(30)
                clock.advance(by: .milliseconds(20))
                try waitUntilAsleep(loop)
                try loop.performAndWait { trace.add("asked@\(clock.ms)") }
                clock.advance(by: .milliseconds(10))
                try waitUntil { loop.runDepth == 0 }
            }
            trace.add("-> \(loop.run(until: .ms(1000)))")
            try other.join()
            return trace.description
        }
        #expect(trace == "asked@20 fire@30 -> finished")
    }

    @Test func `invalidating the last timer from another thread ends the run of a sleeping loop`() throws {
        let result = try onFreshThread { loop in
            let timer = RunLoop.Timer(fireAt: .now + .seconds(600)) { _ in }
            loop.add(timer)
            let other = plainThread {
                try waitUntilAsleep(loop)
                timer.invalidate()
            }
            let result = loop.run(for: patience)
            try other.join()
            return result
        }
        #expect(result == .finished)
    }
}
