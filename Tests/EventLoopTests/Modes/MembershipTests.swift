// Rules proved here, for every kind of item:
// - An item is in the modes it was added to. Adding it twice equals adding it once. Removing it from one mode leaves it in the others.
// - Removing an absent item does nothing. An invalid item is refused, and so is any item that is added to a loop that has ended.
// - A source may be in many loops; a timer or an observer is refused by a second loop until it has left the first.
// - An item can be added again after it was removed, but not after it was invalidated.

import EventLoop
import EventLoopTestSupport
import Testing

@Suite struct `Membership` {
    static let modes: [RunLoop.Mode] = [.default, "a", "b", ""]

    @Test(arguments: ItemKind.allCases)
    func `an item is in the modes to which it was added`(_ kind: ItemKind) throws {
        try onFreshThread { loop in
            let item = try kind.make()
            #expect(loop.modes(of: item, among: Self.modes) == [])
            #expect(loop.add(item, forMode: "a"))
            #expect(loop.modes(of: item, among: Self.modes) == ["a"])
            #expect(loop.add(item, forMode: ""))
            #expect(loop.modes(of: item, among: Self.modes) == ["a", ""])
            loop.remove(item, forMode: "a")
            #expect(loop.modes(of: item, among: Self.modes) == [""])
            loop.remove(item, forMode: "")
            #expect(loop.modes(of: item, among: Self.modes) == [])
            #expect(item.isValid)
        }
    }

    @Test(arguments: ItemKind.allCases)
    func `the mode parameter defaults to the default mode`(_ kind: ItemKind) throws {
        try onFreshThread { loop in
            let item = try kind.make()
            loop.add(item)
            #expect(loop.contains(item))
            #expect(loop.modes(of: item, among: Self.modes) == [.default])
            loop.remove(item)
            #expect(!loop.contains(item))
        }
    }

    @Test(arguments: ItemKind.allCases)
    func `adding an item twice is the same as adding it once`(_ kind: ItemKind) throws {
        try onFreshThread { loop in
            let item = try kind.make()
            #expect(loop.add(item))
            loop.add(item)
            #expect(loop.contains(item))
            loop.remove(item)
            #expect(!loop.contains(item))
        }
    }

    @Test(arguments: ItemKind.allCases)
    func `a removed item can be added again`(_ kind: ItemKind) throws {
        try onFreshThread { loop in
            let item = try kind.make()
            for _ in 1...3 {
                #expect(loop.add(item))
                #expect(loop.contains(item))
                loop.remove(item)
                #expect(item.isValid)
            }
        }
    }

    @Test(arguments: ItemKind.allCases)
    func `removing an absent item does nothing`(_ kind: ItemKind) throws {
        try onFreshThread { loop in
            let item = try kind.make()
            loop.remove(item)
            loop.remove(item, forMode: "a")
            loop.remove(item, forMode: .common)
            #expect(loop.modes == [.default])
            loop.add(item)
            loop.remove(item, forMode: "a")
            #expect(loop.modes(of: item, among: Self.modes) == [.default])
            #expect(item.isValid)
        }
    }

    @Test(arguments: ItemKind.allCases)
    func `invalidating an item removes it from every mode permanently`(_ kind: ItemKind) throws {
        try onFreshThread { loop in
            let item = try kind.make()
            loop.addCommonMode("b")
            for mode in ["a", .common] as [RunLoop.Mode] { loop.add(item, forMode: mode) }
            #expect(loop.modes(of: item, among: Self.modes) == [.default, "a", "b"])
            item.invalidate()
            #expect(!item.isValid)
            #expect(loop.modes(of: item, among: Self.modes + [.common]) == [])
            for mode in Self.modes + [.common] { #expect(!loop.add(item, forMode: mode)) }
            #expect(loop.modes(of: item, among: Self.modes + [.common]) == [])
            loop.addCommonMode("late")
            #expect(!loop.contains(item, forMode: "late"))
            loop.remove(item)
            item.invalidate()
            #expect(!item.isValid)
        }
    }

    @Test(arguments: ItemKind.allCases)
    func `an item that was invalidated before it was added is refused`(_ kind: ItemKind) throws {
        try onFreshThread { loop in
            let item = try kind.make()
            item.invalidate()
            #expect(!loop.add(item))
            #expect(!loop.add(item, forMode: "new"))
            #expect(!loop.contains(item))
        }
    }

    @Test(arguments: ItemKind.allCases)
    func `a loop that has ended refuses every item`(_ kind: ItemKind) throws {
        let ended = try onFreshThread { $0 }
        let item = try kind.make()
        for mode in [.default, "a", .common] as [RunLoop.Mode] {
            #expect(!ended.add(item, forMode: mode))
            #expect(!ended.contains(item, forMode: mode))
            ended.remove(item, forMode: mode)
        }
        #expect(item.isValid)
        try onFreshThread { loop in
            #expect(loop.add(item))
            #expect(loop.contains(item))
        }
    }

    // MARK: Several loops

    @Test(arguments: [ItemKind.customSource, .descriptorSource])
    func `a source may be in many loops`(_ kind: ItemKind) throws {
        let (first, second) = (RunningLoop(), RunningLoop())
        let item = try kind.make()
        #expect(first.loop.add(item))
        #expect(second.loop.add(item, forMode: "a"))
        #expect(first.loop.contains(item))
        #expect(second.loop.contains(item, forMode: "a"))
        first.loop.remove(item)
        #expect(!first.loop.contains(item))
        #expect(second.loop.contains(item, forMode: "a"))
        first.loop.add(item)
        item.invalidate()
        #expect(!first.loop.contains(item))
        #expect(!second.loop.contains(item, forMode: "a"))
        try first.end()
        try second.end()
    }

    @Test(arguments: [ItemKind.timer, .observer])
    func `a timer or an observer is refused by a second loop until it has left the first`(_ kind: ItemKind) throws {
        let (first, second) = (RunningLoop(), RunningLoop())
        let item = try kind.make()
        #expect(first.loop.add(item))
        #expect(first.loop.add(item, forMode: "a"))
        for mode in [.default, "a", .common] as [RunLoop.Mode] {
            #expect(!second.loop.add(item, forMode: mode))
            #expect(!second.loop.contains(item, forMode: mode))
        }
        first.loop.remove(item)
        #expect(!second.loop.add(item))
        first.loop.remove(item, forMode: "a")
        #expect(item.isValid)
        #expect(second.loop.add(item))
        #expect(!first.loop.add(item))
        #expect(second.loop.contains(item))
        #expect(!first.loop.contains(item))
        try first.end()
        try second.end()
    }

    @Test(arguments: [ItemKind.timer, .observer])
    func `an item that a second loop refused does not join that loop's later common modes`(_ kind: ItemKind) throws {
        let (first, second) = (RunningLoop(), RunningLoop())
        let item = try kind.make()
        first.loop.add(item)
        #expect(!second.loop.add(item, forMode: .common))
        second.loop.addCommonMode("late")
        #expect(!second.loop.contains(item, forMode: "late"))
        #expect(!second.loop.contains(item, forMode: .common))
        try first.end()
        try second.end()
    }

    @Test(arguments: [ItemKind.timer, .observer])
    func `an item removed from the common modes can be added to another loop`(_ kind: ItemKind) throws {
        let (first, second) = (RunningLoop(), RunningLoop())
        let item = try kind.make()
        first.loop.addCommonMode("b")
        first.loop.add(item, forMode: .common)
        #expect(!second.loop.add(item))
        first.loop.remove(item, forMode: .common)
        #expect(second.loop.add(item))
        try first.end()
        try second.end()
    }

    /// CFRunLoop leaves them attached to the loop that has ended, where they can neither fire nor move.
    @Test(arguments: ItemKind.allCases)
    func `an item can be added to another loop after its loop has ended`(_ kind: ItemKind) throws {
        let item = try kind.make()
        let ended = try onFreshThread { loop in
            #expect(loop.add(item))
            #expect(loop.add(item, forMode: "a"))
            #expect(loop.add(item, forMode: .common))
            return loop
        }
        #expect(item.isValid)
        for mode in [.default, "a", .common] as [RunLoop.Mode] { #expect(!ended.contains(item, forMode: mode)) }
        try onFreshThread { loop in
            #expect(loop.add(item))
            #expect(loop.contains(item))
        }
    }
}
