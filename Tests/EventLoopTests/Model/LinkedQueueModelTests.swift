// Rules proved here, against an array:
// - Elements come out in the order in which they were appended, whichever left from the middle meanwhile.
// - A place is good until its element leaves, also after the storage has grown.
// - A queue that was emptied begins anew, and gives memory back without losing an element.

import EventLoopTestSupport
import Testing

@testable import EventLoop

private struct LinkedQueuePlay: ModelPlay, ~Copyable {
    private typealias Entry = (element: Int, place: LinkedQueue<Int>.Place)

    private var queue = LinkedQueue<Int>()
    private var model: [Entry] = []
    private var last = 0

    init(_ random: inout SplitMix64) {}

    mutating func step(_ random: inout SplitMix64) throws {
        switch random.below(40) {
        case 0: try removeAll()
        case 1..<12: try popFirst()
        case 12..<20: try removeFromTheMiddle(&random)
        case 20..<24: update(&random)
        // Long enough for the storage to grow, and often enough emptied for it to shrink.
        case 24: for _ in 0..<random.below(600) { append() }
        default: append()
        }
        try compare()
    }

    mutating func finish() throws { try removeAll() }

    private mutating func append() {
        last += 1
        model.append((last, queue.append(last)))
    }

    private mutating func popFirst() throws {
        if model.isEmpty { return }
        try agree(queue.popFirst(), model.removeFirst().element, "popFirst")
    }

    private mutating func removeFromTheMiddle(_ random: inout SplitMix64) throws {
        if model.isEmpty { return }
        let entry = model.remove(at: random.below(model.count))
        try agree(queue.remove(entry.place), entry.element, "remove")
    }

    private mutating func update(_ random: inout SplitMix64) {
        if model.isEmpty { return }
        let index = random.below(model.count)
        last += 1
        queue.update(model[index].place) { $0 = last }
        model[index].element = last
    }

    private mutating func removeAll() throws {
        try agree(queue.removeAll(), model.map(\.element), "removeAll")
        model = []
    }

    private func compare() throws {
        try agree(queue.count, model.count, "count")
        try agree(queue.isEmpty, model.isEmpty, "isEmpty")
        try agree(queue.withFirst { $0 }, model.first?.element, "first")
    }
}

@Suite struct LinkedQueueModelTests {
    @Test func `elements leave in order or from the middle, each once`() throws {
        try playRandomly(LinkedQueuePlay.self, seeds: 0..<30, steps: 500)
    }
}
