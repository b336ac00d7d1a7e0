// Rules proved here, against a searched list:
// - The top has the least (deadline, sequence), after any insertions, moves and removals.
// - Sequences that wrap around keep their order. The extremes of Int64 are ordinary deadlines.
// - A slot is in the heap from its insertion to its removal, with its latest deadline, and its position says so.

import EventLoopTestSupport
import Testing

@testable import EventLoop

/// A heap with its table of positions, which the heap's owner keeps. The numbers are 24 bytes apart, as in a timer queue.
private struct HeapWithPositions: ~Copyable {
    private static let stride = 24
    private var heap = DeadlineHeap()
    private let table: UnsafeMutableRawPointer
    private let slots: Int

    init(slots: Int) {
        self.slots = slots
        table = .allocate(byteCount: slots * Self.stride, alignment: 8)
        for slot in 0..<slots { table.storeBytes(of: HeapPositions.absent, toByteOffset: slot * Self.stride + 20, as: UInt32.self) }
    }

    deinit { table.deallocate() }

    private var positions: HeapPositions { HeapPositions(first: table + 20, stride: Self.stride) }

    var top: DeadlineHeap.Entry? { heap.top }
    var count: Int { heap.count }
    var isEmpty: Bool { heap.isEmpty }

    func contains(_ slot: UInt32) -> Bool { Int(slot) < slots && positions[slot] != HeapPositions.absent }

    mutating func insert(_ slot: UInt32, deadline: Int64, sequence: UInt32) {
        heap.insert(slot, deadline: deadline, sequence: sequence, positions)
    }

    mutating func move(_ slot: UInt32, deadline: Int64, sequence: UInt32) {
        heap.move(slot, deadline: deadline, sequence: sequence, positions)
    }

    /// True if the slot was in the heap.
    mutating func remove(_ slot: UInt32) -> Bool {
        guard contains(slot) else { return false }
        heap.remove(slot, positions)
        return true
    }
}

private struct HeapPlay: ModelPlay, ~Copyable {
    private static let deadlines: [Int64] = [.min, .min + 1, -1, 0, 1, 2, 3, 4, 5, 6, 1_000, .max - 1, .max]

    private var heap: HeapWithPositions
    private var model: [(slot: UInt32, deadline: Int64, order: Int)] = []
    private let slots: [UInt32]
    private var order: Int
    /// The number of operations out of ten that insert or move. It changes from time to time, so that the heap grows and empties.
    private var growth = 7

    init(_ random: inout SplitMix64) {
        let count = random.pick([1, 2, 5, 6, 21, 90])
        let distance = random.pick([1, 1, 37])
        slots = (0..<count).map { UInt32($0 * distance) }
        heap = HeapWithPositions(slots: count * distance)
        // Starts near the points where a 32-bit sequence changes its sign, and where it wraps around.
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
            try agree(heap.contains(slot), true, "contains \(slot) that was filed")
        } else if random.below(2) == 0 {
            try agree(heap.remove(slot), place != nil, "remove \(slot)")
            if let place { model.remove(at: place) }
        } else {
            try removeTop()
        }
        try compareTops()
    }

    mutating func finish() throws {
        while !model.isEmpty {  // ends: each iteration removes one
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
