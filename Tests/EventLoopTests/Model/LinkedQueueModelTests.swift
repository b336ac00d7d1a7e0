// Rules proved here, against an array:
// - Elements come out in the order in which they were appended, whichever elements were removed from the middle.
// - A index stays valid until its element leaves, even if the storage grows.
// - A ticket removes its element once. After the element has left and another has taken its index, the ticket removes nothing.
// - An element that is moved to the end keeps its index, and its earlier ticket removes nothing.
// - A queue that was emptied starts over, and releases memory without losing an element.

import EventLoopTestSupport
import Testing

@testable import EventLoop

private struct LinkedQueuePlay: ModelPlay, ~Copyable {
    private typealias Entry = (element: Int, index: LinkedQueue<Int>.Index, ticket: LinkedQueue<Int>.Ticket, sequence: UInt64)

    private var queue = LinkedQueue<Int>()
    private var model: [Entry] = []
    private var last = 0
    private var lastSequence: UInt64 = 0
    /// The tickets of elements that have left.
    private var spent: [LinkedQueue<Int>.Ticket] = []

    init(_ random: inout SplitMix64) {}

    mutating func step(_ random: inout SplitMix64) throws {
        switch random.below(40) {
        case 0: try removeAll()
        case 1..<12: try popFirst()
        case 12..<20: try removeFromTheMiddle(&random)
        case 20..<22: update(&random)
        case 22..<24: moveToEnd(&random)
        // Enough elements for the storage to grow, and emptied often enough for it to shrink.
        case 24: for _ in 0..<random.below(600) { append() }
        default: append()
        }
        for _ in 0..<min(3, spent.count) {
            try agree(queue.remove(spent[random.below(spent.count)]), nil, "a ticket of one that has left")
        }
        try compare()
    }

    mutating func finish() throws { try removeAll() }

    private mutating func append() {
        last += 1
        switch last % 3 {
        case 0:
            lastSequence += 1
            let index = queue.append(last)
            model.append((last, index, queue.ticket(of: index), lastSequence))
        case 1:
            lastSequence += 1
            let ticket = queue.appendForTicket(last)
            model.append((last, ticket.index, ticket, lastSequence))
        default:
            lastSequence += 7
            let index = queue.append(last, sequence: lastSequence)
            model.append((last, index, queue.ticket(of: index), lastSequence))
        }
    }

    private mutating func popFirst() throws {
        if model.isEmpty { return }
        let entry = model.removeFirst()
        try agree(queue.popFirst(), entry.element, "popFirst")
        spent.append(entry.ticket)
    }

    private mutating func removeFromTheMiddle(_ random: inout SplitMix64) throws {
        if model.isEmpty { return }
        let entry = model.remove(at: random.below(model.count))
        if random.below(2) == 0 {
            try agree(queue.remove(entry.index), entry.element, "remove by index")
        } else {
            try agree(queue.remove(entry.ticket), entry.element, "remove by ticket")
        }
        spent.append(entry.ticket)
    }

    private mutating func update(_ random: inout SplitMix64) {
        if model.isEmpty { return }
        let index = random.below(model.count)
        last += 1
        queue.update(model[index].index) { $0 = last }
        model[index].element = last
    }

    private mutating func moveToEnd(_ random: inout SplitMix64) {
        if model.isEmpty { return }
        var entry = model.remove(at: random.below(model.count))
        queue.moveToEnd(entry.index)
        let ticket = queue.ticket(of: entry.index)
        // The last element is there already.
        if ticket != entry.ticket {
            spent.append(entry.ticket)
            lastSequence += 1
            (entry.ticket, entry.sequence) = (ticket, lastSequence)
        }
        model.append(entry)
    }

    private mutating func removeAll() throws {
        try agree(queue.removeAll(), model.map(\.element), "removeAll")
        spent += model.map(\.ticket)
        model = []
    }

    private func compare() throws {
        try agree(queue.count, model.count, "count")
        try agree(queue.isEmpty, model.isEmpty, "isEmpty")
        try agree(queue.firstSequence, model.first?.sequence ?? .max, "the first sequence number")
        try agree(queue.first, model.first?.element, "first")
        try agree(queue.entries.map(\.element), model.map(\.element), "entries")
        try agree(queue.entries.map(\.ticket), model.map(\.ticket), "tickets")
    }
}

@Suite struct LinkedQueueModelTests {
    @Test func `elements leave in order or from the middle, each once`() throws {
        try playRandomly(LinkedQueuePlay.self, seeds: 0..<30, steps: 500)
    }
}
