// Rules proved here:
// - A new loop has the default mode. Adding an item, queueing a block, and common items create modes. Running, querying, removing, and
//   making a name common without common items do not. No mode is ever deleted. The list does not contain the common pseudo-mode.
// - Any string is a name, including the empty string. Names compare by value. Foundation's and CoreFoundation's texts for the default mode
//   and the common modes are other spellings of these.
// - A run serves and notifies only the items of its mode. Events for other items stay pending until a run of their mode.

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

    @Test func `a mode can be written as an interpolated string`() throws {
        try onFreshThread { loop in
            let alive = loop.keepAlive(forMode: "client \(7)")
            #expect(loop.modes.contains(RunLoop.Mode("client 7")))
            alive.cancel()
        }
    }

    @Test(arguments: ItemKind.allCases)
    func `adding an item creates its mode`(_ kind: ItemKind) throws {
        try onFreshThread { loop in
            let item = try kind.make()
            loop.add(item, forMode: "new")
            #expect(loop.modes == [.default, "new"])
        }
    }

    @Test func `queueing a block creates its modes`() throws {
        try onFreshThread { loop in
            loop.performBlock(inModes: ["one", "two"]) {}
            #expect(loop.modes == [.default, "one", "two"])
        }
    }

    @Test(arguments: ItemKind.allCases)
    func `a mode that becomes common is created if there are common items`(_ kind: ItemKind) throws {
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
    func `running in a mode, querying it and removing from it do not create it`(_ kind: ItemKind) throws {
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
    func `a mode remains when it is empty again`(_ kind: ItemKind) throws {
        try onFreshThread { loop in
            let item = try kind.make()
            loop.add(item, forMode: "once")
            loop.remove(item, forMode: "once")
            #expect(loop.modes == [.default, "once"])
            item.invalidate()
            #expect(loop.modes == [.default, "once"])
        }
    }

    @Test func `the list of modes does not contain the common modes`() throws {
        try onFreshThread { loop in
            let source = loop.addIdleSource(forMode: .common)
            loop.performBlock(inModes: [.common]) {}
            loop.perform(inModes: [.common]) {}
            #expect(loop.modes == [.default])
            withExtendedLifetime(source) {}
        }
    }

    @Test func `making a name common twice adds it once`() throws {
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

    @Test func `the common pseudo-mode cannot become common`() async {
        await #expect(processExitsWith: .failure) {
            try onFreshThread { $0.addCommonMode(.common) }
        }
    }

    @Test func `the set of common modes belongs to one loop`() throws {
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

    @Test(arguments: [
        ("kCFRunLoopDefaultMode", RunLoop.Mode.default), ("NSDefaultRunLoopMode", .default), ("kCFRunLoopCommonModes", .common),
        ("NSRunLoopCommonModes", .common),
    ])
    func `Foundation's texts for the default mode and the common modes are spellings of these`(text: String, mode: RunLoop.Mode) {
        for made in [RunLoop.Mode(text), RunLoop.Mode(rawValue: text), RunLoop.Mode(stringLiteral: text), "\(text)"] {
            #expect(made == mode && made.hashValue == mode.hashValue)
            #expect(made.rawValue == mode.rawValue && made.description == mode.rawValue)
        }
    }

    @Test(arguments: ["kCFRunLoopDefaultmode", "kcfRunLoopDefaultMode", "NSRunLoopCommonMode", "12345678901234567890", "ääääääääää"])
    func `a name that only resembles one of Foundation's texts is a name of its own`(text: String) {
        #expect(RunLoop.Mode(text).rawValue == text)
        #expect(RunLoop.Mode(text) != .default && RunLoop.Mode(text) != .common)
    }

    @Test func `the empty string is a name`() throws {
        try inManualTime { loop, _, trace in
            loop.addSource(forMode: "", signaled: true) { _ in trace.add("source:\(loop.currentMode?.rawValue ?? "nil"):") }
            #expect(loop.modes == [.default, ""])
            #expect(loop.run(mode: "", for: .zero) == .timedOut)
            #expect(trace.take() == "source::")
        }
    }

    // MARK: Items of other modes

    @Test func `a signal in another mode stays pending`() throws {
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

    @Test func `a ready port in another mode stays pending`() throws {
        try inManualTime { loop, _, trace in
            loop.addIdleSource()
            try loop.addReadyPipe(forMode: "other") { _ in trace.add("port") }
            #expect(loop.run(for: .seconds(1)) == .timedOut)
            #expect(trace.take() == "")
            #expect(loop.run(mode: "other", for: .seconds(1)) == .timedOut)
            #expect(trace.take() == "port")
        }
    }

    @Test func `a due timer in another mode fires late, once`() throws {
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

    @Test func `a block and a perform in another mode stay queued`() throws {
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

    @Test func `observers of another mode are not notified`() throws {
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
