// Rules proved here:
// - A run notifies its observers of entry and exit. Each pass notifies them of beforeTimers and beforeSources, whatever the mode holds, and
//   of both beforeWaiting and afterWaiting if it sleeps.
// - A run with limit 0 makes one pass and does not notify of a sleep.
// - Step 5 serves a port that is ready by then, without the notifications of a sleep. A port that gets ready later is served after them.
// - A pass that has performed a custom source does not sleep, but checks once for ports and due timers.
// - Step 9 serves one kind: either all due timers, by date, or ports. Kinds that are ready at the same time take turns.
// - Blocks run at three points of the pass.

import EventLoop
import EventLoopTestSupport
import Testing

@Suite struct `The trace of a run` {
    @Test func `a quiet run sleeps once, to its limit`() throws {
        try inManualTime { loop, clock, trace in
            trace.observe(loop)
            loop.addIdleSource()
            #expect(loop.run(for: .seconds(1)) == .timedOut)
            #expect(trace.take() == "E T S W A X")
            #expect(clock.now == RunLoop.Instant(nanoseconds: 1_000_000_000))
        }
    }

    @Test func `a run with limit 0 makes one pass and does not sleep`() throws {
        try inManualTime { loop, clock, trace in
            trace.observe(loop)
            loop.addIdleSource()
            loop.addTimer(at: clock.now + .seconds(1)) { _ in trace.add("timer") }
            #expect(loop.run(for: .zero) == .timedOut)
            #expect(trace.take() == "E T S X")
            #expect(clock.now == RunLoop.Instant(nanoseconds: 0))
        }
    }

    @Test func `a run with limit 0 serves the items that are ready`() throws {
        try inManualTime { loop, clock, trace in
            trace.observe(loop)
            loop.addIdleSource()
            loop.performBlock { trace.add("block") }
            loop.addTimer(at: clock.now) { _ in trace.add("timer") }
            loop.addSource(signaled: true) { _ in trace.add("source") }
            #expect(loop.run(for: .zero) == .timedOut)
            #expect(trace.take() == "E T S block source timer X")
        }
    }

    @Test func `a run with limit 0 serves a port that is ready`() throws {
        try inManualTime { loop, _, trace in
            trace.observe(loop)
            try loop.addReadyPipe { _ in trace.add("port") }
            #expect(loop.run(for: .zero) == .timedOut)
            #expect(trace.take() == "E T S port X")
        }
    }

    @Test func `one run serves every kind of item`() throws {
        try inManualTime { loop, clock, trace in
            trace.observe(loop)
            loop.addSource(signaled: true) { _ in
                trace.add("source")
                loop.performBlock { trace.add("block2") }
            }
            loop.performBlock { trace.add("block1") }
            try loop.addReadyPipe { _ in
                trace.add("port")
                loop.performBlock { trace.add("block3") }
            }
            loop.addTimer(at: clock.now + .milliseconds(500)) { _ in trace.add("timer") }
            #expect(loop.run(for: .seconds(1)) == .timedOut)
            #expect(trace.take() == "E T S block1 source block2 port block3 T S W A timer T S W A X")
            #expect(clock.now == RunLoop.Instant(nanoseconds: 1_000_000_000))
        }
    }

    @Test func `every pass sends the notifications of timers and sources, whatever the mode holds`() throws {
        try inManualTime { loop, clock, trace in
            trace.observe(loop)
            let alive = loop.keepAlive()
            defer { alive.cancel() }
            let wakeUps = Counter()
            let observer = RunLoop.Observer(activities: .beforeWaiting) { _, _ in
                if wakeUps.increment() < 3 { loop.wakeUp() }
            }
            loop.add(observer)
            #expect(loop.run(for: .seconds(1)) == .timedOut)
            #expect(trace.take() == "E T S W A T S W A T S W A X")
        }
    }

    @Test func `the notifications precede the timer and the source that they announce`() throws {
        try inManualTime { loop, clock, trace in
            trace.observe(loop)
            loop.addIdleSource()
            loop.addTimer(at: clock.now + .seconds(1)) { _ in trace.add("timer1") }
            loop.addTimer(at: clock.now + .seconds(2)) { _ in trace.add("timer2") }
            #expect(loop.run(for: .seconds(3)) == .timedOut)
            #expect(trace.take() == "E T S W A timer1 T S W A timer2 T S W A X")
        }
    }

    // MARK: Step 5

    @Test func `a port that is ready at step 5 is served without the notifications of a sleep`() throws {
        try inManualTime { loop, clock, trace in
            trace.observe(loop)
            try loop.addReadyPipe { _ in trace.add("port \(clock.now.nanoseconds)") }
            #expect(loop.run(for: .seconds(1)) == .timedOut)
            #expect(trace.take() == "E T S port 0 T S W A X")
        }
    }

    @Test func `a port that a custom source makes ready is served in the same pass`() throws {
        try inManualTime { loop, _, trace in
            trace.observe(loop)
            let pipe = Pipe()
            let port = try RunLoop.DescriptorSource(descriptor: pipe.readEnd, events: .read) { _, _ in
                pipe.readAll()
                trace.add("port")
            }
            loop.add(port)
            loop.addSource(signaled: true) { _ in
                trace.add("source")
                pipe.write()
            }
            #expect(loop.run(for: .seconds(1)) == .timedOut)
            #expect(trace.take() == "E T S source port T S W A X")
        }
    }

    @Test func `a port that gets ready after step 5 is served after the notifications of the sleep`() throws {
        try inManualTime { loop, clock, trace in
            trace.observe(loop)
            let pipe = Pipe()
            let port = try RunLoop.DescriptorSource(descriptor: pipe.readEnd, events: .read) { _, _ in
                pipe.readAll()
                trace.add("port \(clock.now.nanoseconds)")
            }
            loop.add(port)
            loop.atFirst(.beforeWaiting) { pipe.write() }
            #expect(loop.run(for: .seconds(1)) == .timedOut)
            #expect(trace.take() == "E T S W A port 0 T S W A X")
        }
    }

    @Test func `a due timer is not a port, so its pass sends the notifications of a sleep`() throws {
        try inManualTime { loop, clock, trace in
            trace.observe(loop)
            loop.addIdleSource()
            loop.addTimer(at: clock.now) { _ in trace.add("timer \(clock.now.nanoseconds)") }
            #expect(loop.run(for: .seconds(1)) == .timedOut)
            #expect(trace.take() == "E T S W A timer 0 T S W A X")
        }
    }

    // MARK: The pass that polls

    @Test func `a pass that performed a custom source does not sleep`() throws {
        try inManualTime { loop, _, trace in
            trace.observe(loop)
            loop.addSource(signaled: true) { _ in trace.add("source") }
            #expect(loop.run(for: .seconds(1)) == .timedOut)
            #expect(trace.take() == "E T S source T S W A X")
        }
    }

    @Test func `a timer that comes due while a custom source performs fires in the same pass`() throws {
        try inManualTime { loop, clock, trace in
            trace.observe(loop)
            loop.addTimer(at: clock.now + .milliseconds(5)) { _ in trace.add("timer") }
            loop.addSource(signaled: true) { _ in
                trace.add("source")
                clock.advance(by: .milliseconds(10))
            }
            #expect(loop.run(for: .seconds(1)) == .timedOut)
            #expect(trace.take() == "E T S source timer T S W A X")
        }
    }

    @Test func `a source that always signals itself starves neither timers nor ports`() throws {
        try inManualTime { loop, clock, trace in
            let passes = Counter()
            loop.addSource(signaled: true) { source in
                source.signal()
                clock.advance(by: .milliseconds(1))
                if passes.increment() == 10 { loop.stop() }
            }
            loop.addTimer(at: clock.now) { _ in trace.add("timer") }
            try loop.addReadyPipe { _ in trace.add("port") }
            #expect(loop.run(for: .seconds(1)) == .stopped)
            #expect(Set(trace.list) == ["timer", "port"])
        }
    }

    // MARK: Step 9

    @Test func `all due timers fire in one pass, by date and then in the order in which they were added`() throws {
        try inManualTime { loop, clock, trace in
            trace.observe(loop)
            loop.addIdleSource()
            let start = clock.now
            for (name, milliseconds) in [("d", 40), ("b1", 20), ("a", 10), ("b2", 20), ("c", 30)] {
                loop.addTimer(at: start + .milliseconds(milliseconds)) { _ in trace.add(name) }
            }
            clock.advance(by: .milliseconds(50))
            #expect(loop.run(for: .seconds(1)) == .timedOut)
            #expect(trace.take() == "E T S W A a b1 b2 c d T S W A X")
        }
    }

    @Test func `a pass serves every port that was ready`() throws {
        try inManualTime { loop, _, trace in
            trace.observe(loop)
            for _ in 1...3 { try loop.addReadyPipe { _ in trace.add("port") } }
            #expect(loop.run(for: .seconds(1)) == .timedOut)
            #expect(trace.take() == "E T S port port port T S W A X")
        }
    }

    @Test func `a timer and a port that are ready at the same time are served in two passes`() throws {
        try inManualTime { loop, clock, trace in
            trace.observe(loop)
            loop.addIdleSource()
            try loop.addReadyPipe { _ in trace.add("port") }
            loop.addTimer(at: clock.now) { _ in trace.add("timer") }
            #expect(loop.run(for: .seconds(1)) == .timedOut)
            #expect(trace.list.last == "X")
            // Either of the two may come first.
            let passes = trace.take().split(separator: "T S").map { pass in
                pass.split(separator: " ").filter { $0 == "port" || $0 == "timer" }.joined(separator: " ")
            }
            #expect(passes.filter { !$0.isEmpty }.sorted() == ["port", "timer"])
        }
    }

    /// With an observer of the sleep, a pass asks the kernel twice; without one, once. The code has a path for each.
    @Test(arguments: [false, true])
    func `a port that is always ready does not starve a timer, whether the sleep is observed:`(_ observed: Bool) throws {
        try inManualTime { loop, clock, trace in
            if observed { trace.observe(loop) }
            let (ports, timers) = (Counter(), Counter())
            let pipe = Pipe()
            pipe.write()
            let port = try RunLoop.DescriptorSource(descriptor: pipe.readEnd, events: .read) { _, _ in
                ports.increment()
                clock.advance(by: .milliseconds(1))
            }
            loop.add(port)
            loop.add(RunLoop.Timer(fireAt: clock.now + .milliseconds(10), interval: .milliseconds(10)) { _ in timers.increment() })
            #expect(loop.run(for: .seconds(1)) == .timedOut)
            #expect((990...1010).contains(ports.value))
            // The timer fires for every slot of the grid, because each slot is served within a turn of the port.
            #expect((98...100).contains(timers.value))
        }
    }

    @Test(arguments: [false, true])
    func `a timer that is always due does not starve a port, whether the sleep is observed:`(_ observed: Bool) throws {
        try inManualTime { loop, clock, trace in
            if observed { Trace().observe(loop) }
            let timers = Counter()
            let timer = RunLoop.Timer(fireAt: clock.now, interval: .seconds(1)) { timer in
                timers.increment()
                timer.nextFire = clock.now
                clock.advance(by: .milliseconds(1))
            }
            loop.add(timer)
            try loop.addReadyPipe { _ in
                trace.add("port")
                loop.stop()
            }
            #expect(loop.run(for: .seconds(1)) == .stopped)
            #expect(trace.take() == "port")
            #expect(timers.value <= 3)
            timer.invalidate()
        }
    }

    // MARK: Blocks in the pass

    @Test func `blocks run after step 3, after a custom source, and at the end of the pass`() throws {
        try inManualTime { loop, clock, trace in
            trace.observe(loop)
            loop.addIdleSource()
            loop.atFirst(.beforeSources) { loop.performBlock { trace.add("head") } }
            loop.addTimer(at: clock.now + .milliseconds(1)) { _ in
                trace.add("timer")
                loop.performBlock { trace.add("tail") }
            }
            #expect(loop.run(for: .seconds(1)) == .timedOut)
            #expect(trace.take() == "E T S head W A timer tail T S W A X")

            loop.addSource(signaled: true) { _ in
                trace.add("source")
                loop.performBlock { trace.add("middle") }
            }
            #expect(loop.run(for: .seconds(1)) == .timedOut)
            #expect(trace.take() == "E T S source middle T S W A X")
        }
    }
}
