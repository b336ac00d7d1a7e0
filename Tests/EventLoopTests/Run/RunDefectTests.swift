// What CFRunLoop gets wrong in the algorithm, each a test of its own:
// - an outer run's limit that is lost behind a nested run;
// - a wake-up that a nested run swallows, so that the outer sleeps over a signaled source;
// - a signal that is lost behind a source that was invalidated in the same pass;
// - a run that sleeps although something to do was left during beforeWaiting;
// - a passed limit, or a handled source, that uses up a stop.
// A run that sleeps wrongly is seen by the manual clock: it jumps.

import EventLoop
import EventLoopTestSupport
import Testing

@Suite struct `Defects of CFRunLoop that this loop has not` {
    /// 1. The outer run has a limit of 1 s. 2. A callout of it runs a nested run of 2 s. 3. The outer must end at once when it regains
    /// control; CF's nested run has taken the limit's wake-up, and the outer sleeps for ever.
    @Test(arguments: Callout.allCases, [RunLoop.Mode.default, "nested"])
    func `a limit that passes in a nested run still ends the outer run:`(_ callout: Callout, _ nestedMode: RunLoop.Mode) throws {
        try inManualTime { loop, clock, trace in
            loop.addIdleSource()
            loop.addIdleSource(forMode: "nested")
            try callout.arrange(loop, clock, trace) {
                #expect(loop.run(mode: nestedMode, for: .seconds(2)) == .timedOut)
                #expect(clock.now == RunLoop.Instant(nanoseconds: 2_000_000_000))
            }
            // If the limit were lost, this timer would be the next thing to wake the loop.
            loop.addTimer(at: clock.now + .seconds(100)) { _ in loop.stop() }
            #expect(loop.run(for: .seconds(1)) == .timedOut)
            #expect(clock.now == RunLoop.Instant(nanoseconds: 2_000_000_000))
        }
    }

    /// 1. In beforeWaiting a source of the outer mode is signaled and the loop woken. 2. A nested run begins there and takes the wake-up.
    /// 3. The outer must not sleep over its source.
    @Test(arguments: [true, false])
    func `a wake-up that a nested run swallowed is not missed, wake-up before the nested run:`(_ before: Bool) throws {
        try inManualTime { loop, clock, trace in
            trace.observe(loop)
            trace.observe(loop, in: "nested", prefix: "n")
            loop.addIdleSource(forMode: "nested")
            let source = loop.addSource { _ in trace.add("source \(clock.now.nanoseconds)") }
            loop.atFirst(.beforeWaiting) {
                if before {
                    source.signal()
                    loop.wakeUp()
                } else {
                    loop.atFirst(.beforeTimers, forMode: "nested") {
                        source.signal()
                        loop.wakeUp()
                    }
                }
                // Limit 0: the time stands still, so a jump can only be the outer's sleep.
                #expect(loop.run(mode: "nested", for: .zero) == .timedOut)
            }
            #expect(loop.run(for: .seconds(1)) == .timedOut)
            #expect(trace.take() == "E T S W nE nT nS nX A T S source 0 T S W A X")
        }
    }

    @Test func `a nested run that slept in beforeWaiting does not hide the outer's source`() throws {
        try inManualTime { loop, clock, trace in
            let source = loop.addSource { _ in trace.add("source \(clock.now.nanoseconds)") }
            loop.addIdleSource(forMode: "nested")
            loop.atFirst(.beforeWaiting) {
                source.signal()
                loop.wakeUp()
                #expect(loop.run(mode: "nested", for: .milliseconds(1)) == .timedOut)
            }
            #expect(loop.run(for: .seconds(1)) == .timedOut)
            #expect(trace.take() == "source 1000000")
        }
    }

    /// 1. Two sources are signaled. 2. The first signals itself again and invalidates the second. 3. The pass did handle one, so the next
    /// follows without a sleep.
    @Test func `a signal is not lost behind a source that was invalidated`() throws {
        try inManualTime { loop, clock, trace in
            trace.observe(loop)
            let second = RunLoop.CustomSource(order: 2) { trace.add("second") }
            let rounds = Counter()
            loop.addSource(order: 1, signaled: true) { first in
                trace.add("first")
                second.invalidate()
                if rounds.increment() == 1 { first.signal() }
            }
            loop.add(second)
            second.signal()
            #expect(loop.run(for: .seconds(1)) == .timedOut)
            #expect(trace.take() == "E T S first T S first T S W A X")
        }
    }

    @Test func `the same with a source that was removed`() throws {
        try inManualTime { loop, clock, trace in
            trace.observe(loop)
            let second = RunLoop.CustomSource(order: 2) { trace.add("second") }
            let rounds = Counter()
            loop.addSource(order: 1, signaled: true) { first in
                trace.add("first")
                loop.remove(second)
                if rounds.increment() == 1 { first.signal() }
            }
            loop.add(second)
            second.signal()
            #expect(loop.run(for: .seconds(1)) == .timedOut)
            #expect(trace.take() == "E T S first T S first T S W A X")
        }
    }

    @Test func `a handled source counts though the next one was invalidated`() throws {
        try inManualTime { loop, clock, trace in
            let second = RunLoop.CustomSource(order: 2) {}
            loop.addSource(order: 1, signaled: true) { _ in second.invalidate() }
            loop.add(second)
            second.signal()
            #expect(loop.run(for: .seconds(1), returnAfterSourceHandled: true) == .handledSource)
        }
    }

    // MARK: Left in beforeWaiting, without a wake-up

    @Test func `a source signaled in beforeWaiting is not slept over`() throws {
        try inManualTime { loop, clock, trace in
            trace.observe(loop)
            let source = loop.addSource { _ in trace.add("source \(clock.now.nanoseconds)") }
            loop.atFirst(.beforeWaiting) { source.signal() }
            #expect(loop.run(for: .seconds(1)) == .timedOut)
            #expect(trace.take() == "E T S W A T S source 0 T S W A X")
        }
    }

    @Test func `a signaled source added in beforeWaiting is not slept over`() throws {
        try inManualTime { loop, clock, trace in
            trace.observe(loop)
            loop.addIdleSource()
            loop.atFirst(.beforeWaiting) {
                loop.addSource(signaled: true) { _ in trace.add("source \(clock.now.nanoseconds)") }
            }
            #expect(loop.run(for: .seconds(1)) == .timedOut)
            #expect(trace.take() == "E T S W A T S source 0 T S W A X")
        }
    }

    @Test func `a block queued in beforeWaiting is not slept over`() throws {
        try inManualTime { loop, clock, trace in
            trace.observe(loop)
            loop.addIdleSource()
            loop.atFirst(.beforeWaiting) { loop.performBlock { trace.add("block \(clock.now.nanoseconds)") } }
            #expect(loop.run(for: .seconds(1)) == .timedOut)
            #expect(trace.take() == "E T S W A block 0 T S W A X")
        }
    }

    @Test func `a perform queued in beforeWaiting is not slept over`() throws {
        try inManualTime { loop, clock, trace in
            trace.observe(loop)
            loop.addIdleSource()
            loop.atFirst(.beforeWaiting) { loop.perform { trace.add("perform \(clock.now.nanoseconds)") } }
            #expect(loop.run(for: .seconds(1)) == .timedOut)
            #expect(trace.take() == "E T S W A T S perform 0 T S W A X")
        }
    }

    @Test func `a timer added in beforeWaiting is not slept over`() throws {
        try inManualTime { loop, clock, trace in
            trace.observe(loop)
            loop.addIdleSource()
            loop.atFirst(.beforeWaiting) {
                loop.addTimer(at: clock.now + .milliseconds(1)) { _ in trace.add("timer \(clock.now.nanoseconds)") }
            }
            #expect(loop.run(for: .seconds(1)) == .timedOut)
            #expect(trace.take() == "E T S W A timer 1000000 T S W A X")
        }
    }

    // MARK: Timers that go

    /// CF leaves its kernel timer armed: a stray pass at the old date.
    @Test func `a timer that went does not wake the loop`() throws {
        try inManualTime { loop, clock, trace in
            trace.observe(loop)
            loop.addIdleSource()
            let timer = loop.addTimer(at: clock.now + .milliseconds(500)) { _ in trace.add("timer") }
            loop.atFirst(.beforeWaiting) { timer.invalidate() }
            #expect(loop.run(for: .seconds(1)) == .timedOut)
            #expect(trace.take() == "E T S W A X")
        }
    }

    // MARK: Library waits

    /// A wait inside a callout that runs the loop until something holds must get its own results, whoever stops whom.
    @Test func `a nested wait that is stopped from outside leaves the outer run going`() throws {
        try inManualTime { loop, clock, trace in
            loop.addIdleSource()
            loop.atFirst(.beforeTimers) {
                loop.addTimer(at: clock.now + .seconds(1)) { _ in loop.stop() }
                loop.addTimer(at: clock.now + .seconds(2)) { _ in
                    trace.add("ready")
                    loop.stop()
                }
                #expect(loop.run(for: .seconds(10)) == .stopped)
                #expect(loop.run(for: .seconds(10)) == .stopped)
            }
            #expect(loop.run(for: .seconds(30)) == .timedOut)
            #expect(trace.take() == "ready")
            #expect(clock.now == RunLoop.Instant(nanoseconds: 30_000_000_000))
        }
    }
}
