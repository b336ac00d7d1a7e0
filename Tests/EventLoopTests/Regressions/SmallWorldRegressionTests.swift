// Bugs that the enumeration of small worlds (Tests/SmallWorldsTests) found. Each has one rule:
//
// - A run of an empty mode makes the last callouts of items that another thread has invalidated (4.20).
// - An observer that is added and removed in its own call releases its handler (9.9).
// - A run nested in a timer's callout does not wake for that timer (5.8), however the callout changes the timer.
// - Timers with equal dates fire in the order in which they got those dates (5.4), also after a nested run.
// - If a nested run of another mode has served an edge or a one-shot source, the outer run does not serve it again (8.2).
// - A source that an earlier source of the pass removes and adds again is performed (3.10), however many modes it is in.
// - A port whose first message arrives during a delivery has its turn in the next pass, and a turn in a nested run counts (16.3).
// - An item added to the common modes joins them in the order in which they became common (3.1).
// - A message sent after the sleep waits for the next pass, whether or not the previous pass delivered a message.

import EventLoop
import EventLoopTestSupport
import Testing

@Suite(.tags(.lifetimes)) struct SmallWorldRegressionTests {
    @Test func `a run in a mode that another thread has emptied makes the last callouts before it finishes`() throws {
        for mode in [RunLoop.Mode.default, "never made", .common] {
            try inManualTime { loop, _, trace in
                let source = RunLoop.CustomSource {}
                source.onInvalidation { trace.add("ended") }
                loop.add(source)
                try plainThread { source.invalidate() }.join()
                #expect(loop.run(mode: mode, for: .seconds(1)) == .finished)
                #expect(trace.take() == "ended")
            }
        }
    }

    @Test func `a run begins if a last callout adds an item to its empty mode`() throws {
        try inManualTime { loop, _, trace in
            let source = RunLoop.CustomSource {}
            source.onInvalidation { loop.performBlock { trace.add("block") } }
            loop.add(source)
            try plainThread { source.invalidate() }.join()
            trace.observe(loop)
            #expect(loop.run(for: .seconds(1)) == .finished)
            #expect(trace.take() == "E T S block X")
        }
    }

    @Test func `a port whose first message arrives during a delivery waits for the next pass, whether or not it was in the list`() throws {
        try inManualTime { loop, _, trace in
            let (first, second) = (Box<RunLoop.Port?>(nil), Box<RunLoop.Port?>(nil))
            first.value = RunLoop.Port { _, message in
                trace.add("first\(message.id)")
                if message.id == 1 { _ = loop.run(for: .zero) }
            }
            second.value = RunLoop.Port { _, _ in
                trace.add("second")
                try? first.value!.send(RunLoop.PortMessage(id: 2))
            }
            loop.add(first.value!)
            loop.add(second.value!)
            try first.value!.send(RunLoop.PortMessage(id: 1))
            try second.value!.send(RunLoop.PortMessage(id: 1))
            trace.observe(loop)
            _ = loop.run(for: .seconds(1))
            #expect(trace.take() == "E T S first1 E T S second X T S first2 T S W A X")
            first.value = nil
            second.value = nil
        }
    }

    @Test func `a source in the common modes joins and leaves them in the order in which they became common`() throws {
        try inManualTime { loop, _, trace in
            for mode in ["d", "b", "e", "a", "c"] as [RunLoop.Mode] { loop.addCommonMode(mode) }
            let source = RunLoop.CustomSource(schedule: { trace.add("+\($1.rawValue)") }, cancel: { trace.add("-\($1.rawValue)") }) {}
            let own = RunLoop.Mode.default.rawValue
            loop.add(source, forMode: .common)
            #expect(trace.take() == "+\(own) +d +b +e +a +c")
            loop.remove(source, forMode: .common)
            #expect(trace.take() == "-\(own) -d -b -e -a -c")
        }
    }

    @Test func `a port that had its turn in a nested run has no second turn in the outer pass`() throws {
        try inManualTime { loop, _, trace in
            let port = Box<RunLoop.Port?>(nil)
            let outer = RunLoop.Port { _, _ in
                trace.add("(")
                _ = loop.run(for: .zero)
                trace.add(")")
            }
            port.value = RunLoop.Port { _, message in
                trace.add("port\(message.id)")
                if message.id == 1 { try? port.value!.send(RunLoop.PortMessage(id: 2)) }
            }
            loop.add(outer)
            loop.add(port.value!)
            try outer.send(RunLoop.PortMessage(id: 1))
            try port.value!.send(RunLoop.PortMessage(id: 1))
            trace.observe(loop)
            _ = loop.run(for: .seconds(1))
            #expect(trace.take() == "E T S ( E T S port1 X ) T S port2 T S W A X")
            port.value = nil
        }
    }

    @Test func `an observer that is removed, added and removed again in its own call releases its handler`() throws {
        try inManualTime { loop, _, trace in
            loop.addIdleSource()
            do {
                let canary = Canary { trace.add("released") }
                let observer = RunLoop.Observer(activities: .entry) { observer, _ in
                    withExtendedLifetime(canary) {}
                    loop.remove(observer)
                    loop.add(observer)
                    loop.remove(observer)
                    trace.add("called")
                }
                loop.add(observer)
                _ = loop.run(for: .zero)
                observer.invalidate()
            }
            #expect(trace.take() == "called released")
        }
    }

    /// The callout makes `change` and then runs the loop for ten seconds. `change` also decides the mode of that run.
    @Test(arguments: ["sets its date", "sets its date to the present", "joins another mode", "sets its tolerance"])
    func `a run nested in a timer's callout does not wake for that timer:`(_ change: String) throws {
        try inManualTime { loop, clock, trace in
            let mode: RunLoop.Mode = change == "joins another mode" ? "other" : .default
            loop.addIdleSource(forMode: mode)
            trace.observe(loop, in: mode)
            let timer = RunLoop.Timer(fireAt: clock.now, interval: .seconds(100)) { timer in
                switch change {
                case "sets its date": timer.nextFire = clock.now.advanced(by: .seconds(3))
                case "sets its date to the present": timer.nextFire = clock.now
                case "joins another mode": loop.add(timer, forMode: mode)
                default: timer.tolerance = .seconds(1)
                }
                _ = trace.take()
                #expect(loop.run(mode: mode, for: .seconds(10)) == .timedOut)
                trace.add("-")
                timer.invalidate()
            }
            loop.add(timer)
            _ = loop.run(for: .seconds(1))
            #expect(trace.list.prefix { $0 != "-" }.joined(separator: " ") == "E T S W A X")
        }
    }

    @Test func `a nested run of another mode of a timer does not wake for the timer during its callout`() throws {
        try inManualTime { loop, clock, trace in
            loop.addIdleSource(forMode: "other")
            trace.observe(loop, in: "other")
            let timer = RunLoop.Timer(fireAt: clock.now) { _ in #expect(loop.run(mode: "other", for: .seconds(10)) == .timedOut) }
            loop.add(timer)
            loop.add(timer, forMode: "other")
            #expect(loop.run(for: .zero) == .timedOut)
            #expect(trace.take() == "E T S W A X")
        }
    }

    /// An earlier timer of the pass makes `change`. Either change puts the later timer, which the pass has taken, back into the queue.
    @Test(arguments: ["runs another mode", "sets its date"])
    func `a run nested in a timer's callout does not wake for the timer even if an earlier timer:`(_ change: String) throws {
        try inManualTime { loop, clock, trace in
            loop.addIdleSource()
            let timer = RunLoop.Timer(fireAt: clock.now) { _ in
                trace.observe(loop)
                #expect(loop.run(for: .seconds(10)) == .timedOut)
            }
            loop.addTimer(at: clock.now) { _ in
                if change == "sets its date" { timer.nextFire = clock.now } else { _ = loop.run(mode: "other", for: .zero) }
            }
            loop.add(timer)
            #expect(loop.run(for: .zero) == .timedOut)
            #expect(trace.take() == "E T S W A X X")
        }
    }

    @Test func `timers with equal dates fire in the order in which they got them, also after a nested run`() throws {
        try inManualTime { loop, clock, trace in
            loop.addIdleSource(forMode: "nested")
            let first = Once()
            let second = RunLoop.Timer(fireAt: clock.now, interval: .seconds(4)) { _ in trace.add("b") }
            loop.add(
                RunLoop.Timer(fireAt: clock.now, interval: .seconds(4)) { _ in
                    trace.add("a")
                    guard first.isFirst() else { return }
                    // The nested run fires the other timer, so that timer gets its next date before this timer does.
                    loop.add(second, forMode: "nested")
                    _ = loop.run(mode: "nested", for: .seconds(1))
                })
            loop.add(second)
            _ = loop.run(for: .seconds(5))
            #expect(trace.take() == "a b b a")
        }
    }

    @Test(arguments: [RunLoop.DescriptorSource.Trigger.edge, .oneShot])
    func `a nested run of another mode leaves no second call for an event of the outer run:`(_ trigger: RunLoop.DescriptorSource.Trigger)
        throws
    {
        try inManualTime { loop, _, trace in
            let (first, second) = (Pipe(), Pipe())
            let shared = try RunLoop.DescriptorSource(descriptor: second.readEnd, events: .read, trigger: trigger) { _, _ in
                trace.add("shared:\(second.readAll())")
            }
            loop.add(
                try RunLoop.DescriptorSource(descriptor: first.readEnd, events: .read) { _, _ in
                    first.readAll()
                    trace.add("(")
                    loop.add(shared, forMode: "nested")
                    _ = loop.run(mode: "nested", for: .zero)
                    trace.add(")")
                })
            loop.add(shared)
            first.write()
            second.write("x")
            trace.observe(loop)
            #expect(loop.run(for: .seconds(1)) == .timedOut)
            #expect(trace.take() == "E T S ( shared:x ) T S W A X")
        }
    }

    @Test(arguments: [false, true])
    func `a source that an earlier source removes and adds again is performed in the pass, also if it is in two modes:`(_ isInTwo: Bool)
        throws
    {
        try inManualTime { loop, _, trace in
            let second = RunLoop.CustomSource(order: 2) { trace.add("second") }
            loop.addSource(order: 1, signaled: true) { _ in
                trace.add("first")
                loop.remove(second)
                loop.add(second)
            }
            loop.add(second)
            if isInTwo { loop.add(second, forMode: "other") }
            second.signal()
            trace.observe(loop)
            #expect(loop.run(for: .zero) == .timedOut)
            #expect(loop.run(for: .zero) == .timedOut)
            #expect(trace.take() == "E T S first second X E T S X")
        }
    }

    @Test func `a message sent after the sleep waits for the next pass, even if the previous run delivered a message`() throws {
        try inManualTime { loop, _, trace in
            let port = RunLoop.Port { _, _ in trace.add("message") }
            loop.add(port)
            try port.send(RunLoop.PortMessage(id: 1))
            trace.observe(loop)
            #expect(loop.run(for: .seconds(1), returnAfterSourceHandled: true) == .handledSource)
            #expect(trace.take() == "E T S message X")
            loop.atFirst(.afterWaiting) { try? port.send(RunLoop.PortMessage(id: 2)) }
            #expect(loop.run(for: .seconds(1)) == .timedOut)
            #expect(trace.take() == "E T S W A X")
            #expect(loop.run(for: .zero) == .timedOut)
            #expect(trace.take() == "E T S message X")
        }
    }
}
