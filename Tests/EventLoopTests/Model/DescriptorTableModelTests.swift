// Rules proved here, against a dictionary of arrays:
// - A number leads to its own registrations only, the latest first, for every size of the table.
// - A number that was never seen, is negative, or lies beyond the table has no registrations.
// - A walk visits every registration once, even if it frees those that it visits.

import EventLoopTestSupport
import Testing

@testable import EventLoop

private struct TablePlay: ModelPlay, ~Copyable {
    private var table = DescriptorTable()
    /// The registrations of each number, the latest first.
    private var model: [Int32: [RegistrationPointer]] = [:]
    private let numbers: [Int32]

    init(_ random: inout SplitMix64) {
        numbers = random.pick([[0], [3, 4, 5], [0, 15, 16, 17], [0, 31, 32, 100, 1_023, 1_024, 40_000], Array(0..<70)])
    }

    mutating func step(_ random: inout SplitMix64) throws {
        let number = random.pick(numbers)
        let chain = model[number] ?? []
        if random.below(chain.count + 2) < 2 {
            let registration = RegistrationPointer.fake(descriptor: number)
            table.insert(registration)
            model[number, default: []].insert(registration, at: 0)
        } else {
            let place = random.below(chain.count)
            table.remove(chain[place])
            chain[place].freeFake()
            model[number]!.remove(at: place)
        }
        try compare(number)
        try compare(random.pick(numbers))
        for absent in [Int32.min, -1, 50_000, .max] { try agree(table.first(of: absent), nil, "the first of \(absent)") }
        if random.below(40) == 0 { try compareWalk(freeing: false) }
    }

    mutating func finish() throws { try compareWalk(freeing: true) }

    private func compare(_ number: Int32) throws {
        var chain: [RegistrationPointer] = []
        var next = table.first(of: number)
        while let registration = next {  // ends: the chain is finite
            chain.append(registration)
            next = registration.pointee.nextOnDescriptor
        }
        try agree(chain, model[number] ?? [], "the chain of \(number)")
        let count = model.values.reduce(0) { $0 + $1.count }
        try agree(table.count, count, "count")
        try agree(table.isEmpty, count == 0, "isEmpty")
    }

    private func compareWalk(freeing: Bool) throws {
        var visited: [RegistrationPointer] = []
        table.forEach {
            visited.append($0)
            if freeing { $0.freeFake() }
        }
        try agree(visited, model.keys.sorted().flatMap { model[$0]! }, "forEach")
    }
}

/// Two registrations of one number, one of the adjacent number, and one of the first number that makes the table grow.
private struct FourRegistrations: EnumerablePlay, ~Copyable {
    static let operationCount = 4
    private let registrations: [RegistrationPointer] = [7, 7, 8, 16].map { .fake(descriptor: $0) }
    private var table = DescriptorTable()
    private var model: [Int] = []

    init(start: Int) {}
    deinit { for registration in registrations { registration.freeFake() } }

    mutating func perform(_ operation: Int) throws {
        if let place = model.firstIndex(of: operation) {
            table.remove(registrations[operation])
            model.remove(at: place)
        } else {
            table.insert(registrations[operation])
            model.insert(operation, at: 0)
        }
        var visited: [RegistrationPointer] = []
        table.forEach { visited.append($0) }
        let expected = [Int32(7), 8, 16].flatMap { number in
            model.map { registrations[$0] }.filter { $0.pointee.watch.descriptor == number }
        }
        try agree(visited, expected, "forEach")
        try agree(table.count, model.count, "count")
    }

    func finish() throws {}
}

@Suite struct DescriptorTableModelTests {
    @Test func `random registrations are found by their numbers`() throws {
        try playRandomly(TablePlay.self, seeds: 0..<40, steps: 400)
    }

    @Test func `registrations are found by their numbers after every short sequence`() throws {
        try playAllSequences(FourRegistrations.self, length: 6)
    }
}
