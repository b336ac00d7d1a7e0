// Bugs of timers and clocks that a review found, one rule for each:
// - When a source fails as queued changes are applied, its last callout may take timers out and put them back: they fire.
// - A timer that another thread put in a mode which its loop's owner has not seen yet can be changed and fired by the owner.
// - A clock that advances by itself goes on when one of its loops ends.

import EventLoop
import EventLoopTestSupport
import Testing

#if canImport(Glibc)
import Glibc
#else
import Darwin
#endif

@Suite struct TimerRegressionTests {
    // MARK: Changes within changes

    /// Queues at `loop` a source that fails when it is added, and behind it `timer`. `area`: where its number is, each test's own.
    private static func queueFailure(
        _ loop: RunLoop, before timer: RunLoop.Timer, area: Int32, lastCallout: @escaping @Sendable () -> Void
    ) throws {
        let pipe = Pipe()
        let number = fcntl(pipe.readEnd, F_DUPFD_CLOEXEC, area)
        let bad = try RunLoop.DescriptorSource(descriptor: number, events: .read) { _, _ in }
        bad.onInvalidation(lastCallout)
        try plainThread {
            loop.add(bad)
            loop.add(timer)
        }.join()
        close(number)
    }

    @Test func `timers that the last callout of a failed source takes out and puts back fire`() throws {
        let trace = try inManualTime { loop, clock, trace in
            let alive = loop.keepAlive()
            defer { alive.cancel() }
            _ = loop.run(for: .zero)
            let late = RunLoop.Timer(fireAt: .ms(20)) { _ in trace.add("late@\(clock.ms)") }
            let early = RunLoop.Timer(fireAt: .ms(10)) { _ in trace.add("early@\(clock.ms)") }
            try Self.queueFailure(loop, before: late, area: 860) {
                trace.add("failed")
                loop.remove(late)
                loop.add(early)
                loop.add(late)
            }
            _ = loop.run(until: .ms(100))
            return trace.description
        }
        #expect(trace == "failed early@10 late@20")
    }

    @Test func `such a timer leaves nothing behind when it is invalidated and let go of`() throws {
        let trace = try inManualTime { loop, clock, trace in
            let alive = loop.keepAlive()
            defer { alive.cancel() }
            _ = loop.run(for: .zero)
            let late = Box<RunLoop.Timer?>(RunLoop.Timer(fireAt: .ms(40)) { _ in trace.add("late@\(clock.ms)") })
            let early = RunLoop.Timer(fireAt: .ms(30)) { _ in trace.add("early@\(clock.ms)") }
            try Self.queueFailure(loop, before: late.value!, area: 890) {
                loop.remove(late.value!)
                loop.add(early)
                loop.add(late.value!)
            }
            _ = loop.run(until: .ms(5))
            late.value!.invalidate()
            late.value = nil
            _ = loop.run(until: .ms(100))
            return trace.description
        }
        #expect(trace == "early@30")
    }

    // MARK: A mode that the owner has not seen

    @Test func `the owner sets the tolerance of a timer in a mode that it has not seen`() throws {
        let trace = try inManualTime { loop, clock, trace in
            let timer = RunLoop.Timer(fireAt: .ms(50)) { _ in trace.add("fired@\(clock.ms)") }
            loop.add(timer)
            try plainThread { loop.add(timer, forMode: "new") }.join()
            timer.tolerance = .milliseconds(1)
            timer.nextFire = .ms(20)
            trace.add("\(loop.run(mode: "new", until: .ms(100)))")
            return trace.description
        }
        #expect(trace == "fired@21 finished")
    }

    @Test func `the owner runs nested beside a timer in a mode that it has not seen`() throws {
        let trace = try inManualTime { loop, clock, trace in
            let timer = RunLoop.Timer(fireAt: .ms(10), interval: .milliseconds(10)) { timer in
                trace.add("fired@\(clock.ms)")
                guard loop.runDepth == 1 else { return }
                _ = try? plainThread { loop.add(timer, forMode: "new") }.join()
                timer.tolerance = .microseconds(1)
                let alive = loop.keepAlive()
                _ = loop.run(for: .zero)
                alive.cancel()
            }
            loop.add(timer)
            _ = loop.run(until: .ms(25))
            timer.invalidate()
            return trace.description
        }
        #expect(trace == "fired@10 fired@20")
    }

    // MARK: Clocks

    @Test func `a clock that advances by itself goes on when one of its loops ends`() throws {
        let result = try inManualTime { loop, clock, _ in
            let joined = Gate()
            let done = Box(false)
            let other = joinableThread { other in
                other.use(clock)
                joined.open()
                // It does not wait, so it holds time, until it ends here.
                try waitUntilAsleep(loop)
            }
            joined.wait()
            let rescuer = plainThread {
                do { try waitUntil { done.value } } catch { loop.stop(sticky: true) }
            }
            let alive = loop.keepAlive()
            defer { alive.cancel() }
            let result = loop.run(until: .ms(1_000))
            done.value = true
            try other.join()
            try rescuer.join()
            return "\(result)@\(clock.ms)"
        }
        #expect(result == "timedOut@1000")
    }
}
