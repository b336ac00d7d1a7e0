// Rules proved here:
// - A stop ends the run that is innermost at the moment of the call, with `.stopped`. Two stops before the run notices them end one run.
// - The run notices a stop at the end of the pass, after the notifications of the sleep, and ends that sleep at once. After a stop in an
//   entry observer the run makes no pass. A stop in an exit observer is lost.
// - A stop while nothing runs is not remembered, but a sticky stop is: the next run returns `.stopped` at once and notifies nobody.
// - A stop from another thread ends a sleep. During a callout it takes effect after the callout.

import EventLoop
import EventLoopTestSupport
import Testing

@Suite(.tags(.threads)) struct `A stop` {
    @Test func `in an entry observer ends the run without a pass`() throws {
        try inManualTime { loop, clock, trace in
            trace.observe(loop)
            loop.addSource(signaled: true) { _ in trace.add("source") }
            loop.performBlock { trace.add("block") }
            loop.atFirst(.entry) { loop.stop() }
            #expect(loop.run(for: .seconds(1_000_000)) == .stopped)
            #expect(trace.take() == "E X")
        }
    }

    @Test(arguments: Callout.allCases.filter { $0 != .entry }, [false, true])
    func `ends the run with the pass, whose sleep ends at once:`(_ callout: Callout, _ sticky: Bool) throws {
        try inManualTime { loop, clock, trace in
            trace.observe(loop)
            loop.addIdleSource()
            try callout.arrange(loop, clock, trace) { loop.stop(sticky: sticky) }
            #expect(loop.run(for: .seconds(1)) == .stopped)
            #expect(trace.take() == callout.traceOfOnePass)
            #expect(clock.now == RunLoop.Instant(nanoseconds: 0))
            // The stop is used up, even if it is sticky, because it met a run.
            #expect(loop.run(for: .seconds(1)) == .timedOut)
        }
    }

    @Test func `lets the rest of its pass complete`() throws {
        try inManualTime { loop, clock, trace in
            trace.observe(loop)
            loop.atFirst(.beforeTimers) { loop.stop() }
            loop.performBlock { trace.add("block") }
            loop.addSource(order: 1, signaled: true) { _ in trace.add("source1") }
            loop.addSource(order: 2, signaled: true) { _ in trace.add("source2") }
            loop.addTimer(at: clock.now) { _ in trace.add("timer") }
            #expect(loop.run(for: .seconds(1)) == .stopped)
            #expect(trace.take() == "E T S block source1 source2 timer X")
        }
    }

    @Test func `in a timer lets the other due timers fire`() throws {
        try inManualTime { loop, clock, trace in
            trace.observe(loop)
            loop.addTimer(at: clock.now) { _ in
                trace.add("timer1")
                loop.stop()
            }
            loop.addTimer(at: clock.now) { _ in trace.add("timer2") }
            loop.addIdleSource()
            #expect(loop.run(for: .seconds(1)) == .stopped)
            #expect(trace.take() == "E T S W A timer1 timer2 X")
        }
    }

    @Test func `in a block at the end of the pass ends the run`() throws {
        try inManualTime { loop, clock, trace in
            trace.observe(loop)
            loop.addIdleSource()
            loop.addTimer(at: clock.now) { _ in loop.performBlock { loop.stop() } }
            #expect(loop.run(for: .seconds(1)) == .stopped)
            #expect(trace.take() == "E T S W A X")
            #expect(clock.now == RunLoop.Instant(nanoseconds: 0))
        }
    }

    @Test func `in an exit observer is lost`() throws {
        try inManualTime { loop, clock, trace in
            trace.observe(loop)
            loop.addIdleSource()
            loop.atFirst(.exit) { loop.stop() }
            #expect(loop.run(for: .seconds(1)) == .timedOut)
            #expect(trace.take() == "E T S W A X")
            #expect(loop.run(for: .seconds(1)) == .timedOut)
            #expect(trace.take() == "E T S W A X")
        }
    }

    @Test func `and a second stop before the first is noticed end one run`() throws {
        try inManualTime { loop, _, trace in
            loop.addIdleSource()
            loop.atFirst(.beforeTimers) {
                loop.stop()
                loop.stop()
            }
            loop.atFirst(.beforeSources) { loop.stop() }
            #expect(loop.run(for: .seconds(1)) == .stopped)
            #expect(loop.run(for: .seconds(1)) == .timedOut)
        }
    }

    @Test func `in an entry observer and another in the exit observer end one run`() throws {
        try inManualTime { loop, _, trace in
            trace.observe(loop)
            loop.addIdleSource()
            loop.atFirst(.entry) { loop.stop() }
            loop.atFirst(.exit) { loop.stop() }
            #expect(loop.run(for: .seconds(1)) == .stopped)
            #expect(trace.take() == "E X")
            #expect(loop.run(for: .seconds(1)) == .timedOut)
        }
    }

    // MARK: While nothing runs

    @Test func `while nothing runs is not remembered`() throws {
        try inManualTime { loop, _, trace in
            trace.observe(loop)
            loop.stop()
            loop.addIdleSource()
            loop.stop()
            #expect(loop.run(for: .seconds(1)) == .timedOut)
            #expect(trace.take() == "E T S W A X")
            loop.stop()
            #expect(loop.run(for: .seconds(1)) == .timedOut)
        }
    }

    @Test func `that is sticky ends the next run at once, and notifies nobody`() throws {
        try inManualTime { loop, clock, trace in
            trace.observe(loop)
            loop.addSource(signaled: true) { _ in trace.add("source") }
            loop.performBlock { trace.add("block") }
            loop.stop(sticky: true)
            #expect(loop.run(for: .seconds(1)) == .stopped)
            #expect(trace.take() == "")
            #expect(loop.currentMode == nil)
            #expect(loop.run(for: .seconds(1)) == .timedOut)
            #expect(trace.take() == "E T S block source T S W A X")
        }
    }

    @Test(arguments: [true, false])
    func `that is sticky is not used up by a refused run in the common modes:`(_ isEmpty: Bool) throws {
        try inManualTime { loop, _, trace in
            trace.observe(loop)
            if !isEmpty { loop.addIdleSource() }
            loop.stop(sticky: true)
            #expect(loop.run(mode: .common, for: .seconds(1)) == .finished)
            #expect(loop.run(mode: .common, until: .distantFuture) == .finished)
            #expect(loop.run(for: .seconds(1)) == .stopped)
            #expect(trace.take() == "")
            #expect(loop.run(for: .seconds(1)) == (isEmpty ? .finished : .timedOut))
        }
    }

    @Test func `that is sticky also ends run without arguments`() throws {
        try inManualTime { loop, _, trace in
            trace.observe(loop)
            loop.addIdleSource()
            loop.stop(sticky: true)
            #expect(loop.run() == .stopped)
            #expect(trace.take() == "")
        }
    }

    @Test func `that is sticky ends one run, however often it is requested`() throws {
        try inManualTime { loop, _, _ in
            loop.addIdleSource()
            loop.stop(sticky: true)
            loop.stop(sticky: true)
            loop.stop()
            #expect(loop.run(for: .seconds(1)) == .stopped)
            #expect(loop.run(for: .seconds(1)) == .timedOut)
        }
    }

    @Test func `that is not sticky does not cancel a sticky one`() throws {
        try inManualTime { loop, _, _ in
            loop.addIdleSource()
            loop.stop(sticky: true)
            loop.stop(sticky: false)
            #expect(loop.run(for: .seconds(1)) == .stopped)
        }
    }

    @Test func `that is sticky and comes too late for its run ends the next run`() throws {
        try inManualTime { loop, _, trace in
            loop.addIdleSource()
            loop.atFirst(.exit) { loop.stop(sticky: true) }
            #expect(loop.run(for: .seconds(1)) == .timedOut)
            #expect(loop.run(for: .seconds(1)) == .stopped)
            #expect(loop.run(for: .seconds(1)) == .timedOut)
        }
    }

    @Test(arguments: [false, true])
    func `that loses to a handled source is kept if it is sticky:`(_ sticky: Bool) throws {
        try inManualTime { loop, _, trace in
            loop.addSource(signaled: true) { _ in loop.stop(sticky: sticky) }
            #expect(loop.run(for: .seconds(1), returnAfterSourceHandled: true) == .handledSource)
            #expect(loop.run(for: .seconds(1)) == (sticky ? .stopped : .timedOut))
            #expect(loop.run(for: .seconds(1)) == .timedOut)
        }
    }

    // MARK: Nested

    @Test(arguments: [false, true], [RunLoop.Mode.default, "nested"])
    func `acts on the run that is innermost at the call`(_ sticky: Bool, _ mode: RunLoop.Mode) throws {
        try inManualTime { loop, clock, trace in
            loop.addIdleSource()
            loop.addIdleSource(forMode: "nested")
            loop.addTimer(at: clock.now) { _ in
                loop.atFirst(.beforeTimers, forMode: mode) { loop.stop(sticky: sticky) }
                trace.add("\(loop.run(mode: mode, for: .seconds(1)))")
            }
            #expect(loop.run(for: .seconds(10)) == .timedOut)
            #expect(trace.take() == "stopped")
            #expect(clock.now == RunLoop.Instant(nanoseconds: 10_000_000_000))
        }
    }

    @Test(arguments: [false, true], [RunLoop.Mode.default, "nested"])
    func `of the outer run does not end a later nested run`(_ sticky: Bool, _ mode: RunLoop.Mode) throws {
        try inManualTime { loop, clock, trace in
            loop.addIdleSource()
            loop.addIdleSource(forMode: "nested")
            loop.addTimer(at: clock.now) { _ in
                loop.stop(sticky: sticky)
                trace.add("\(loop.run(mode: mode, for: .seconds(1)))")
            }
            #expect(loop.run(for: .seconds(10)) == .stopped)
            #expect(trace.take() == "timedOut")
            #expect(clock.now == RunLoop.Instant(nanoseconds: 1_000_000_000))
        }
    }

    /// The nested run takes the wake-up that came with the stop, but the outer run must not sleep.
    @Test(arguments: Callout.allCases, [RunLoop.Mode.default, "nested"])
    func `of the outer run prevents its sleep after a nested run:`(_ callout: Callout, _ mode: RunLoop.Mode) throws {
        try inManualTime { loop, clock, trace in
            loop.addIdleSource()
            loop.addIdleSource(forMode: "nested")
            try callout.arrange(loop, clock, Trace()) {
                loop.stop()
                trace.add("\(loop.run(mode: mode, for: .seconds(1)))")
            }
            #expect(loop.run(for: .seconds(10)) == .stopped)
            #expect(trace.take() == "timedOut")
            #expect(clock.now == RunLoop.Instant(nanoseconds: 1_000_000_000))
        }
    }

    @Test func `ends one level of nested runs`() throws {
        try inManualTime { loop, clock, trace in
            let modes: [RunLoop.Mode] = ["level0", "level1", "level2", "level3"]
            for mode in modes { loop.addIdleSource(forMode: mode) }
            for level in 0..<3 {
                loop.atFirst(.beforeTimers, forMode: modes[level]) {
                    let result = loop.run(mode: modes[level + 1], for: .seconds(1))
                    trace.add("\(level + 1):\(result)")
                    if level == 2 { loop.stop() }
                }
            }
            loop.atFirst(.beforeTimers, forMode: "level3") { loop.stop() }
            #expect(loop.run(mode: "level0", for: .seconds(10)) == .timedOut)
            #expect(trace.take() == "3:stopped 2:stopped 1:timedOut")
        }
    }

    @Test func `in the exit observer of a nested run is lost for the outer run as well`() throws {
        try inManualTime { loop, clock, trace in
            loop.addIdleSource()
            loop.addIdleSource(forMode: "nested")
            loop.atFirst(.exit, forMode: "nested") { loop.stop() }
            loop.atFirst(.beforeTimers) { #expect(loop.run(mode: "nested", for: .zero) == .timedOut) }
            #expect(loop.run(for: .seconds(1)) == .timedOut)
        }
    }

    @Test func `after a nested run has returned ends the outer run`() throws {
        try inManualTime { loop, clock, trace in
            loop.addIdleSource()
            loop.addIdleSource(forMode: "nested")
            loop.atFirst(.beforeTimers) {
                #expect(loop.run(mode: "nested", for: .zero) == .timedOut)
                loop.stop()
            }
            #expect(loop.run(for: .seconds(1)) == .stopped)
            #expect(clock.now == RunLoop.Instant(nanoseconds: 0))
        }
    }

    // MARK: From another thread

    @Test func `from another thread ends a sleep`() throws {
        let running = RunningLoop()
        try waitUntilAsleep(running.loop)
        running.loop.stop()
        #expect(try running.join() == .stopped)
    }

    @Test func `from another thread during a callout takes effect after the callout`() throws {
        let (entered, leave) = (Gate(), Gate())
        let trace = Trace()
        let running = RunningLoop { loop in
            trace.observe(loop)
            loop.addSource(signaled: true) { _ in
                entered.open()
                leave.wait()
                trace.add("source")
            }
        }
        entered.wait()
        running.loop.stop()
        leave.open()
        #expect(try running.join() == .stopped)
        #expect(trace.take() == "E T S source X")
    }

    @Test func `that is sticky and comes before the thread runs its loop is not lost`() throws {
        let (asked, ready) = (Gate(), Gate())
        let published = Box<RunLoop?>(nil)
        let thread = joinableThread { loop in
            loop.addIdleSource()
            published.value = loop
            ready.open()
            asked.wait()
            return [loop.run(for: patience), loop.run(for: .zero)]
        }
        ready.wait()
        published.value!.stop(sticky: true)
        asked.open()
        #expect(try thread.join() == [.stopped, .timedOut])
    }

    @Test func `that is sticky is never lost, whenever it comes`() throws {
        let rounds = 300
        let published = Box<RunLoop?>(nil)
        let ready = Gate()
        let done = Counter()
        let thread = joinableThread { loop in
            loop.addIdleSource()
            published.value = loop
            ready.open()
            for _ in 1...rounds {
                guard loop.run(for: patience) == .stopped else { return false }
                done.increment()
            }
            return true
        }
        ready.wait()
        let loop = published.value!
        // Each stop may come before its run, at the run's start or in its sleep.
        for number in 1...rounds {
            loop.stop(sticky: true)
            try waitUntil("stop \(number)") { done.value == number }
        }
        #expect(try thread.join())
    }

    @Test func `or a wake-up of a loop that has ended is harmless`() throws {
        let loop = try onFreshThread { $0 }
        loop.stop()
        loop.stop(sticky: true)
        loop.wakeUp()
        #expect(!loop.isValid)
    }
}
