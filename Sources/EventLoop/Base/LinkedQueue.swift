// A queue whose elements can leave from the middle: queued changes that a later change cancels, closures that somebody withdraws.
//
// Lifecycle of the storage: allocated here, grown by doubling, given back in part if it has been far too large for a while, freed in
// deinit. The nodes below `used` are initialized; those that have no element are linked through `next` as free ones.

/// First in, first out, and every element can be removed in O(1) by its place. One owner at a time: a lock, or a thread.
struct LinkedQueue<Element: Sendable>: ~Copyable, @unchecked Sendable {
    // SAFETY: the memory is this queue's alone, and whoever has the queue to himself has the memory.
    private var nodes: UnsafeMutablePointer<Node>
    private var capacity = 0
    private var used = 0
    private var first = Self.noPlace
    private var last = Self.noPlace
    private var firstFree = Self.noPlace
    private(set) var count = 0
    /// How often in a row it was emptied with most of its memory untouched.
    private var wastefulTurns = 0

    /// Where an element is: good until the element leaves the queue.
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

    /// Lends the first element; nil if there is none.
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

    /// The first element; there must be one.
    mutating func popFirst() -> Element { remove(first) }

    /// Takes an element out.
    mutating func remove(_ place: Place) -> Element {
        let node = nodes + Int(place)
        assert(place >= 0 && place < used && node.pointee.element != nil, "an element leaves once")
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
        while count > 0 { elements.append(popFirst()) }  // ends: one goes a turn
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

    /// Empty, so it can begin at the front again; and a burst of long ago need not hold its memory.
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
