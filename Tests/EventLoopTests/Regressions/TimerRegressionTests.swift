// Bugs of timers and clocks that a review found. Each has one rule:
// - If a source fails while queued changes are applied, its last callout may remove timers and add them again, and they fire.
// - The owner can change and fire a timer that another thread added to a mode that the owner has not seen yet.
// - A clock that advances by itself continues when one of its loops ends.

import EventLoop
import EventLoopTestSupport
import Testing

#if canImport(Glibc)
import Glibc
#else
import Darwin
#endif

@Suite(.tags(.lifetimes)) struct TimerRegressionTests {
    // MARK: Changes within changes

    /// Queues at `loop` a source that fails when it is added, and then `timer`. Each test has its own `area` of descriptor numbers.
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

    @Test func `timers that a failed source's last callout removes and adds again fire`() throws {
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

    @Test func `a timer that a failed source's last callout adds again leaves nothing behind when it is invalidated and released`() throws {
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

    @Test func `the owner can nest a run in the callout of a timer that is in a mode it has not seen`() throws {
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

    @Test func `a clock that advances by itself continues when one of its loops ends`() throws {
        let result = try inManualTime { loop, clock, _ in
            let joined = Gate()
            let done = Box(false)
            let other = joinableThread { other in
                other.use(clock)
                joined.open()
                // This loop does not wait, so it holds time until its thread ends here.
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
