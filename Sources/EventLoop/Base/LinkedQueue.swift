/// First in, first out, and any element can be removed from the middle: a change that a later one cancels, a closure that is withdrawn, a frame or a
/// waiter that times out (decision 48). Each operation is O(1) amortized. An element has an index, which is valid until it leaves the queue, and a
/// ticket, which is valid for good, and removes nothing when it has left.
package struct LinkedQueue<Element: Sendable>: Sendable {
    package typealias Index = Int32
    static var noIndex: Index { -1 }

    /// Names an element, also after it has left the queue. Tickets increase in the order of insertion.
    package struct Ticket: Hashable, Comparable, Sendable {
        fileprivate let sequence: UInt64
        package let index: Index
        package static func < (one: Ticket, other: Ticket) -> Bool { one.sequence < other.sequence }
    }

    private struct Node {
        var element: Element?
        var sequence: UInt64
        var previous: Index
        var next: Index
    }

    /// Those without an element are linked through `next` in a free list.
    private var nodes: ContiguousArray<Node> = []
    private var head = Self.noIndex
    private var tail = Self.noIndex
    private var firstFree = Self.noIndex
    private var lastSequence: UInt64 = 0
    package private(set) var count = 0
    /// The most nodes that were in use since the memory was last freed.
    private var largest = 0
    /// How many times in a row the queue was emptied without most of its memory having been used.
    private var wastefulTurns = 0
    /// How many elements were added or removed.
    private(set) var testsOnlySteps = TestsOnlyCount()
    package init() {}
    package var isEmpty: Bool { count == 0 }
    package var first: Element? { head == Self.noIndex ? nil : nodes[Int(head)].element }
    /// The sequence number of the first element; greater than any other if the queue is empty. Copies no element.
    var firstSequence: UInt64 { head == Self.noIndex ? .max : nodes[Int(head)].sequence }

    package var entries: [(ticket: Ticket, element: Element)] {
        var entries: [(ticket: Ticket, element: Element)] = []
        var index = head
        while index != Self.noIndex {  // ends: the list has an end
            entries.append((ticket(of: index), nodes[Int(index)].element!))  // nodes in the list have an element
            index = nodes[Int(index)].next
        }
        return entries
    }

    func ticket(of index: Index) -> Ticket { Ticket(sequence: nodes[Int(index)].sequence, index: index) }
    /// The index is that of an element in the queue.
    mutating func update(_ index: Index, _ body: (inout Element) -> Void) { body(&nodes[Int(index)].element!) }
    @discardableResult
    package mutating func append(_ element: __owned Element) -> Index { append(element, sequence: lastSequence + 1) }

    /// The same with a sequence number of the caller's, which must be greater than that of every element before it.
    mutating func append(_ element: __owned Element, sequence: UInt64) -> Index {
        assert(sequence > lastSequence, "sequence numbers increase")
        lastSequence = sequence
        testsOnlySteps.increment()
        let index = insert(Node(element: element, sequence: lastSequence, previous: tail, next: Self.noIndex))
        if tail == Self.noIndex { head = index } else { nodes[Int(tail)].next = index }
        tail = index
        count += 1
        return index
    }

    /// The same, for a caller that may remove the element after it has left.
    package mutating func appendForTicket(_ element: __owned Element) -> Ticket {
        let index = append(element)
        return ticket(of: index)
    }

    /// Moves an element behind all others. It keeps its index, and gets a new ticket.
    mutating func moveToEnd(_ index: Index) {
        assert(index >= 0 && index < nodes.count && nodes[Int(index)].element != nil, "the index of an element in the queue")
        if index == tail { return }
        let (previous, next) = (nodes[Int(index)].previous, nodes[Int(index)].next)
        if previous == Self.noIndex { head = next } else { nodes[Int(previous)].next = next }
        nodes[Int(next)].previous = previous  // there is a next one, because this is not the last
        nodes[Int(tail)].next = index
        lastSequence += 1
        (nodes[Int(index)].previous, nodes[Int(index)].next, nodes[Int(index)].sequence) = (tail, Self.noIndex, lastSequence)
        tail = index
    }

    /// Removes the first element; there must be one.
    package mutating func popFirst() -> Element { remove(head) }
    package mutating func removeFirst() -> Element? { isEmpty ? nil : popFirst() }

    /// Removes the element with the ticket. Nil if it has left the queue.
    @discardableResult
    package mutating func remove(_ ticket: Ticket) -> Element? {
        guard ticket.index < nodes.count, nodes[Int(ticket.index)].sequence == ticket.sequence else { return nil }
        return remove(ticket.index)
    }

    mutating func remove(_ index: Index) -> Element {
        assert(index >= 0 && index < nodes.count && nodes[Int(index)].element != nil, "an element leaves once")
        testsOnlySteps.increment()
        let (previous, next) = (nodes[Int(index)].previous, nodes[Int(index)].next)
        let element = nodes[Int(index)].element.take()!  // asserted above
        nodes[Int(index)].sequence = 0
        if previous == Self.noIndex { head = next } else { nodes[Int(previous)].next = next }
        if next == Self.noIndex { tail = previous } else { nodes[Int(next)].previous = previous }
        nodes[Int(index)].next = firstFree
        firstFree = index
        count -= 1
        if count == 0 { rewind() }
        return element
    }

    package mutating func removeAll() -> [Element] { (0..<count).map { _ in popFirst() } }

    private mutating func insert(_ node: __owned Node) -> Index {
        if firstFree == Self.noIndex {
            nodes.append(node)
            return Index(nodes.count - 1)
        }
        let index = firstFree
        firstFree = nodes[Int(index)].next
        nodes[Int(index)] = node
        return index
    }

    /// The queue is empty. A few free nodes stay: clearing costs more. After a burst it starts at the front, and frees what only an old one used.
    private mutating func rewind() {
        let used = nodes.count
        largest = max(largest, used)
        if largest <= 256 { return }
        nodes.removeAll(keepingCapacity: true)
        firstFree = Self.noIndex
        wastefulTurns = used < largest / 8 ? wastefulTurns + 1 : 0
        if wastefulTurns < 64 { return }
        (wastefulTurns, largest) = (0, largest / 4)
        nodes = []
        nodes.reserveCapacity(largest)
    }
}
