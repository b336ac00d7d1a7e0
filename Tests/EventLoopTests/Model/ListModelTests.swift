// Rules proved here, against arrays:
// - A PlainList keeps the elements that were appended or set, through every growth, and returns them from its end. Extended, it uses all of
//   its memory.
// - An UnorderedBag holds each of its objects once. When one leaves, the last takes its place and its index; no other object moves.

import EventLoopTestSupport
import Testing

@testable import EventLoop

private struct PlainListPlay: ModelPlay, ~Copyable {
    private var list = PlainList<UInt32>()
    private var model: [UInt32] = []
    private var growth = 6

    init(_ random: inout SplitMix64) {}

    mutating func step(_ random: inout SplitMix64) throws {
        if random.below(50) == 0 { growth = random.pick([3, 5, 7]) }
        let value = UInt32(truncatingIfNeeded: random.next())
        if random.below(4) == 0, !model.isEmpty {
            let index = random.below(model.count)
            list[index] = value
            model[index] = value
        } else if random.below(10) < growth {
            list.append(value)
            model.append(value)
        } else {
            try agree(list.popLast(), model.popLast(), "popLast")
        }
        try agree(list.count, model.count, "count")
        if model.isEmpty { return }
        let index = random.below(model.count)
        try agree(list[index], model[index], "the element at \(index)")
    }

    mutating func finish() throws {
        while let expected = model.popLast() { try agree(list.popLast(), expected, "popLast") }  // ends: each iteration removes one
        try agree(list.popLast(), nil, "popLast of an empty list")
    }
}

/// An object that stores its index, like the members of an UnorderedBag.
private final class Member {
    let id: Int
    var index: Int
    private let alive: Box<Int>

    init(_ id: Int, index: Int, alive: Box<Int>) {
        (self.id, self.index, self.alive) = (id, index, alive)
        alive.increment()
    }

    deinit { alive.change { $0 -= 1 } }
}

private struct ObjectListPair: ~Copyable {
    private var list = UnorderedBag<Member>()
    private var model: [Int] = []
    private let alive = Box(0)
    private var lastID = 0

    var count: Int { model.count }

    mutating func append() {
        lastID += 1
        list.append(Member(lastID, index: list.count, alive: alive))
        model.append(lastID)
    }

    mutating func remove(at index: Int) throws {
        if index >= model.count { return }
        let member = list.filter { $0.index == index }[0]
        try agree(list.contains(member, at: index), true, "contains, before")
        var moved: [Int] = []
        let held = list.remove(member, at: member.index) { other in
            moved.append(other.id)
            other.index = index
        }
        let last = model.removeLast()
        let removed = index < model.count ? model[index] : last
        if index < model.count { model[index] = last }
        try agree(member.id, removed, "the object at \(index)")
        try agree(moved, removed == last ? [] : [last], "who was moved")
        try agree(list.contains(member, at: index), false, "contains, after")
        held.release()
    }

    mutating func takeAll() throws {
        try agree(list.takeAll().map(\.id), model.reversed(), "takeAll")
        model = []
    }

    func compare() throws {
        var (ids, indices): ([Int], [Int]) = ([], [])
        list.forEach {
            ids.append($0.id)
            indices.append($0.index)
        }
        try agree(ids, model, "forEach")
        try agree(indices, Array(model.indices), "the indices that the objects know")
        try agree(list.filter { $0.id % 3 == 0 }.map(\.id), model.filter { $0 % 3 == 0 }, "filter")
        var asked: [Int] = []
        let isFound = list.contains { member in
            asked.append(member.id)
            return member.id % 3 == 0
        }
        let first = model.firstIndex { $0 % 3 == 0 }
        try agree(isFound, first != nil, "contains")
        try agree(asked, Array(model.prefix((first ?? model.count - 1) + 1)), "the objects that were asked")
        try agree(list.count, model.count, "count")
        try agree(list.isEmpty, model.isEmpty, "isEmpty")
        try agree(alive.value, model.count, "objects alive")
    }
}

private struct ObjectListPlay: ModelPlay, ~Copyable {
    private var pair = ObjectListPair()
    private let limit: Int
    init(_ random: inout SplitMix64) { limit = random.pick([1, 2, 9, 40]) }

    mutating func step(_ random: inout SplitMix64) throws {
        if random.below(150) == 0 {
            try pair.takeAll()
        } else if random.below(pair.count + 1) * 2 < limit {
            pair.append()
        } else {
            try pair.remove(at: random.below(pair.count))
        }
        try pair.compare()
    }

    mutating func finish() throws { try pair.takeAll() }
}

private struct ShortObjectList: EnumerablePlay, ~Copyable {
    static let operationCount = 5
    private var pair = ObjectListPair()
    init(start: Int) { for _ in 0..<start { pair.append() } }

    mutating func perform(_ operation: Int) throws {
        switch operation {
        case 0: pair.append()
        case 1: try pair.remove(at: 0)
        case 2: try pair.remove(at: 1)
        case 3: try pair.remove(at: max(0, pair.count - 1))
        default: try pair.takeAll()
        }
        try pair.compare()
    }

    func finish() throws {}
}

@Suite struct ListModelTests {
    @Test func `a plain list keeps 20,000 elements while its memory grows`() {
        var list = PlainList<UInt64>()
        for value in 0..<20_000 { list.append(UInt64(value) &* 0x9E37_79B9) }
        #expect((0..<20_000).allSatisfy { list[$0] == UInt64($0) &* 0x9E37_79B9 })
    }

    @Test func `memory doubles while it is small, and is at most a quarter too large after that`() {
        var list = PlainList<UInt32>()
        #expect(list.capacity == 0)
        var largest = 0.0
        for count in 1...200_000 {
            list.append(UInt32(count))
            if count > 1_024 { largest = max(largest, Double(list.capacity) / Double(count)) }
        }
        #expect(largest <= 1.25)
        list.extend(to: 1_000_000, repeating: 7)
        #expect(list.capacity == 1_000_000 && list.count == 1_000_000)
        #expect(list[199_999] == 200_000 && list[200_000] == 7 && list[999_999] == 7)
    }

    @Test func `random changes of a plain list match those of an array`() throws {
        try playRandomly(PlainListPlay.self, seeds: 0..<60, steps: 1_000)
    }

    @Test func `objects are added and removed as in an array whose last element fills the gap`() throws {
        try playRandomly(ObjectListPlay.self, seeds: 0..<40, steps: 500)
    }

    @Test func `after every short sequence of changes the objects are at the indices that they store`() throws {
        try playAllSequences(ShortObjectList.self, length: 5, starts: 3)
    }

    @Test func `objects that remain in a list are released with it`() {
        let alive = Box(0)
        do {
            var list = UnorderedBag<Member>()
            for id in 0..<9 { list.append(Member(id, index: id, alive: alive)) }
            #expect(alive.value == 9)
        }
        #expect(alive.value == 0)
    }
}
