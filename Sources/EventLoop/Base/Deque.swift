/// First in, first out, in contiguous memory (decision 48). An element is moved in and out: retained and released once. Owned by a lock or a thread.
/// Lifecycle of the storage: allocated with the first element, doubled, shrunk after it has been far too large for a while, freed in deinit.
struct Deque<Element: Sendable>: ~Copyable, @unchecked Sendable {
    // SAFETY: nothing else refers to the memory, so exclusive access to the queue is exclusive access to the memory.
    private var storage: UnsafeMutablePointer<Element>
    private var capacity = 0
    /// The elements from `head` up to `tail` are initialized.
    private var head = 0
    private var tail = 0
    /// How many times in a row the queue was emptied without most of its memory having been used.
    private var wastefulTurns = 0
    /// The address is never read. A loop has several queues that stay empty.
    init() { storage = UnsafeMutablePointer(bitPattern: MemoryLayout<Element>.alignment)! }

    deinit {
        (storage + head).deinitialize(count: count)
        freeStorage()
    }

    var isEmpty: Bool { head == tail }
    var count: Int { tail - head }
    @inline(__always) func withFirst<R>(_ body: (borrowing Element) -> R) -> R? { isEmpty ? nil : body(storage[head]) }

    @inline(__always) mutating func append(_ element: __owned Element) {
        if tail == capacity { makeRoom() }
        (storage + tail).initialize(to: element)
        tail &+= 1
    }

    /// Removes the first element. The queue must not be empty.
    @inline(__always) mutating func popFirst() -> Element {
        assert(!isEmpty, "popFirst needs an element")
        let element = (storage + head).move()
        head &+= 1
        if head == tail { rewind() }
        return element
    }

    /// Moves all elements of `source` to the end of this queue.
    mutating func takeAll(from source: inout Deque) {
        if isEmpty { return swap(&self, &source) }
        while !source.isEmpty { append(source.popFirst()) }  // ends: each iteration removes an element
    }

    mutating func removeAll() -> [Element] { (0..<count).map { _ in popFirst() } }

    mutating func sort(by areInOrder: (Element, Element) -> Bool) {
        var elements = UnsafeMutableBufferPointer(start: storage + head, count: count)
        elements.sort(by: areInOrder)
    }

    @inline(never) private mutating func makeRoom() {
        if head > capacity / 2 {
            storage.moveInitialize(from: storage + head, count: count)
        } else {
            moveToStorage(of: max(16, capacity * 2))
        }
        (head, tail) = (0, count)
    }

    /// Called when the queue is empty: starts again at the front, and gives back memory that only an old burst has needed.
    @inline(__always) private mutating func rewind() {
        if capacity > 256 { shrinkIfWasteful(tail) }
        (head, tail) = (0, 0)
    }

    @inline(never) private mutating func shrinkIfWasteful(_ used: Int) {
        wastefulTurns = used < capacity / 8 ? wastefulTurns + 1 : 0
        if wastefulTurns < 64 { return }
        wastefulTurns = 0
        moveToStorage(of: capacity / 4)
    }

    private mutating func moveToStorage(of newCapacity: Int) {
        let fresh = UnsafeMutablePointer<Element>.allocate(capacity: newCapacity)
        fresh.moveInitialize(from: storage + head, count: count)
        freeStorage()
        (storage, capacity) = (fresh, newCapacity)
    }

    private func freeStorage() { if capacity > 0 { storage.deallocate() } }
}
