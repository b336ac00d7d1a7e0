// A queue with removal from the middle: for changes that a later change cancels, closures that are withdrawn, and frames and waiters that
// time out. swift-collections has nothing like it (decision 48).

/// First in, first out, and any element can be removed from the middle. Each operation is O(1) amortized.
///
/// An element has a place, which is valid until the element leaves the queue, and a ticket, which is valid for good: after the element has
/// left, the ticket removes nothing.
package struct LinkedQueue<Element: Sendable>: Sendable {
    /// The place of an element. Valid until the element leaves the queue.
    package typealias Place = Int32
    static var noPlace: Place { -1 }

    /// Names an element, also after it has left the queue. Tickets increase in the order of insertion.
    package struct Ticket: Hashable, Comparable, Sendable {
        fileprivate let sequence: UInt64
        package let place: Place

        package static func < (one: Ticket, other: Ticket) -> Bool { one.sequence < other.sequence }
    }

    private struct Node {
        var element: Element?
        var sequence: UInt64
        var previous: Place
        var next: Place
    }

    /// Those without an element are linked through `next` in a free list.
    private var nodes: ContiguousArray<Node> = []
    private var head = Self.noPlace
    private var tail = Self.noPlace
    private var firstFree = Self.noPlace
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
    package var first: Element? { head == Self.noPlace ? nil : nodes[Int(head)].element }
    /// The sequence number of the first element; greater than any other if the queue is empty. Copies no element.
    var firstSequence: UInt64 { head == Self.noPlace ? .max : nodes[Int(head)].sequence }

    /// The elements in order, each with its ticket.
    package var entries: [(ticket: Ticket, element: Element)] {
        var entries: [(ticket: Ticket, element: Element)] = []
        var place = head
        while place != Self.noPlace {  // ends: the list has an end
            entries.append((ticket(of: place), nodes[Int(place)].element!))  // nodes in the list have an element
            place = nodes[Int(place)].next
        }
        return entries
    }

    /// The ticket of the element at a place.
    func ticket(of place: Place) -> Ticket { Ticket(sequence: nodes[Int(place)].sequence, place: place) }

    /// Changes an element at its place.
    mutating func update(_ place: Place, _ body: (inout Element) -> Void) {
        body(&nodes[Int(place)].element!)  // the caller has the place from `append`
    }

    @discardableResult
    package mutating func append(_ element: __owned Element) -> Place { append(element, sequence: lastSequence + 1) }

    /// The same with a sequence number of the caller's, which must be greater than that of every element before it.
    mutating func append(_ element: __owned Element, sequence: UInt64) -> Place {
        assert(sequence > lastSequence, "sequence numbers increase")
        lastSequence = sequence
        testsOnlySteps.increment()
        let place = insert(Node(element: element, sequence: lastSequence, previous: tail, next: Self.noPlace))
        if tail == Self.noPlace { head = place } else { nodes[Int(tail)].next = place }
        tail = place
        count += 1
        return place
    }

    /// The same, for a caller that may remove the element after it has left.
    package mutating func appendForTicket(_ element: __owned Element) -> Ticket {
        let place = append(element)
        return ticket(of: place)
    }

    /// Moves an element behind all others. It keeps its place, and gets a new ticket.
    mutating func moveToEnd(_ place: Place) {
        assert(place >= 0 && place < nodes.count && nodes[Int(place)].element != nil, "the place of an element in the queue")
        if place == tail { return }
        let (previous, next) = (nodes[Int(place)].previous, nodes[Int(place)].next)
        if previous == Self.noPlace { head = next } else { nodes[Int(previous)].next = next }
        nodes[Int(next)].previous = previous  // there is a next one, because this is not the last
        nodes[Int(tail)].next = place
        lastSequence += 1
        (nodes[Int(place)].previous, nodes[Int(place)].next, nodes[Int(place)].sequence) = (tail, Self.noPlace, lastSequence)
        tail = place
    }

    /// Removes the first element; there must be one.
    package mutating func popFirst() -> Element { remove(head) }

    package mutating func removeFirst() -> Element? { isEmpty ? nil : popFirst() }

    /// Removes the element with the ticket. Nil if it has left the queue.
    @discardableResult
    package mutating func remove(_ ticket: Ticket) -> Element? {
        guard ticket.place < nodes.count, nodes[Int(ticket.place)].sequence == ticket.sequence else { return nil }
        return remove(ticket.place)
    }

    /// Removes an element.
    mutating func remove(_ place: Place) -> Element {
        assert(place >= 0 && place < nodes.count && nodes[Int(place)].element != nil, "an element leaves once")
        testsOnlySteps.increment()
        let (previous, next) = (nodes[Int(place)].previous, nodes[Int(place)].next)
        let element = nodes[Int(place)].element.take()!  // asserted above
        nodes[Int(place)].sequence = 0
        if previous == Self.noPlace { head = next } else { nodes[Int(previous)].next = next }
        if next == Self.noPlace { tail = previous } else { nodes[Int(next)].previous = previous }
        nodes[Int(place)].next = firstFree
        firstFree = place
        count -= 1
        if count == 0 { rewind() }
        return element
    }

    /// Removes all elements, and returns them in order.
    package mutating func removeAll() -> [Element] {
        var elements: [Element] = []
        elements.reserveCapacity(count)
        while count > 0 { elements.append(popFirst()) }  // ends: each turn removes an element
        return elements
    }

    private mutating func insert(_ node: __owned Node) -> Place {
        if firstFree == Self.noPlace {
            nodes.append(node)
            return Place(nodes.count - 1)
        }
        let place = firstFree
        firstFree = nodes[Int(place)].next
        nodes[Int(place)] = node
        return place
    }

    /// The queue is empty. A few free nodes stay, because clearing them costs more than they do. After a larger burst the queue starts at the
    /// front again, and frees memory that only a long-past burst used.
    private mutating func rewind() {
        let used = nodes.count
        largest = max(largest, used)
        if largest <= 256 { return }
        nodes.removeAll(keepingCapacity: true)
        firstFree = Self.noPlace
        wastefulTurns = used < largest / 8 ? wastefulTurns + 1 : 0
        if wastefulTurns < 64 { return }
        (wastefulTurns, largest) = (0, largest / 4)
        nodes = []
        nodes.reserveCapacity(largest)
    }
}
