// Rules proved here, against Set<Int>:
// - Insertions, removals and queries match those of a set, on both sides of each boundary between machine words.
// - The members are visited in ascending order, each once.
// - A copy is independent of the original.

import EventLoopTestSupport
import Testing

@testable import EventLoop

private struct SetPair {
    private var set = ModeSet()
    private var model: Set<Int> = []

    mutating func insert(_ index: Int) throws { try agree(set.insert(index), model.insert(index).inserted, "insert(\(index))") }
    mutating func remove(_ index: Int) throws { try agree(set.remove(index), model.remove(index) != nil, "remove(\(index))") }
    func askContains(_ index: Int) throws { try agree(set.contains(index), model.contains(index), "contains(\(index))") }

    func compare() throws {
        var visited: [Int] = []
        set.forEach { visited.append($0) }
        try agree(visited, model.sorted(), "forEach")
        try agree(set.isEmpty, model.isEmpty, "isEmpty")
    }
}

private struct ModeSetPlay: ModelPlay {
    private static let borders = [0, 1, 31, 32, 62, 63, 64, 65, 126, 127, 128, 129, 191, 192, 255, 256, 1_000]
    private var pair = SetPair()
    private var copy = SetPair()

    init(_ random: inout SplitMix64) {}

    mutating func step(_ random: inout SplitMix64) throws {
        let index = random.below(3) == 0 ? random.below(200) : random.pick(Self.borders)
        switch random.below(20) {
        case 0..<8: try pair.insert(index)
        case 8..<17: try pair.remove(index)
        case 17: copy = pair
        case 18: swap(&copy, &pair)
        default: try pair.askContains(index + random.below(3_000))
        }
        try pair.askContains(index)
        try pair.compare()
    }

    func finish() throws { try copy.compare() }
}

/// Four members: the first and the last of the first word, the first of the second word, and one that leaves a gap.
private struct FourMembers: EnumerablePlay {
    static let operationCount = 8
    private static let members = [0, 63, 64, 191]
    private var pair = SetPair()

    init(start: Int) {}

    mutating func perform(_ operation: Int) throws {
        if operation < 4 { try pair.insert(Self.members[operation]) } else { try pair.remove(Self.members[operation - 4]) }
        for member in Self.members { try pair.askContains(member) }
    }

    func finish() throws { try pair.compare() }
}

@Suite struct ModeSetModelTests {
    @Test func `random insertions and removals match those of a set`() throws {
        try playRandomly(ModeSetPlay.self, seeds: 0..<30, steps: 1_000)
    }

    @Test func `insertions and removals of four members match those of a set, in every short sequence`() throws {
        try playAllSequences(FourMembers.self, length: 5)
    }
}
