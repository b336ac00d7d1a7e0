// Rules proved here:
// - Any callout may start a run, in any mode, including the outer run's. The nested run has its own limit, result and stop.
// - The current mode is the nested run's mode during the nested run, and the outer run's mode again afterwards.
// - A nested run of the same mode serves all items except the timer that is firing and the observers that are being called.
// - During a nested run of another mode, the outer mode's items wait. A run in an empty mode returns at once.
// - The outer run's limit does not cut a nested run short. The outer run reports `.timedOut` when it regains control.

import EventLoop
import EventLoopTestSupport
import Testing

@Suite struct `A nested run` {
    @Test(arguments: Callout.allCases, [RunLoop.Mode.default, "nested"])
    func `may be started from any callout, in any mode:`(_ callout: Callout, _ mode: RunLoop.Mode) throws {
        try inManualTime { loop, clock, trace in
            loop.addIdleSource()
            loop.addIdleSource(forMode: "nested")
            try callout.arrange(loop, clock, Trace()) {
                trace.add("\(loop.currentMode!):\(loop.runDepth)")
                let observer = RunLoop.Observer(activities: .all) { _, activity in
                    if loop.runDepth == 2 { trace.add("\(letter(of: activity)):\(loop.currentMode!)") }
                }
                loop.add(observer, forMode: mode)
                #expect(loop.run(mode: mode, for: .seconds(1)) == .timedOut)
                observer.invalidate()
                trace.add("\(loop.currentMode!):\(loop.runDepth)")
            }
            #expect(loop.run(for: .seconds(5)) == .timedOut)
            let inner = ["E", "T", "S", "W", "A", "X"].map { "\($0):\(mode)" }.joined(separator: " ")
            #expect(trace.take() == "default:1 \(inner) default:1")
            #expect(loop.currentMode == nil)
            #expect(clock.now == RunLoop.Instant(nanoseconds: 5_000_000_000))
        }
    }

    @Test(arguments: Callout.allCases)
    func `in an empty mode returns at once and changes nothing:`(_ callout: Callout) throws {
        try inManualTime { loop, clock, trace in
            trace.observe(loop)
            loop.addIdleSource()
            let result = Box<RunLoop.RunResult?>(nil)
            try callout.arrange(loop, clock, Trace()) { result.value = loop.run(mode: "empty", for: .seconds(1_000_000)) }
            #expect(loop.run(for: .seconds(1)) == .timedOut)
            #expect(result.value == .finished)
            #expect(!loop.modes.contains("empty"))
            #expect(trace.list.filter { $0 == "E" } == ["E"])
            #expect(trace.list.filter { $0 == "X" } == ["X"])
        }
    }

    @Test(arguments: Callout.allCases)
    func `in the common modes is refused:`(_ callout: Callout) throws {
        try inManualTime { loop, clock, trace in
            loop.addIdleSource(forMode: .common)
            let result = Box<RunLoop.RunResult?>(nil)
            try callout.arrange(loop, clock, Trace()) { result.value = loop.run(mode: .common, for: .seconds(1_000_000)) }
            #expect(loop.run(for: .seconds(1)) == .timedOut)
            #expect(result.value == .finished)
        }
    }

    @Test func `from an exit observer is like any other run`() throws {
        try inManualTime { loop, clock, trace in
            trace.observe(loop)
            trace.observe(loop, in: "nested", prefix: "n")
            loop.addIdleSource()
            loop.addIdleSource(forMode: "nested")
            loop.atFirst(.exit) {
                trace.add("\(loop.currentMode!)")
                #expect(loop.run(mode: "nested", for: .seconds(1)) == .timedOut)
                trace.add("\(loop.currentMode!)")
            }
            #expect(loop.run(for: .seconds(1)) == .timedOut)
            #expect(trace.take() == "E T S W A X default nE nT nS nW nA nX default")
            #expect(loop.currentMode == nil)
        }
    }

    // MARK: Its own result

    @Test func `has its own result, as does the outer run`() throws {
        try inManualTime { loop, clock, trace in
            loop.addIdleSource()
            loop.addTimer(at: clock.now) { _ in
                loop.addTimer(forMode: "timed", at: clock.now + .seconds(5)) { _ in }
                trace.add("\(loop.run(mode: "timed", for: .seconds(1)))")
                loop.addSource(forMode: "source", signaled: true) { _ in }
                trace.add("\(loop.run(mode: "source", for: .seconds(1), returnAfterSourceHandled: true))")
                loop.performBlock(inModes: ["stopped"]) { loop.stop() }
                loop.addIdleSource(forMode: "stopped")
                trace.add("\(loop.run(mode: "stopped", for: .seconds(1)))")
                loop.performBlock(inModes: ["finished"]) {}
                trace.add("\(loop.run(mode: "finished", for: .seconds(1)))")
            }
            #expect(loop.run(for: .seconds(10), returnAfterSourceHandled: true) == .timedOut)
            #expect(trace.take() == "timedOut handledSource stopped finished")
        }
    }

    @Test func `that handles a source in the same mode ends, and the outer run continues`() throws {
        try inManualTime { loop, clock, trace in
            let source = loop.addSource { _ in trace.add("source") }
            loop.addTimer(at: clock.now) { _ in
                source.signal()
                trace.add("\(loop.run(for: .seconds(1), returnAfterSourceHandled: true))")
            }
            #expect(loop.run(for: .seconds(1), returnAfterSourceHandled: true) == .timedOut)
            #expect(trace.take() == "source handledSource")
        }
    }

    /// The nested runs are inside callouts of sources. These callouts count as handled sources of the outer run.
    @Test func `inside a source's perform does not discard the outer run's handled source`() throws {
        try inManualTime { loop, clock, trace in
            loop.addIdleSource(forMode: "nested")
            loop.addSource(signaled: true) { _ in
                trace.add("\(loop.run(mode: "nested", for: .seconds(1), returnAfterSourceHandled: true))")
            }
            #expect(loop.run(for: .seconds(5), returnAfterSourceHandled: true) == .handledSource)
            #expect(trace.take() == "timedOut")
        }
    }

    @Test func `that outlasts the outer run's limit is not cut short`() throws {
        try inManualTime { loop, clock, trace in
            trace.observe(loop)
            loop.addIdleSource()
            loop.addTimer(forMode: "nested", at: clock.now + .seconds(3)) { _ in trace.add("timer") }
            loop.addIdleSource(forMode: "nested")
            loop.addTimer(at: clock.now) { _ in
                trace.add("\(loop.run(mode: "nested", for: .seconds(4)))")
            }
            #expect(loop.run(for: .seconds(1)) == .timedOut)
            #expect(trace.take() == "E T S W A timer timedOut X")
            #expect(clock.now == RunLoop.Instant(nanoseconds: 4_000_000_000))
        }
    }

    @Test func `ends at its own limit, and the outer run ends at the outer limit`() throws {
        try inManualTime { loop, clock, trace in
            for mode in ["0", "1", "2"] as [RunLoop.Mode] { loop.addIdleSource(forMode: mode) }
            loop.atFirst(.beforeWaiting, forMode: "0") {
                loop.atFirst(.beforeWaiting, forMode: "1") {
                    #expect(loop.run(mode: "2", for: .seconds(1)) == .timedOut)
                    trace.add("2:\(clock.now.nanoseconds / 1_000_000_000)")
                }
                #expect(loop.run(mode: "1", for: .seconds(2)) == .timedOut)
                trace.add("1:\(clock.now.nanoseconds / 1_000_000_000)")
            }
            #expect(loop.run(mode: "0", for: .seconds(3)) == .timedOut)
            trace.add("0:\(clock.now.nanoseconds / 1_000_000_000)")
            #expect(trace.take() == "2:1 1:2 0:3")
        }
    }

    @Test func `may be many levels deep`() throws {
        try inManualTime { loop, clock, trace in
            loop.addIdleSource()
            let depth = Box(0)
            let body = Box<(@Sendable () -> Void)?>(nil)
            body.value = {
                depth.value = loop.runDepth
                guard loop.runDepth < 40 else { return }
                loop.performBlock(body.value!)
                #expect(loop.run(for: .zero) == .timedOut)
            }
            loop.performBlock(body.value!)
            #expect(loop.run(for: .zero) == .timedOut)
            #expect(depth.value == 40)
            #expect(loop.runDepth == 0)
            body.value = nil
        }
    }

    // MARK: Items that a nested run serves

    @Test func `in the same mode serves its items, except the timer that is firing`() throws {
        try inManualTime { loop, clock, trace in
            trace.observe(loop)
            let source = loop.addSource { _ in trace.add("source") }
            let repeating = RunLoop.Timer(fireAt: clock.now, interval: .milliseconds(10)) { _ in
                trace.add("(")
                source.signal()
                loop.performBlock { trace.add("block") }
                _ = loop.run(for: .milliseconds(25))
                trace.add(")")
            }
            loop.add(repeating)
            loop.addTimer(at: clock.now + .milliseconds(12)) { _ in trace.add("other") }
            #expect(loop.run(for: .milliseconds(5)) == .timedOut)
            repeating.invalidate()
            #expect(trace.take() == "E T S W A ( E T S block source T S W A other T S W A X ) X")
        }
    }

    @Test func `does not fire the firing timer in any mode, and the timer then continues on its grid`() throws {
        try inManualTime { loop, clock, trace in
            loop.addIdleSource(forMode: "nested")
            let repeating = RunLoop.Timer(fireAt: clock.now + .milliseconds(10), interval: .milliseconds(10)) { timer in
                trace.add("fired \(clock.now.nanoseconds / 1_000_000)")
                if clock.now.nanoseconds == 10_000_000 { #expect(loop.run(mode: "nested", for: .milliseconds(25)) == .timedOut) }
            }
            loop.add(repeating)
            loop.add(repeating, forMode: "nested")
            #expect(loop.run(for: .milliseconds(55)) == .timedOut)
            #expect(trace.take() == "fired 10 fired 40 fired 50")
            repeating.invalidate()
        }
    }

    @Test func `serves the other due timers, but not the one that is firing`() throws {
        try inManualTime { loop, clock, trace in
            loop.addIdleSource()
            loop.addTimer(at: clock.now) { _ in
                trace.add("(")
                #expect(loop.run(for: .zero) == .timedOut)
                trace.add(")")
            }
            loop.addTimer(at: clock.now) { _ in trace.add("second") }
            loop.addTimer(at: clock.now) { _ in trace.add("third") }
            #expect(loop.run(for: .seconds(1)) == .timedOut)
            // The nested run serves the due timers. The outer run does not serve them again.
            #expect(trace.take() == "( second third )")
        }
    }

    @Test func `serves the other ready ports, and none is served twice`() throws {
        try inManualTime { loop, clock, trace in
            let once = Once()
            for _ in 1...3 {
                try loop.addReadyPipe { _ in
                    trace.add("port")
                    if once.isFirst() { #expect(loop.run(for: .seconds(1)) == .timedOut) }
                }
            }
            #expect(loop.run(for: .seconds(1)) == .timedOut)
            #expect(trace.take() == "port port port")
        }
    }

    @Test func `performs the other signaled sources, and none is performed twice`() throws {
        try inManualTime { loop, clock, trace in
            loop.addSource(order: 1, signaled: true) { _ in
                trace.add("(")
                #expect(loop.run(for: .zero) == .timedOut)
                trace.add(")")
            }
            for order in 2...3 { loop.addSource(order: order, signaled: true) { _ in trace.add("\(order)") } }
            #expect(loop.run(for: .seconds(1)) == .timedOut)
            #expect(trace.take() == "( 2 3 )")
        }
    }

    @Test func `in another mode leaves the outer mode's items waiting`() throws {
        try inManualTime { loop, clock, trace in
            trace.observe(loop)
            loop.addIdleSource(forMode: "nested")
            loop.atFirst(.beforeTimers) {
                trace.add("(")
                loop.addSource(signaled: true) { _ in trace.add("source") }
                loop.addTimer(at: clock.now) { _ in trace.add("timer") }
                loop.performBlock { trace.add("block") }
                #expect(loop.run(mode: "nested", for: .seconds(1)) == .timedOut)
                trace.add(")")
            }
            loop.addIdleSource()
            #expect(loop.run(for: .seconds(5)) == .timedOut)
            #expect(trace.take() == "E T ( ) S block source timer T S W A X")
        }
    }

    @Test func `in another mode leaves the outer mode's ready port ready`() throws {
        try inManualTime { loop, clock, trace in
            loop.addIdleSource(forMode: "nested")
            let port = try loop.addReadyPipe { _ in trace.add("port") }
            loop.atFirst(.beforeTimers) {
                #expect(loop.run(mode: "nested", for: .seconds(1)) == .timedOut)
                trace.add("nested")
            }
            #expect(loop.run(for: .seconds(5)) == .timedOut)
            #expect(trace.take() == "nested port")
            port.invalidate()
        }
    }

    @Test func `does not fire a one-shot timer again if the timer's callout set its date and started the run`() throws {
        try inManualTime { loop, clock, trace in
            loop.addIdleSource()
            let timer = loop.addTimer(at: clock.now) { timer in
                trace.add("fired")
                timer.nextFire = clock.now
                #expect(loop.run(for: .seconds(1)) == .timedOut)
            }
            #expect(loop.run(for: .seconds(5)) == .timedOut)
            #expect(trace.take() == "fired")
            #expect(!timer.isValid)
        }
    }

    // MARK: Effects on the outer run

    @Test func `may empty the outer run's mode`() throws {
        try inManualTime { loop, clock, trace in
            trace.observe(loop)
            let idle = loop.addIdleSource()
            loop.atFirst(.beforeTimers) {
                loop.performBlock(inModes: ["nested"]) { loop.remove(idle) }
                #expect(loop.run(mode: "nested", for: .seconds(1)) == .finished)
            }
            #expect(loop.run(for: .seconds(5)) == .finished)
            #expect(trace.take() == "E T S X")
        }
    }

    @Test func `may add to the outer run's mode`() throws {
        try inManualTime { loop, clock, trace in
            trace.observe(loop)
            loop.addIdleSource()
            loop.addIdleSource(forMode: "nested")
            loop.atFirst(.beforeWaiting) {
                loop.performBlock(inModes: ["nested"]) {
                    loop.addSource(signaled: true) { _ in trace.add("source") }
                    loop.perform { trace.add("perform") }
                }
                #expect(loop.run(mode: "nested", for: .zero) == .timedOut)
            }
            #expect(loop.run(for: .seconds(1)) == .timedOut)
            let seen = trace.take()
            #expect(seen == "E T S W A T S source perform T S W A X" || seen == "E T S W A T S perform source T S W A X")
        }
    }

    @Test func `that removes an item keeps the outer run from calling it`() throws {
        try inManualTime { loop, clock, trace in
            loop.addIdleSource()
            let second = loop.addSource(order: 2, signaled: true) { _ in trace.add("second") }
            let later = loop.addTimer(at: clock.now) { _ in trace.add("timer") }
            loop.addSource(order: 1, signaled: true) { _ in
                loop.performBlock(inModes: ["nested"]) {
                    second.invalidate()
                    later.invalidate()
                }
                #expect(loop.run(mode: "nested", for: .seconds(1)) == .finished)
                trace.add("first")
            }
            #expect(loop.run(for: .seconds(1)) == .timedOut)
            #expect(trace.take() == "first")
        }
    }
}
