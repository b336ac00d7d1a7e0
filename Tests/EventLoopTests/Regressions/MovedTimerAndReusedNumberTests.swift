// Rules proved here:
// - If two sources of one descriptor invalidate each other when its number is reused, each is notified once.
// - Moving a base to a new one closes no descriptor twice, and so never closes other code's descriptor.
// - A timer that moves itself to another loop continues to fire there, on the dates that are set there. If it fires once, it fires once.
// - If another thread advances manual time, a loop that is about to sleep notices: polling the kernel does not consume the wake-up.

import EventLoop
import EventLoopTestSupport
import Testing

#if canImport(Glibc)
import Glibc
#else
import Darwin
#endif

@Suite(.tags(.lifetimes)) struct MovedTimerAndReusedNumberTests {
    @Test func `two sources of a reused number that invalidate each other are finished once each`() throws {
        let outcome = try inManualTime { loop, _, trace in
            let (old, new) = (Pipe(), Pipe())
            let first = try readSource(old) { _ in trace.add("first called") }
            let second = try readSource(old) { _ in trace.add("second called") }
            first.onInvalidation {
                trace.add("first")
                second.invalidate()
            }
            second.onInvalidation {
                trace.add("second")
                first.invalidate()
            }
            loop.add(first)
            loop.add(second)
            _ = loop.run(for: .zero)
            precondition(dup2(new.readEnd, old.readEnd) == old.readEnd)
            let third = try readSource(old) { _ in trace.add("third:\(new.readAll())") }
            loop.add(third)
            new.write("ab")
            _ = loop.run(for: .zero)
            return "\(trace.list.sorted().joined(separator: " ")) \(first.isValid) \(second.isValid) \(third.isValid)"
        }
        #expect(outcome == "first second third:ab false false true")
    }

    /// Runs `body` on a fresh thread with two loops that share a manual clock: the thread's own loop, and a loop that runs.
    private static func withRunningLoop<R: Sendable>(
        _ body: @escaping @Sendable (_ loop: RunLoop, _ running: RunLoop, _ clock: RunLoop.ManualClock) throws -> R
    ) throws -> R {
        try onFreshThread { loop in
            let clock = RunLoop.ManualClock()
            loop.use(clock)
            let other = try RunLoopThread(name: "running", setup: { $0.use(clock) })
            defer {
                other.stop()
                #expect(other.join(timeout: patience))
            }
            return try body(loop, other.runLoop, clock)
        }
    }

    // MARK: Timers that move

    @Test func `a timer that its handler moves to another loop continues to fire there`() throws {
        try Self.withRunningLoop { loop, running, clock in
            let (here, there) = (Box(0), Box(0))
            let timer = RunLoop.Timer(every: .milliseconds(10)) { timer in
                guard RunLoop.current === loop else {
                    there.increment()
                    return
                }
                here.increment()
                loop.remove(timer)
                #expect(running.add(timer))
                // The other loop checks the timer during this callout, at a time when the timer is due there.
                clock.advance(by: .milliseconds(20))
                for _ in 0..<3 { try? running.performAndWait {} }
            }
            loop.add(timer)
            clock.advance(by: .milliseconds(10))
            _ = loop.run(for: .zero)
            for _ in 0..<6 {
                // Waits until the timer has its next date, because the timer skips slots that pass during a callout.
                try waitUntilAsleep(running)
                let before = there.value
                clock.advance(by: .milliseconds(10))
                try waitUntil { there.value > before }
            }
            #expect(here.value == 1)
            #expect(running.contains(timer))
            timer.invalidate()
        }
    }

    // Tests/Models/moving.pml has every interleaving of these two; no test can stop a thread between two steps.
    @Test func `a timer that fires once is called once, although its handler moves it to another loop`() throws {
        try Self.withRunningLoop { loop, running, _ in
            for _ in 0..<300 {
                let calls = Box(0)
                let timer = RunLoop.Timer(fireAt: .distantPast) { timer in
                    calls.increment()
                    loop.remove(timer)
                    running.add(timer)
                    // The other loop files it again while this call ends.
                    timer.tolerance = .microseconds(1)
                }
                loop.add(timer)
                _ = loop.run(for: .zero)
                try running.performAndWait {}
                #expect(calls.value == 1 && !timer.isValid && !running.contains(timer))
            }
        }
    }

    @Test func `an observer that does not repeat is called once, although its handler moves it to another loop`() throws {
        try Self.withRunningLoop { loop, running, _ in
            loop.addIdleSource()
            for _ in 0..<300 {
                let calls = Box(0)
                let observer = RunLoop.Observer(activities: .beforeTimers, repeats: false) { observer, _ in
                    calls.increment()
                    loop.remove(observer)
                    running.add(observer)
                    running.wakeUp()
                }
                loop.add(observer)
                _ = loop.run(for: .zero)
                try running.performAndWait {}
                #expect(calls.value == 1 && !observer.isValid && !running.contains(observer))
            }
        }
    }

    @Test func `a date queued at a loop that does not run moves with the timer`() throws {
        try Self.withRunningLoop { loop, running, clock in
            let fired = Box<RunLoop.Instant?>(nil)
            let timer = RunLoop.Timer(fireAt: .ms(30_000)) { _ in fired.value = clock.now }
            loop.add(timer)
            try plainThread {
                timer.nextFire = .ms(10)
                loop.remove(timer)
                #expect(running.add(timer))
            }.join()
            clock.advance(by: .milliseconds(10))
            try waitUntil { fired.value != nil }
            #expect(fired.value == .ms(10))
        }
    }

    @Test func `a date set after the move counts, whatever is still queued at the previous loop`() throws {
        try Self.withRunningLoop { loop, running, clock in
            let fired = Box<RunLoop.Instant?>(nil)
            let timer = RunLoop.Timer(fireAt: .ms(30_000)) { _ in fired.value = clock.now }
            loop.add(timer)
            try plainThread {
                timer.nextFire = .ms(20_000)
                loop.remove(timer)
                #expect(running.add(timer))
                try waitUntilAsleep(running)
                timer.nextFire = .ms(10)
            }.join()
            clock.advance(by: .milliseconds(10))
            try waitUntil { fired.value != nil }
            #expect(fired.value == .ms(10))
        }
    }
}
