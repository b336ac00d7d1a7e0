// Rules proved here:
// - A run may be started from any callout, in any mode, the outer's included. It has its own limit, result and stop.
// - The current mode is the nested one inside, and the outer's again afterwards.
// - In the same mode all items take part but the timer that is firing and the observers that are being called.
// - In another mode the outer's items are held. A run in an empty mode returns at once.
// - The outer's limit does not cut a nested run short; the outer reports `.timedOut` when it regains control.

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

    @Test func `from an exit observer is a run as any other`() throws {
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

    @Test func `has its own result, the outer has its own`() throws {
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

    @Test func `a source it handled ends it, not the outer, in the same mode`() throws {
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

    /// The nested runs inside the callouts of sources: those do count for the outer.
    @Test func `inside a source's perform does not take the outer's handled source away`() throws {
        try inManualTime { loop, clock, trace in
            loop.addIdleSource(forMode: "nested")
            loop.addSource(signaled: true) { _ in
                trace.add("\(loop.run(mode: "nested", for: .seconds(1), returnAfterSourceHandled: true))")
            }
            #expect(loop.run(for: .seconds(5), returnAfterSourceHandled: true) == .handledSource)
            #expect(trace.take() == "timedOut")
        }
    }

    @Test func `that outlasts the outer's limit is not cut short`() throws {
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

    @Test func `ends at its own limit, the outer at the outer's`() throws {
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

    @Test func `may be deep`() throws {
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

    // MARK: Who takes part

    @Test func `in the same mode serves its items, apart from the timer that is firing`() throws {
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

    @Test func `holds the firing timer in every mode, and then it goes on with its grid`() throws {
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

    @Test func `of several timers that are due holds the one that is firing only`() throws {
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
            // The nested run serves what is due; the outer does not serve it again.
            #expect(trace.take() == "( second third )")
        }
    }

    @Test func `of several ports that are ready serves the others, and none twice`() throws {
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

    @Test func `of several sources that are signaled performs the others, and none twice`() throws {
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

    @Test func `in another mode holds the outer's items`() throws {
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

    @Test func `in another mode leaves the outer's ready port ready`() throws {
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

    @Test func `a one-shot timer that a nested run starts again from its callout fires no second time`() throws {
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

    // MARK: What it leaves behind

    @Test func `may empty the outer's mode`() throws {
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

    @Test func `may add to the outer's mode`() throws {
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

    @Test func `an item that a nested run took away is not called by the outer`() throws {
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
