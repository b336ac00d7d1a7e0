// Rules proved here, against arrays:
// - Registrations are in the order in which they were appended, and any of them can leave.
// - A sorted list has its registrations by rank, and those of one rank in the order that they had.
// - A walk visits each registration once; a walk that takes some out may move them to another list.
// - A list whose first registrations leave does not grow.

import EventLoopTestSupport
import Testing

@testable import EventLoop

/// Two lists with their model arrays, and the registrations, each of which is in one of the lists or in neither.
private struct ReadyListPair: ~Copyable {
    private var first = ReadyList()
    private var second = ReadyList()
    private var models: [[Int32]] = [[], []]
    private let registrations: [RegistrationPointer]

    init(count: Int) { registrations = (0..<count).map { .fake(descriptor: Int32($0)) } }
    deinit { for registration in registrations { registration.freeFake() } }

    /// Removes the registration from its list, or appends it to this one.
    mutating func toggle(_ index: Int, in list: Int) {
        let name = Int32(index)
        if let holder = models.firstIndex(where: { $0.contains(name) }) {
            if holder == 0 { first.remove(registrations[index]) } else { second.remove(registrations[index]) }
            models[holder].removeAll { $0 == name }
        } else {
            if list == 0 { first.append(registrations[index]) } else { second.append(registrations[index]) }
            models[list].append(name)
        }
    }

    /// Takes the first registration to the end, as a source that is ready again and again.
    mutating func turn(_ list: Int) {
        guard let name = models[list].first else { return }
        toggle(Int(name), in: list)
        toggle(Int(name), in: list)
    }

    /// Takes some of the registrations out of a list, and moves others to the other list.
    mutating func walk(_ list: Int, fate: (Int32) -> Int) throws {
        let visited = list == 0 ? Self.walk(&first, &second, fate) : Self.walk(&second, &first, fate)
        try agree(visited, models[list], "the walk")
        models[1 - list] += models[list].filter { fate($0) == 1 }
        models[list].removeAll { fate($0) <= 1 }
    }

    private static func walk(_ own: inout ReadyList, _ other: inout ReadyList, _ fate: (Int32) -> Int) -> [Int32] {
        var visited: [Int32] = []
        own.removeAll { registration in
            let name = registration.pointee.watch.descriptor
            visited.append(name)
            if fate(name) == 1 { other.append(registration) }
            return fate(name) <= 1
        }
        return visited
    }

    mutating func sort(_ list: Int, byRank rank: @escaping (Int32) -> Int) {
        let goesBefore = { (one: RegistrationPointer, other: RegistrationPointer) -> Bool in
            rank(one.pointee.watch.descriptor) > rank(other.pointee.watch.descriptor)
        }
        if list == 0 { first.sort(goesBefore) } else { second.sort(goesBefore) }
        let sorted = models[list].enumerated().sorted { (rank($1.element), $0.offset) < (rank($0.element), $1.offset) }
        models[list] = sorted.map(\.element)
    }

    func compare() throws {
        try Self.compare(first, models[0])
        try Self.compare(second, models[1])
    }

    private static func compare(_ list: borrowing ReadyList, _ model: [Int32]) throws {
        var names: [Int32] = []
        list.forEach { names.append($0.pointee.watch.descriptor) }
        try agree(names, model, "the order")
        try agree(list.first?.pointee.watch.descriptor, model.first, "first")
        try agree(list.isEmpty, model.isEmpty, "isEmpty")
        try agree(list.capacity <= 16, true, "at most 16 places for at most 7 registrations")
    }
}

private struct ReadyListPlay: ModelPlay, ~Copyable {
    private var pair: ReadyListPair
    private let count: Int

    init(_ random: inout SplitMix64) {
        count = random.pick([1, 2, 5, 7])
        pair = ReadyListPair(count: count)
    }

    mutating func step(_ random: inout SplitMix64) throws {
        let list = random.below(2)
        switch random.below(20) {
        case 0: for _ in 0..<50 { pair.turn(list) }
        case 1:
            let fates = (0..<count).map { _ in random.below(4) }
            try pair.walk(list) { fates[Int($0)] }
        case 2:
            let ranks = (0..<count).map { _ in random.below(3) }
            pair.sort(list) { ranks[Int($0)] }
        default: pair.toggle(random.below(count), in: list)
        }
        try pair.compare()
    }

    func finish() throws {}
}

private struct ThreeRegistrations: EnumerablePlay, ~Copyable {
    static let operationCount = 10
    private var pair = ReadyListPair(count: 3)
    init(start: Int) {}

    mutating func perform(_ operation: Int) throws {
        switch operation {
        case 0..<6: pair.toggle(operation / 2, in: operation % 2)
        case 6: pair.turn(0)
        case 7: pair.turn(1)
        case 8: pair.sort(0) { -Int($0) / 2 }
        default: try pair.walk(0) { Int($0) }
        }
    }

    func finish() throws { try pair.compare() }
}

@Suite struct ReadyListModelTests {
    @Test func `random changes match those of two arrays`() throws {
        try playRandomly(ReadyListPlay.self, seeds: 0..<40, steps: 500)
    }

    @Test func `every short sequence of changes matches that of two arrays`() throws {
        try playAllSequences(ThreeRegistrations.self, length: 4)
    }
}
