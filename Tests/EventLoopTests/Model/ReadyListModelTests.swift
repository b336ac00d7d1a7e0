// Rules proved here, against arrays:
// - Registrations are in the order in which they were appended, and any of them can leave.
// - A whole list can be appended to another, even if either is empty.
// - A walk visits each registration once, even if it removes those that it visits or moves them to another list.

import EventLoopTestSupport
import Testing

@testable import EventLoop

/// Two lists with their model arrays, and the registrations, each of which is in one of the lists or in neither.
private struct ReadyListPair: ~Copyable {
    private var lists = [ReadyList(), ReadyList()]
    private var models: [[Int32]] = [[], []]
    private let registrations: [RegistrationPointer]

    init(count: Int) { registrations = (0..<count).map { .fake(descriptor: Int32($0)) } }
    deinit { for registration in registrations { registration.deallocate() } }

    /// Removes the registration from its list, or appends it to this one.
    mutating func toggle(_ index: Int, in list: Int) {
        let name = Int32(index)
        if let holder = models.firstIndex(where: { $0.contains(name) }) {
            lists[holder].remove(registrations[index])
            models[holder].removeAll { $0 == name }
        } else {
            lists[list].append(registrations[index])
            models[list].append(name)
        }
    }

    mutating func appendAll(of source: Int) {
        lists[1 - source].append(lists[source])
        lists[source] = ReadyList()
        models[1 - source] += models[source]
        models[source] = []
    }

    /// Walks a list, removing some of the registrations that it visits and moving others to the other list.
    mutating func walk(_ list: Int, fate: (Int32) -> Int) throws {
        var visited: [Int32] = []
        var (own, other) = (lists[list], lists[1 - list])
        // The walk follows the links, which the changes below do not break.
        lists[list].forEach { registration in
            let name = registration.pointee.watch.descriptor
            visited.append(name)
            switch fate(name) {
            case 0: own.remove(registration)
            case 1:
                own.remove(registration)
                other.append(registration)
            default: break
            }
        }
        (lists[list], lists[1 - list]) = (own, other)
        try agree(visited, models[list], "the walk")
        models[1 - list] += models[list].filter { fate($0) == 1 }
        models[list].removeAll { fate($0) <= 1 }
    }

    func compare() throws {
        for (list, model) in zip(lists, models) {
            var (forwards, backwards): ([Int32], [Int32]) = ([], [])
            var last: RegistrationPointer?
            list.forEach {
                last = $0; forwards.append($0.pointee.watch.descriptor)
            }
            while let registration = last, backwards.count <= model.count {  // ends: at the front, or after too many
                backwards.append(registration.pointee.watch.descriptor)
                last = registration.pointee.previousReady
            }
            try agree(forwards, model, "forwards")
            try agree(backwards, model.reversed(), "backwards")
            try agree(list.first?.pointee.watch.descriptor, model.first, "first")
            try agree(list.isEmpty, model.isEmpty, "isEmpty")
        }
    }
}

private struct ReadyListPlay: ModelPlay, ~Copyable {
    private var pair: ReadyListPair
    private let count: Int

    init(_ random: inout SplitMix64) {
        count = random.pick([1, 2, 5, 16])
        pair = ReadyListPair(count: count)
    }

    mutating func step(_ random: inout SplitMix64) throws {
        let list = random.below(2)
        switch random.below(20) {
        case 0: pair.appendAll(of: list)
        case 1:
            let fates = (0..<count).map { _ in random.below(4) }
            try pair.walk(list) { fates[Int($0)] }
        default: pair.toggle(random.below(count), in: list)
        }
        try pair.compare()
    }

    func finish() throws {}
}

private struct ThreeRegistrations: EnumerablePlay, ~Copyable {
    static let operationCount = 9
    private var pair = ReadyListPair(count: 3)
    init(start: Int) {}

    mutating func perform(_ operation: Int) throws {
        switch operation {
        case 0..<6: pair.toggle(operation / 2, in: operation % 2)
        case 6: pair.appendAll(of: 0)
        case 7: pair.appendAll(of: 1)
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
