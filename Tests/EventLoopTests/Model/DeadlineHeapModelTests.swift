// Rules proved here, against a list that is searched:
// - The top is the least by (deadline, sequence), whatever was inserted, moved and removed before.
// - Sequences that wrap around keep their order; the extremes of Int64 are deadlines like others.
// - A slot is there from its insertion to its removal, under the deadline it was given last.

import EventLoopTestSupport
import Testing

@testable import EventLoop

private struct HeapPlay: ModelPlay, ~Copyable {
    private static let deadlines: [Int64] = [.min, .min + 1, -1, 0, 1, 2, 3, 4, 5, 6, 1_000, .max - 1, .max]

    private var heap = DeadlineHeap()
    private var model: [(slot: UInt32, deadline: Int64, order: Int)] = []
    private let slots: [UInt32]
    private var order: Int
    /// Out of ten operations, how many insert or move. It changes now and then, so that the heap grows and empties.
    private var growth = 7

    init(_ random: inout SplitMix64) {
        let count = random.pick([1, 2, 5, 6, 21, 90])
        // Numbers far apart make the table of positions grow by more than doubling.
        let distance = random.pick([1, 1, 37])
        slots = (0..<count).map { UInt32($0 * distance) }
        // Near the places where a sequence of 32 bits changes its sign, and where it begins again.
        order = random.pick([0, Int(Int32.max) - 300, Int(UInt32.max) - 300])
    }

    mutating func step(_ random: inout SplitMix64) throws {
        if random.below(100) == 0 { growth = random.pick([2, 5, 8]) }
        let slot = random.pick(slots)
        let place = model.firstIndex { $0.slot == slot }
        try agree(heap.contains(slot), place != nil, "contains \(slot)")
        try agree(heap.contains(slot + 10_000), false, "contains a slot beyond the table")
        if random.below(10) < growth {
            order += 1
            let deadline = random.pick(Self.deadlines)
            let sequence = UInt32(truncatingIfNeeded: order)
            if let place {
                heap.move(slot, deadline: deadline, sequence: sequence)
                model.remove(at: place)
            } else {
                heap.insert(slot, deadline: deadline, sequence: sequence)
            }
            model.append((slot, deadline, order))
            try agree(heap.deadline(of: slot), deadline, "the deadline of \(slot)")
        } else if random.below(2) == 0 {
            try agree(heap.remove(slot), place != nil, "remove \(slot)")
            if let place { model.remove(at: place) }
        } else {
            try removeTop()
        }
        try compareTops()
    }

    mutating func finish() throws {
        while !model.isEmpty {  // ends: one goes a turn
            try removeTop()
            try compareTops()
        }
    }

    private mutating func removeTop() throws {
        guard let top = heap.top else { return }
        try agree(heap.remove(top.slot), true, "remove the top")
        model.removeAll { $0.slot == top.slot }
    }

    private func compareTops() throws {
        let first = model.min { ($0.deadline, $0.order) < ($1.deadline, $1.order) }
        try agree(heap.top.map { [Int64($0.slot), $0.deadline] }, first.map { [Int64($0.slot), $0.deadline] }, "top")
        try agree(heap.count, model.count, "count")
        try agree(heap.isEmpty, model.isEmpty, "isEmpty")
    }
}

@Suite struct DeadlineHeapModelTests {
    @Test func `random inserts, moves and removals keep the least at the top`() throws {
        try playRandomly(HeapPlay.self, seeds: 0..<120, steps: 1_000)
    }
}
