// Closures in the order in which they were queued.
//
// Lifecycle of the storage: allocated here, grown by doubling, given back in part when it has been far too large for a while, freed in
// deinit. What stands between `head` and `tail` is initialized.

/// First in, first out, in contiguous memory that is used again. A closure is moved in and moved out, so that queueing and performing
/// count its references once each. One owner at a time: the loop's lock, or its thread.
struct WorkQueue: ~Copyable, @unchecked Sendable {
    // SAFETY: the memory is this queue's alone, and whoever has the queue to himself has the memory.
    private var storage: UnsafeMutablePointer<WorkItem>
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
    /// Greater than any other when the queue is empty.
    var firstSequence: UInt64 { isEmpty ? .max : storage[head].sequence }

    @inline(__always)
    mutating func append(_ item: __owned WorkItem) {
        if tail == capacity { makeRoom() }
        (storage + tail).initialize(to: item)
        tail &+= 1
    }

    /// The first closure; there must be one.
    @inline(__always)
    mutating func popFirst() -> WorkItem {
        assert(!isEmpty, "a closure is taken once")
        let item = (storage + head).move()
        head &+= 1
        if head == tail { rewind() }
        return item
    }

    /// Takes all that `source` has, behind what is here.
    mutating func takeAll(from source: inout WorkQueue) {
        if isEmpty { return swap(&self, &source) }
        while !source.isEmpty { append(source.popFirst()) }  // ends: one goes a turn
    }

    /// Takes out the closure that `waiter` waits for. False when it is not here. O(queued).
    mutating func remove(_ waiter: any WorkWaiter) -> Bool {
        guard let place = (head..<tail).first(where: { storage[$0].waiter === waiter }) else { return false }
        (storage + place).deinitialize(count: 1)
        (storage + place).moveInitialize(from: storage + place + 1, count: tail - place - 1)
        tail -= 1
        return true
    }

    mutating func removeAll() -> [WorkItem] {
        var items: [WorkItem] = []
        items.reserveCapacity(count)
        while !isEmpty { items.append(popFirst()) }  // ends: one goes a turn
        return items
    }

    /// Puts closures from several queues into the order in which they were queued.
    mutating func sort() {
        var items = UnsafeMutableBufferPointer(start: storage + head, count: count)
        items.sort { $0.sequence < $1.sequence }
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
        if capacity > 256 { noteUse(tail) }
        (head, tail) = (0, 0)
    }

    @inline(never)
    private mutating func noteUse(_ used: Int) {
        wastefulTurns = used < capacity / 8 ? wastefulTurns + 1 : 0
        if wastefulTurns < 64 { return }
        wastefulTurns = 0
        moveToStorage(of: capacity / 4)
    }

    private mutating func moveToStorage(of newCapacity: Int) {
        let fresh = UnsafeMutablePointer<WorkItem>.allocate(capacity: newCapacity)
        fresh.moveInitialize(from: storage + head, count: count)
        storage.deallocate()
        storage = fresh
        capacity = newCapacity
    }
}
