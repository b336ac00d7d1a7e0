// Things in the order in which they came: closures that wait to be performed, messages that wait to be handed out.
//
// Lifecycle of the storage: allocated here, grown by doubling, given back in part when it has been far too large for a while, freed in
// deinit. What stands between `head` and `tail` is initialized.

/// First in, first out, in contiguous memory that is used again. An element is moved in and moved out, so that queueing and taking
/// count its references once each. One owner at a time: a lock, or a thread.
struct Deque<Element: Sendable>: ~Copyable, @unchecked Sendable {
    // SAFETY: the memory is this queue's alone, and whoever has the queue to himself has the memory.
    private var storage: UnsafeMutablePointer<Element>
    private var capacity = 0
    private var head = 0
    private var tail = 0
    /// How often in a row it was emptied with most of its memory untouched.
    private var wastefulTurns = 0

    init() { storage = .allocate(capacity: 0) }

    deinit {
        (storage + head).deinitialize(count: count)
        storage.deallocate()
    }

    var isEmpty: Bool { head == tail }
    var count: Int { tail - head }

    /// Lends the first element; nil when there is none.
    @inline(__always)
    func withFirst<R>(_ body: (borrowing Element) -> R) -> R? { isEmpty ? nil : body(storage[head]) }

    @inline(__always)
    mutating func append(_ element: __owned Element) {
        if tail == capacity { makeRoom() }
        (storage + tail).initialize(to: element)
        tail &+= 1
    }

    /// The first element; there must be one.
    @inline(__always)
    mutating func popFirst() -> Element {
        assert(!isEmpty, "an element is taken once")
        let element = (storage + head).move()
        head &+= 1
        if head == tail { rewind() }
        return element
    }

    /// Takes all that `source` has, behind what is here.
    mutating func takeAll(from source: inout Deque) {
        if isEmpty { return swap(&self, &source) }
        while !source.isEmpty { append(source.popFirst()) }  // ends: one goes a turn
    }

    /// Takes out the first element that is meant; nil when there is none. O(count).
    mutating func remove(where isMeant: (borrowing Element) -> Bool) -> Element? {
        guard let place = (head..<tail).first(where: { isMeant(storage[$0]) }) else { return nil }
        let element = (storage + place).move()
        (storage + place).moveInitialize(from: storage + place + 1, count: tail - place - 1)
        tail -= 1
        return element
    }

    mutating func removeAll() -> [Element] {
        var elements: [Element] = []
        elements.reserveCapacity(count)
        while !isEmpty { elements.append(popFirst()) }  // ends: one goes a turn
        return elements
    }

    mutating func sort(by areInOrder: (Element, Element) -> Bool) {
        var elements = UnsafeMutableBufferPointer(start: storage + head, count: count)
        elements.sort(by: areInOrder)
    }

    @inline(never)
    private mutating func makeRoom() {
        if head > capacity / 2 {
            storage.moveInitialize(from: storage + head, count: count)
        } else {
            moveToStorage(of: max(16, capacity * 2))
        }
        (head, tail) = (0, count)
    }

    /// Empty, so it can begin at the front again; and a burst of long ago need not hold its memory.
    @inline(__always)
    private mutating func rewind() {
        if capacity > 256 { shrinkIfWasteful(tail) }
        (head, tail) = (0, 0)
    }

    @inline(never)
    private mutating func shrinkIfWasteful(_ used: Int) {
        wastefulTurns = used < capacity / 8 ? wastefulTurns + 1 : 0
        if wastefulTurns < 64 { return }
        wastefulTurns = 0
        moveToStorage(of: capacity / 4)
    }

    private mutating func moveToStorage(of newCapacity: Int) {
        let fresh = UnsafeMutablePointer<Element>.allocate(capacity: newCapacity)
        fresh.moveInitialize(from: storage + head, count: count)
        storage.deallocate()
        storage = fresh
        capacity = newCapacity
    }
}
