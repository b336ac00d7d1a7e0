// Rules proved here:
// - A wake-up restarts the pass and never ends a run. Wake-ups coalesce until the loop takes them.
// - A wake-up between the start of a pass and its sleep is kept for that sleep. A wake-up outside a run is harmless.
// - The loop never sleeps over a signal that is followed by a wake-up, wherever both come from.
// - `isWaiting` is true only inside the wait.

import EventLoop
import EventLoopTestSupport
import Testing

@Suite struct `A wake-up` {
    @Test(arguments: [Callout.beforeTimers, .beforeSources, .block, .beforeWaiting])
    func `between the start of a pass and its sleep ends the sleep:`(_ callout: Callout) throws {
        try inManualTime { loop, clock, trace in
            trace.observe(loop)
            loop.addIdleSource()
            try callout.arrange(loop, clock, trace) { loop.wakeUp() }
            #expect(loop.run(for: .seconds(1)) == .timedOut)
            #expect(trace.take() == (callout == .block ? "E T S block W A T S W A X" : "E T S W A T S W A X"))
        }
    }

    @Test func `coalesces with the wake-ups requested before it`() throws {
        try inManualTime { loop, _, trace in
            trace.observe(loop)
            loop.addIdleSource()
            loop.atFirst(.beforeSources) { for _ in 1...1_000 { loop.wakeUp() } }
            loop.atFirst(.beforeWaiting) { for _ in 1...1_000 { loop.wakeUp() } }
            #expect(loop.run(for: .seconds(1)) == .timedOut)
            #expect(trace.take() == "E T S W A T S W A X")
        }
    }

    /// An extra quiet pass is allowed here; an end of the run is not.
    @Test(arguments: Callout.allCases)
    func `never ends a run:`(_ callout: Callout) throws {
        try inManualTime { loop, clock, trace in
            loop.addIdleSource()
            try callout.arrange(loop, clock, trace) { loop.wakeUp() }
            #expect(loop.run(for: .seconds(1), returnAfterSourceHandled: false) == .timedOut)
            #expect(clock.now == RunLoop.Instant(nanoseconds: 1_000_000_000))
        }
    }

    @Test func `outside a run is harmless`() throws {
        try inManualTime { loop, clock, trace in
            loop.wakeUp()
            #expect(loop.run(for: .seconds(1)) == .finished)
            loop.addIdleSource()
            loop.wakeUp()
            #expect(loop.run(for: .seconds(1), returnAfterSourceHandled: true) == .timedOut)
            #expect(clock.now == RunLoop.Instant(nanoseconds: 1_000_000_000))
        }
    }

    @Test(arguments: Callout.allCases)
    func `with a signal keeps the loop from sleeping:`(_ callout: Callout) throws {
        try inManualTime { loop, clock, trace in
            let source = loop.addSource(order: 1) { _ in
                trace.add("performed \(clock.now.nanoseconds)")
                loop.stop()
            }
            try callout.arrange(loop, clock, trace) {
                source.signal()
                loop.wakeUp()
            }
            #expect(loop.run(for: .seconds(1)) == .stopped)
            #expect(trace.list.last == "performed 0")
        }
    }

    @Test func `from another thread ends a sleep`() throws {
        let passes = Counter()
        let running = RunningLoop { loop in
            loop.add(RunLoop.Observer(activities: .beforeTimers) { _, _ in passes.increment() })
        }
        try waitUntilAsleep(running.loop)
        for _ in 1...100 {
            let before = passes.value
            running.loop.wakeUp()
            try waitUntil("the wake-up") { passes.value > before }
            try waitUntilAsleep(running.loop)
        }
        #expect(try running.end() == .stopped)
    }

    @Test func `with a signal from another thread is not lost, whatever the loop is doing`() throws {
        let performed = Counter()
        let source = RunLoop.CustomSource { performed.increment() }
        let running = RunningLoop { loop in loop.add(source) }
        for number in 1...2_000 {
            source.signal()
            running.loop.wakeUp()
            try waitUntil("signal \(number)") { performed.value == number }
        }
        #expect(try running.end() == .stopped)
        #expect(performed.value == 2_000)
    }
}

@Suite struct `Whether a loop waits` {
    @Test(arguments: Callout.allCases)
    func `isWaiting is false in a callout:`(_ callout: Callout) throws {
        try inManualTime { loop, clock, trace in
            loop.addIdleSource()
            let seen = Box<Bool?>(nil)
            try callout.arrange(loop, clock, trace) { seen.value = loop.isWaiting }
            #expect(!loop.isWaiting)
            #expect(loop.run(for: .seconds(1)) == .timedOut)
            #expect(seen.value == false)
            #expect(!loop.isWaiting)
        }
    }

    @Test func `isWaiting is true while the thread sleeps and false while it works`() throws {
        let running = RunningLoop()
        try waitUntilAsleep(running.loop)
        let (entered, leave) = (Gate(), Gate())
        running.loop.perform {
            entered.open()
            leave.wait()
        }
        entered.wait()
        #expect(!running.loop.isWaiting)
        leave.open()
        try waitUntilAsleep(running.loop)
        try running.end()
        #expect(!running.loop.isWaiting)
    }
}
