// Rules proved here:
// - A new loop has the default mode. Adding an item, queueing a block, and common items make modes; running, asking, removing, and
//   making an item-less name common do not. No mode is ever deleted. The common pseudo-mode is not in the list.
// - Any string is a name, the empty one too; names compare by value.
// - In a mode, only its own items are served and notified; what happens to others is held until a run of their mode.

import EventLoop
import EventLoopTestSupport
import Testing

@Suite(.bounded) struct `Modes` {
    @Test func `a new loop has the default mode, which is common`() throws {
        try onFreshThread { loop in
            #expect(loop.modes == [.default])
            #expect(loop.commonModes == [.default])
        }
    }

    @Test func `a name may be put together where a mode is wanted`() throws {
        try onFreshThread { loop in
            let alive = loop.keepAlive(forMode: "client \(7)")
            #expect(loop.modes.contains(RunLoop.Mode("client 7")))
            alive.cancel()
        }
    }

    @Test(arguments: ItemKind.allCases)
    func `adding an item makes its mode`(_ kind: ItemKind) throws {
        try onFreshThread { loop in
            let item = try kind.make()
            loop.add(item, forMode: "new")
            #expect(loop.modes == [.default, "new"])
        }
    }

    @Test func `queueing a block makes its modes`() throws {
        try onFreshThread { loop in
            loop.performBlock(inModes: ["one", "two"]) {}
            #expect(loop.modes == [.default, "one", "two"])
        }
    }

    @Test(arguments: ItemKind.allCases)
    func `a mode that joins the common ones is made when there are common items`(_ kind: ItemKind) throws {
        try onFreshThread { loop in
            loop.addCommonMode("early")
            #expect(loop.modes == [.default])
            #expect(loop.commonModes == [.default, "early"])
            let item = try kind.make()
            loop.add(item, forMode: .common)
            #expect(loop.modes == [.default, "early"])
            loop.addCommonMode("late")
            #expect(loop.modes == [.default, "early", "late"])
        }
    }

    @Test(arguments: ItemKind.allCases)
    func `running in a mode, asking about it and removing from it do not make it`(_ kind: ItemKind) throws {
        try onFreshThread { loop in
            let item = try kind.make()
            #expect(loop.run(mode: "none", for: .zero) == .finished)
            #expect(!loop.contains(item, forMode: "none"))
            #expect(loop.nextTimerFire(forMode: "none") == nil)
            loop.remove(item, forMode: "none")
            #expect(loop.modes == [.default])
        }
    }

    @Test(arguments: ItemKind.allCases)
    func `a mode stays when it is empty again`(_ kind: ItemKind) throws {
        try onFreshThread { loop in
            let item = try kind.make()
            loop.add(item, forMode: "once")
            loop.remove(item, forMode: "once")
            #expect(loop.modes == [.default, "once"])
            item.invalidate()
            #expect(loop.modes == [.default, "once"])
        }
    }

    @Test func `the common modes are no mode in the list`() throws {
        try onFreshThread { loop in
            let source = loop.addIdleSource(forMode: .common)
            loop.performBlock(inModes: [.common]) {}
            loop.perform(inModes: [.common]) {}
            #expect(loop.modes == [.default])
            withExtendedLifetime(source) {}
        }
    }

    @Test func `a name twice made common is one`() throws {
        try inManualTime { loop, _, trace in
            let source = RunLoop.CustomSource(schedule: { _, mode in trace.add("\(mode)") }, perform: {})
            loop.add(source, forMode: .common)
            loop.addCommonMode("joined")
            loop.addCommonMode("joined")
            loop.addCommonMode(.default)
            #expect(loop.commonModes == [.default, "joined"])
            #expect(trace.take() == "default joined")
        }
    }

    @Test func `the common modes cannot be one of themselves`() async {
        await #expect(processExitsWith: .failure) {
            try onFreshThread { $0.addCommonMode(.common) }
        }
    }

    @Test func `the common modes belong to one loop`() throws {
        try onFreshThread { loop in
            loop.addCommonMode("mine")
            try onFreshThread { #expect($0.commonModes == [.default]) }
        }
    }

    @Test func `names compare by value`() throws {
        try inManualTime { loop, _, trace in
            let (parts, more) = (["ev", "ent"], ["com", "mon"])
            loop.addSource(forMode: RunLoop.Mode(parts.joined()), signaled: true) { _ in trace.add("source") }
            #expect(loop.run(mode: "event", for: .zero) == .timedOut)
            #expect(trace.take() == "source")
            #expect(RunLoop.Mode(more.joined()) == .common)
            let source = loop.addIdleSource(forMode: RunLoop.Mode(rawValue: more.joined()))
            #expect(loop.contains(source))
            #expect(loop.contains(source, forMode: .common))
            #expect(!loop.modes.contains(RunLoop.Mode(more.joined())))
        }
    }

    @Test func `the empty string is a name`() throws {
        try inManualTime { loop, _, trace in
            loop.addSource(forMode: "", signaled: true) { _ in trace.add("source:\(loop.currentMode?.rawValue ?? "nil"):") }
            #expect(loop.modes == [.default, ""])
            #expect(loop.run(mode: "", for: .zero) == .timedOut)
            #expect(trace.take() == "source::")
        }
    }

    // MARK: What another mode holds

    @Test func `a signal of another mode is held`() throws {
        try inManualTime { loop, _, trace in
            loop.addIdleSource()
            let source = loop.addSource(forMode: "other", signaled: true) { _ in trace.add("source") }
            #expect(loop.run(for: .seconds(1)) == .timedOut)
            #expect(trace.take() == "")
            #expect(source.isSignaled)
            #expect(loop.run(mode: "other", for: .seconds(1)) == .timedOut)
            #expect(trace.take() == "source")
        }
    }

    @Test func `a ready port of another mode is held`() throws {
        try inManualTime { loop, _, trace in
            loop.addIdleSource()
            try loop.addReadyPipe(forMode: "other") { _ in trace.add("port") }
            #expect(loop.run(for: .seconds(1)) == .timedOut)
            #expect(trace.take() == "")
            #expect(loop.run(mode: "other", for: .seconds(1)) == .timedOut)
            #expect(trace.take() == "port")
        }
    }

    @Test func `a due timer of another mode fires late, once`() throws {
        try inManualTime { loop, clock, trace in
            loop.addIdleSource()
            let timer = RunLoop.Timer(fireAt: clock.now + .seconds(1), interval: .seconds(1)) { _ in
                trace.add("timer \(clock.now.nanoseconds / 1_000_000)")
            }
            loop.add(timer, forMode: "other")
            #expect(loop.run(for: .milliseconds(3_500)) == .timedOut)
            #expect(trace.take() == "")
            #expect(loop.run(mode: "other", for: .seconds(1)) == .timedOut)
            #expect(trace.take() == "timer 3500 timer 4000")
            timer.invalidate()
        }
    }

    @Test func `a block and a perform of another mode are held`() throws {
        try inManualTime { loop, _, trace in
            loop.addIdleSource()
            loop.performBlock(inModes: ["other"]) { trace.add("block") }
            loop.perform(inModes: ["other"]) { trace.add("perform") }
            #expect(loop.run(for: .seconds(1)) == .timedOut)
            #expect(trace.take() == "")
            #expect(loop.run(mode: "other", for: .seconds(1)) == .finished)
            #expect(trace.list.sorted() == ["block", "perform"])
        }
    }

    @Test func `the observers of another mode hear nothing`() throws {
        try inManualTime { loop, _, trace in
            loop.addIdleSource()
            loop.addIdleSource(forMode: "other")
            trace.observe(loop, in: "other")
            #expect(loop.run(for: .seconds(1)) == .timedOut)
            #expect(trace.take() == "")
            #expect(loop.run(mode: "other", for: .seconds(1)) == .timedOut)
            #expect(trace.take() == "E T S W A X")
        }
    }

    @Test func `an item in several modes is one item`() throws {
        try inManualTime { loop, clock, trace in
            let source = RunLoop.CustomSource { trace.add("source") }
            let timer = RunLoop.Timer(fireAt: clock.now, interval: .seconds(100)) { _ in trace.add("timer") }
            for mode in ["one", "two"] as [RunLoop.Mode] {
                loop.add(source, forMode: mode)
                loop.add(timer, forMode: mode)
            }
            source.signal()
            #expect(loop.run(mode: "one", for: .seconds(1)) == .timedOut)
            #expect(trace.take() == "source timer")
            #expect(loop.run(mode: "two", for: .seconds(1)) == .timedOut)
            #expect(trace.take() == "")
            timer.invalidate()
        }
    }
}
