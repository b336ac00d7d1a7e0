// Rules proved here, for every kind of item:
// - An item added for the common modes is recorded, is in every common mode, and joins those that become common later.
// - Removing it from the common modes takes it out of all of them, where it was added explicitly too, and of no other mode.
// - Removing from the common modes what was not added there does nothing.
// - Removing it from one of them leaves the record. `contains` for the common modes asks the record only.

import EventLoop
import EventLoopTestSupport
import Testing

@Suite struct `Common modes` {
    static let modes: [RunLoop.Mode] = [.default, "a", "b", "c", .common]

    @Test(arguments: ItemKind.allCases)
    func `an item added for them is in all of them, and in those that join`(_ kind: ItemKind) throws {
        try onFreshThread { loop in
            let item = try kind.make()
            loop.addCommonMode("a")
            #expect(loop.add(item, forMode: .common))
            #expect(loop.modes(of: item, among: Self.modes) == [.default, "a", .common])
            loop.addCommonMode("b")
            #expect(loop.modes(of: item, among: Self.modes) == [.default, "a", "b", .common])
        }
    }

    @Test(arguments: ItemKind.allCases)
    func `several items join together`(_ kind: ItemKind) throws {
        try onFreshThread { loop in
            let items = try (1...3).map { _ in try kind.make() }
            for item in items { loop.add(item, forMode: .common) }
            loop.addCommonMode("a")
            for item in items { #expect(loop.contains(item, forMode: "a")) }
        }
    }

    @Test(arguments: ItemKind.allCases)
    func `an item that is in each of them was not added for them`(_ kind: ItemKind) throws {
        try onFreshThread { loop in
            let item = try kind.make()
            loop.addCommonMode("a")
            loop.add(item)
            loop.add(item, forMode: "a")
            #expect(!loop.contains(item, forMode: .common))
            loop.addCommonMode("b")
            #expect(!loop.contains(item, forMode: "b"))
        }
    }

    @Test(arguments: ItemKind.allCases)
    func `removing from them takes out of all of them, and of no other`(_ kind: ItemKind) throws {
        try onFreshThread { loop in
            let item = try kind.make()
            loop.addCommonMode("a")
            loop.add(item, forMode: "c")
            loop.add(item, forMode: "a")  // Explicitly, too: membership is not counted.
            loop.add(item, forMode: .common)
            loop.remove(item, forMode: .common)
            #expect(loop.modes(of: item, among: Self.modes) == ["c"])
            loop.addCommonMode("b")
            #expect(loop.modes(of: item, among: Self.modes) == ["c"])
        }
    }

    @Test(arguments: ItemKind.allCases)
    func `removing from them what was added explicitly does nothing`(_ kind: ItemKind) throws {
        try onFreshThread { loop in
            let item = try kind.make()
            loop.addCommonMode("a")
            loop.add(item)
            loop.add(item, forMode: "a")
            loop.remove(item, forMode: .common)
            #expect(loop.modes(of: item, among: Self.modes) == [.default, "a"])
        }
    }

    @Test(arguments: ItemKind.allCases)
    func `removing from one of them leaves the record`(_ kind: ItemKind) throws {
        try onFreshThread { loop in
            let item = try kind.make()
            loop.add(item, forMode: .common)
            loop.remove(item)
            #expect(loop.modes(of: item, among: Self.modes) == [.common])
            loop.addCommonMode("a")
            #expect(loop.modes(of: item, among: Self.modes) == ["a", .common])
            // Making a common mode common again brings nothing back.
            loop.addCommonMode(.default)
            #expect(loop.modes(of: item, among: Self.modes) == ["a", .common])
        }
    }

    @Test(arguments: ItemKind.allCases)
    func `an item that was in a mode before it became common is there once`(_ kind: ItemKind) throws {
        try onFreshThread { loop in
            let item = try kind.make()
            loop.add(item, forMode: "a")
            loop.add(item, forMode: .common)
            loop.addCommonMode("a")
            #expect(loop.modes(of: item, among: Self.modes) == [.default, "a", .common])
            loop.remove(item, forMode: "a")
            #expect(loop.modes(of: item, among: Self.modes) == [.default, .common])
        }
    }

    @Test func `common items are served in every common mode`() throws {
        try inManualTime { loop, clock, trace in
            loop.addCommonMode("early")
            trace.observe(loop, in: .common)
            let source = RunLoop.CustomSource { trace.add("source") }
            loop.add(source, forMode: .common)
            let pipe = Pipe()
            let port = try RunLoop.DescriptorSource(descriptor: pipe.readEnd, events: .read) { _, _ in
                pipe.readAll()
                trace.add("port")
            }
            loop.add(port, forMode: .common)
            let timer = RunLoop.Timer(fireAt: clock.now + .milliseconds(500), interval: .seconds(1)) { _ in trace.add("timer") }
            loop.add(timer, forMode: .common)
            loop.addCommonMode("late")
            for mode in [RunLoop.Mode.default, "early", "late"] {
                source.signal()
                pipe.write()
                loop.performBlock(inModes: [.common]) { trace.add("block") }
                #expect(loop.run(mode: mode, for: .seconds(1)) == .timedOut)
                #expect(trace.take() == "E T S block source port T S W A timer T S W A X", "\(mode)")
            }
            timer.invalidate()
        }
    }

    @Test func `another thread's addition of a common mode is seen`() throws {
        let performed = Gate()
        let source = RunLoop.CustomSource { performed.open() }
        let running = RunningLoop(mode: "joining") { loop in loop.add(source, forMode: .common) }
        try waitUntilAsleep(running.loop)
        source.signal()
        running.loop.addCommonMode("joining")
        performed.wait()
        try running.end()
    }
}
