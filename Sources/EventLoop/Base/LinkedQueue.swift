// A queue with removal from the middle, for changes that a later change cancels, and for closures that are withdrawn.
//
// Lifecycle of the storage: allocated here, grown by doubling, shrunk after it has been far too large for a while, freed in deinit. The
// nodes below `used` are initialized. Those without an element are linked through `next` in a free list.

/// First in, first out. Any element can be removed by its place in O(1). One owner at a time: a lock or a thread.
struct LinkedQueue<Element: Sendable>: ~Copyable, @unchecked Sendable {
    // SAFETY: nothing else refers to the memory, so exclusive access to the queue is exclusive access to the memory.
    private var nodes: UnsafeMutablePointer<Node>
    private var capacity = 0
    private var used = 0
    private var first = Self.noPlace
    private var last = Self.noPlace
    private var firstFree = Self.noPlace
    private(set) var count = 0
    /// How many times in a row the queue was emptied without most of its memory having been used.
    private var wastefulTurns = 0

    /// The place of an element. Valid until the element leaves the queue.
    typealias Place = Int32
    static var noPlace: Place { -1 }

    private struct Node {
        var element: Element?
        var previous: Place
        var next: Place
    }

    init() { nodes = .allocate(capacity: 0) }

    deinit {
        nodes.deinitialize(count: used)
        nodes.deallocate()
    }

    var isEmpty: Bool { count == 0 }

    /// Calls `body` with the first element; nil if the queue is empty.
    func withFirst<R>(_ body: (borrowing Element) -> R) -> R? {
        first == Self.noPlace ? nil : body(nodes[Int(first)].element!)  // nodes in the list have an element
    }

    /// Changes an element in its place.
    mutating func update(_ place: Place, _ body: (inout Element) -> Void) {
        body(&nodes[Int(place)].element!)  // the caller knows the place from `append`
    }

    @discardableResult
    mutating func append(_ element: __owned Element) -> Place {
        let place = takeNode()
        (nodes + Int(place)).initialize(to: Node(element: element, previous: last, next: Self.noPlace))
        if last == Self.noPlace { first = place } else { nodes[Int(last)].next = place }
        last = place
        count += 1
        return place
    }

    /// Removes the first element. The queue must not be empty.
    mutating func popFirst() -> Element { remove(first) }

    /// Removes an element.
    mutating func remove(_ place: Place) -> Element {
        let node = nodes + Int(place)
        assert(place >= 0 && place < used && node.pointee.element != nil, "an element is removed once")
        let (previous, next) = (node.pointee.previous, node.pointee.next)
        let element = node.pointee.element.take()!  // asserted above
        if previous == Self.noPlace { first = next } else { nodes[Int(previous)].next = next }
        if next == Self.noPlace { last = previous } else { nodes[Int(next)].previous = previous }
        node.pointee.next = firstFree
        firstFree = place
        count -= 1
        if count == 0 { rewind() }
        return element
    }

    mutating func removeAll() -> [Element] {
        var elements: [Element] = []
        elements.reserveCapacity(count)
        while count > 0 { elements.append(popFirst()) }  // ends: each turn removes an element
        return elements
    }

    private mutating func takeNode() -> Place {
        if firstFree != Self.noPlace {
            let place = firstFree
            firstFree = nodes[Int(place)].next
            return place
        }
        if used == capacity { moveToStorage(of: max(8, capacity * 2)) }
        (nodes + used).initialize(to: Node(element: nil, previous: Self.noPlace, next: Self.noPlace))
        used += 1
        return Place(used - 1)
    }

    /// Called when the queue is empty: starts again at the front, and gives back memory that only an old burst has needed.
    private mutating func rewind() {
        let reached = used
        nodes.deinitialize(count: used)
        (used, firstFree) = (0, Self.noPlace)
        if capacity <= 256 { return }
        wastefulTurns = reached < capacity / 8 ? wastefulTurns + 1 : 0
        if wastefulTurns < 64 { return }
        wastefulTurns = 0
        moveToStorage(of: capacity / 4)
    }

    private mutating func moveToStorage(of newCapacity: Int) {
        let fresh = UnsafeMutablePointer<Node>.allocate(capacity: newCapacity)
        fresh.moveInitialize(from: nodes, count: used)
        nodes.deallocate()
        (nodes, capacity) = (fresh, newCapacity)
    }
}
