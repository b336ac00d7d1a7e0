// Defects of CFRunLoop's algorithm, each with a test of its own:
// - A nested run hides the outer run's limit.
// - A nested run consumes a wake-up, and the outer run sleeps over a signaled source.
// - A signal is lost behind a source that was invalidated in the same pass.
// - A run sleeps although an observer added work during beforeWaiting.
// - A passed limit or a handled source consumes a stop.
// The manual clock exposes a run that sleeps wrongly, because the clock jumps.

import EventLoop
import EventLoopTestSupport
import Testing

@Suite struct `Defects of CFRunLoop that this loop does not have` {
    /// 1. The outer run has a limit of 1 s. 2. One of its callouts starts a nested run of 2 s. 3. The outer run must end as soon as it
    /// regains control. In CFRunLoop the nested run consumes the limit's wake-up, and the outer run sleeps forever.
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

    /// 1. In beforeWaiting, an observer signals a source of the outer mode and wakes the loop. 2. It starts a nested run, which takes the
    /// wake-up. 3. The outer run must not sleep over its source.
    @Test(arguments: [true, false])
    func `a wake-up that a nested run consumes is not lost, wake-up before the nested run:`(_ before: Bool) throws {
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
                // With limit 0 time stands still, so only the outer run's sleep can make it jump.
                #expect(loop.run(mode: "nested", for: .zero) == .timedOut)
            }
            #expect(loop.run(for: .seconds(1)) == .timedOut)
            #expect(trace.take() == "E T S W nE nT nS nX A T S source 0 T S W A X")
        }
    }

    @Test func `a nested run that sleeps in beforeWaiting does not hide the outer run's source`() throws {
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

    enum Departure: CaseIterable { case invalidation, removal }

    /// 1. Two sources are signaled. 2. The first signals itself again and invalidates or removes the second. 3. The pass has handled a source, so
    /// the next pass follows without a sleep.
    @Test(arguments: Departure.allCases)
    func `a signal is not lost behind a source that was invalidated or removed`(departure: Departure) throws {
        try inManualTime { loop, clock, trace in
            trace.observe(loop)
            let second = RunLoop.CustomSource(order: 2) { trace.add("second") }
            let rounds = Counter()
            loop.addSource(order: 1, signaled: true) { first in
                trace.add("first")
                switch departure {
                case .invalidation: second.invalidate()
                case .removal: loop.remove(second)
                }
                if rounds.increment() == 1 { first.signal() }
            }
            loop.add(second)
            second.signal()
            #expect(loop.run(for: .seconds(1)) == .timedOut)
            #expect(trace.take() == "E T S first T S first T S W A X")
        }
    }

    @Test func `a handled source counts even if the next source was invalidated`() throws {
        try inManualTime { loop, clock, trace in
            let second = RunLoop.CustomSource(order: 2) {}
            loop.addSource(order: 1, signaled: true) { _ in second.invalidate() }
            loop.add(second)
            second.signal()
            #expect(loop.run(for: .seconds(1), returnAfterSourceHandled: true) == .handledSource)
        }
    }

    // MARK: Work added in beforeWaiting, without a wake-up

    enum AddedWork: CaseIterable {
        case signal, signaledSource, block, perform, timer

        func add(to loop: RunLoop, _ clock: RunLoop.ManualClock, _ idle: RunLoop.CustomSource, note: @escaping @Sendable (String) -> Void) {
            switch self {
            case .signal: idle.signal()
            case .signaledSource: loop.addSource(signaled: true) { _ in note("source") }
            case .block: loop.performBlock { note("block") }
            case .perform: loop.perform { note("perform") }
            case .timer: loop.addTimer(at: clock.now + .milliseconds(1)) { _ in note("timer") }
            }
        }

        var trace: String {
            switch self {
            case .signal: "E T S W A T S idle 0 T S W A X"
            case .signaledSource: "E T S W A T S source 0 T S W A X"
            case .block: "E T S W A block 0 T S W A X"
            case .perform: "E T S W A T S perform 0 T S W A X"
            case .timer: "E T S W A timer 1000000 T S W A X"
            }
        }
    }

    @Test(arguments: AddedWork.allCases) func `the loop does not sleep over work that is added in beforeWaiting`(work: AddedWork) throws {
        try inManualTime { loop, clock, trace in
            trace.observe(loop)
            let note = { @Sendable (what: String) in trace.add("\(what) \(clock.now.nanoseconds)") }
            let idle = loop.addSource { _ in note("idle") }
            loop.atFirst(.beforeWaiting) { work.add(to: loop, clock, idle, note: note) }
            #expect(loop.run(for: .seconds(1)) == .timedOut)
            #expect(trace.take() == work.trace)
        }
    }

    // MARK: Invalidated timers

    /// CFRunLoop leaves its kernel timer armed, which causes a stray pass at the old date.
    @Test func `an invalidated timer does not wake the loop`() throws {
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

    /// A callout may run the loop until a condition holds. That wait must get its own results, even if it is stopped from outside.
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
