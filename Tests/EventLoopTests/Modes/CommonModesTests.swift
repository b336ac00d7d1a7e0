// Rules proved here, for every kind of item:
// - An item added to the common modes is recorded, is in every common mode, and joins the modes that become common later.
// - Removing it from the common modes removes it from all of them, even from those it was added to explicitly, and from no other mode.
// - Removing an item from the common modes does nothing if it was not added to the common modes.
// - Removing it from one of them keeps the record. For the common modes, `contains` checks the record only.

import EventLoop
import EventLoopTestSupport
import Testing

@Suite struct `Common modes` {
    static let modes: [RunLoop.Mode] = [.default, "a", "b", "c", .common]

    @Test(arguments: ItemKind.allCases)
    func `an item added to them is in all of them, and in modes that become common later`(_ kind: ItemKind) throws {
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
    func `several items join a new common mode together`(_ kind: ItemKind) throws {
        try onFreshThread { loop in
            let items = try (1...3).map { _ in try kind.make() }
            for item in items { loop.add(item, forMode: .common) }
            loop.addCommonMode("a")
            for item in items { #expect(loop.contains(item, forMode: "a")) }
        }
    }

    @Test(arguments: ItemKind.allCases)
    func `an item that is in each of them does not count as added to them`(_ kind: ItemKind) throws {
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
    func `removing an item from them removes it from all of them, and from no other mode`(_ kind: ItemKind) throws {
        try onFreshThread { loop in
            let item = try kind.make()
            loop.addCommonMode("a")
            loop.add(item, forMode: "c")
            loop.add(item, forMode: "a")  // Also explicitly: memberships are not counted.
            loop.add(item, forMode: .common)
            loop.remove(item, forMode: .common)
            #expect(loop.modes(of: item, among: Self.modes) == ["c"])
            loop.addCommonMode("b")
            #expect(loop.modes(of: item, among: Self.modes) == ["c"])
        }
    }

    @Test(arguments: ItemKind.allCases)
    func `removing an item from them does nothing if it was added explicitly`(_ kind: ItemKind) throws {
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
    func `removing an item from one of them keeps the record`(_ kind: ItemKind) throws {
        try onFreshThread { loop in
            let item = try kind.make()
            loop.add(item, forMode: .common)
            loop.remove(item)
            #expect(loop.modes(of: item, among: Self.modes) == [.common])
            loop.addCommonMode("a")
            #expect(loop.modes(of: item, among: Self.modes) == ["a", .common])
            // Making a common mode common again does not add the item again.
            loop.addCommonMode(.default)
            #expect(loop.modes(of: item, among: Self.modes) == ["a", .common])
        }
    }

    @Test(arguments: ItemKind.allCases)
    func `an item that was in a mode before the mode became common is in it once`(_ kind: ItemKind) throws {
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

    @Test func `a loop sees a common mode that another thread adds`() throws {
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
