// Rules proved here, against arrays:
// - Elements come out in the order in which they went in, even if the memory grows, moves to the front, or shrinks after a burst.
// - Taking over another queue, sorting and emptying have the same results as on an array.
// - Every element is released exactly once: when it is removed, or with the queue.

import EventLoopTestSupport
import Testing

@testable import EventLoop

/// Two queues with their model arrays, and every operation on both.
private struct DequePair: ~Copyable {
    private var queue = Deque<CountedElement>()
    private var other = Deque<CountedElement>()
    private var model: [Int] = []
    private var otherModel: [Int] = []
    private let alive = Box(0)
    private var lastID = 0

    var count: Int { model.count }

    mutating func append() {
        lastID += 1
        queue.append(CountedElement(lastID, alive: alive))
        model.append(lastID)
    }

    mutating func appendToOther() {
        lastID += 1
        other.append(CountedElement(lastID, alive: alive))
        otherModel.append(lastID)
    }

    mutating func popFirst() throws {
        if model.isEmpty { return }
        try agree(queue.popFirst().id, model.removeFirst(), "popFirst")
    }

    mutating func takeAll() {
        queue.takeAll(from: &other)
        model += otherModel
        otherModel = []
    }

    mutating func swapQueues() {
        swap(&queue, &other)
        swap(&model, &otherModel)
    }

    mutating func removeAll() throws {
        try agree(queue.removeAll().map(\.id), model, "removeAll")
        model = []
    }

    mutating func sort(descending: Bool) {
        queue.sort { descending ? $0.id > $1.id : $0.id < $1.id }
        model.sort { descending ? $0 > $1 : $0 < $1 }
    }

    func compare() throws {
        try agree(queue.count, model.count, "count")
        try agree(queue.isEmpty, model.isEmpty, "isEmpty")
        try agree(queue.withFirst { $0.id }, model.first, "the first")
        try agree(other.count, otherModel.count, "the other's count")
        try agree(alive.value, model.count + otherModel.count, "elements alive")
    }

    mutating func drain() throws {
        try removeAll()
        swapQueues()
        try removeAll()
        try compare()
    }
}

private struct FifoPlay: ModelPlay, ~Copyable {
    private var pair = DequePair()
    /// The count to which the queue grows or shrinks.
    private var aim = 0

    init(_ random: inout SplitMix64) {}

    mutating func step(_ random: inout SplitMix64) throws {
        switch random.below(400) {
        case 0: pair.takeAll()
        case 1: pair.swapQueues()
        case 2: try pair.removeAll()
        case 3: pair.sort(descending: random.below(2) == 0)
        case 4..<44: pair.appendToOther()
        default:
            if pair.count == aim { aim = random.below(40) == 0 ? 700 : random.below(20) }
            if pair.count <= aim { pair.append() } else { try pair.popFirst() }
        }
        try pair.compare()
    }

    mutating func finish() throws { try pair.drain() }
}

/// Short sequences that start where the queue is about to grow, to move to the front, or to wrap around.
private struct FifoAtTheEdge: EnumerablePlay, ~Copyable {
    /// The number of elements appended, and the number of them removed again. The first storage has room for sixteen.
    static let starts = [(0, 0), (1, 1), (15, 0), (16, 0), (16, 8), (16, 9), (16, 15), (15, 14)]
    static let operationCount = 6
    private var pair = DequePair()

    init(start: Int) {
        for _ in 0..<Self.starts[start].0 { pair.append() }
        for _ in 0..<Self.starts[start].1 { try! pair.popFirst() }  // finish() compares
    }

    mutating func perform(_ operation: Int) throws {
        switch operation {
        case 0: pair.append()
        case 1: try pair.popFirst()
        case 2: pair.appendToOther()
        case 3: pair.takeAll()
        case 4: pair.swapQueues()
        default: pair.sort(descending: true)
        }
        try pair.compare()
    }

    mutating func finish() throws { try pair.drain() }
}

@Suite struct DequeModelTests {
    @Test func `random operations have the same results as on arrays`() throws {
        try playRandomly(FifoPlay.self, seeds: 0..<30, steps: 3_000)
    }

    @Test func `every short sequence has the same results as on arrays, from every position in the queue's memory`() throws {
        try playAllSequences(FifoAtTheEdge.self, length: 4, starts: FifoAtTheEdge.starts.count)
    }

    /// The queue releases the memory of a burst in steps, each after 64 turns that used little of it.
    @Test func `the order is kept while the queue releases the memory of a burst`() throws {
        var pair = DequePair()
        for _ in 0..<5_000 { pair.append() }
        try pair.removeAll()
        for turn in 0..<400 {
            for _ in 0...turn % 5 { pair.append() }
            while pair.count > 0 { try pair.popFirst() }  // ends: each iteration removes one
            try pair.compare()
        }
        for _ in 0..<300 { pair.append() }
        try pair.drain()
    }

    @Test func `remaining elements are released with the queue`() throws {
        let alive = Box(0)
        do {
            var queue = Deque<CountedElement>()
            for id in 0..<20 { queue.append(CountedElement(id, alive: alive)) }
            for _ in 0..<7 { _ = queue.popFirst() }
            #expect(alive.value == 13)
        }
        #expect(alive.value == 0)
    }
}
