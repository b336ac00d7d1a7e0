// A 4-ary heap of deadlines in contiguous memory.
//
// Lifecycle of the storage: allocated here, grown by doubling, freed in deinit. One owner, one thread.

/// Slots ordered by (deadline, sequence). The caller numbers the slots densely from zero. A slot is in the heap at most once.
///
/// `insert`, `move` and `remove` are O(log n); `top` is O(1). A node has four children, which fit into one cache line.
struct DeadlineHeap: ~Copyable {
    struct Entry {
        var deadline: Int64
        /// Breaks ties by insertion order. Compared by difference, so that it may wrap around.
        var sequence: UInt32
        var slot: UInt32

        @inline(__always)
        func precedes(_ other: Entry) -> Bool {
            deadline != other.deadline ? deadline < other.deadline : Int32(bitPattern: sequence &- other.sequence) < 0
        }
    }

    private static let absent = UInt32.max

    private(set) var count = 0
    private var capacity = 0
    private var entries: UnsafeMutablePointer<Entry>
    private var positionCount = 0
    /// The index in `entries` of each slot, or `absent`.
    private var positions: UnsafeMutablePointer<UInt32>

    init() {
        entries = .allocate(capacity: 0)
        positions = .allocate(capacity: 0)
    }

    deinit {
        entries.deallocate()
        positions.deallocate()
    }

    var isEmpty: Bool { count == 0 }
    var top: Entry? { count == 0 ? nil : entries[0] }

    func contains(_ slot: UInt32) -> Bool { Int(slot) < positionCount && positions[Int(slot)] != Self.absent }

    /// The deadline of `slot`, which must be in the heap.
    func deadline(of slot: UInt32) -> Int64 { entries[Int(positions[Int(slot)])].deadline }

    mutating func insert(_ slot: UInt32, deadline: Int64, sequence: UInt32) {
        assert(!contains(slot), "a slot is in the heap at most once")
        reservePosition(slot)
        if count == capacity { grow() }
        count += 1
        siftUp(count - 1, Entry(deadline: deadline, sequence: sequence, slot: slot))
    }

    /// Changes the deadline of `slot`, which must be in the heap.
    mutating func move(_ slot: UInt32, deadline: Int64, sequence: UInt32) {
        let index = Int(positions[Int(slot)])
        let entry = Entry(deadline: deadline, sequence: sequence, slot: slot)
        if entry.precedes(entries[index]) { siftUp(index, entry) } else { siftDown(index, entry) }
    }

    /// True if the slot was in the heap.
    @discardableResult
    mutating func remove(_ slot: UInt32) -> Bool {
        guard contains(slot) else { return false }
        let index = Int(positions[Int(slot)])
        positions[Int(slot)] = Self.absent
        count -= 1
        if index == count { return true }
        let moved = entries[count]
        if moved.precedes(entries[index]) { siftUp(index, moved) } else { siftDown(index, moved) }
        return true
    }

    private mutating func siftUp(_ start: Int, _ entry: Entry) {
        var index = start
        while index > 0 {  // ends: the index decreases
            let parent = (index - 1) >> 2
            if !entry.precedes(entries[parent]) { break }
            place(entries[parent], at: index)
            index = parent
        }
        place(entry, at: index)
    }

    private mutating func siftDown(_ start: Int, _ entry: Entry) {
        var index = start
        while true {  // ends: the index increases up to `count`
            let first = index << 2 + 1
            if first >= count { break }
            var least = first
            var child = first + 1
            let end = min(first + 4, count)
            while child < end {
                if entries[child].precedes(entries[least]) { least = child }
                child += 1
            }
            if !entries[least].precedes(entry) { break }
            place(entries[least], at: index)
            index = least
        }
        place(entry, at: index)
    }

    @inline(__always)
    private mutating func place(_ entry: Entry, at index: Int) {
        entries[index] = entry
        positions[Int(entry.slot)] = UInt32(truncatingIfNeeded: index)
    }

    private mutating func grow() {
        let larger = max(16, capacity * 2)
        let storage = UnsafeMutablePointer<Entry>.allocate(capacity: larger)
        storage.moveInitialize(from: entries, count: count)
        entries.deallocate()
        entries = storage
        capacity = larger
    }

    private mutating func reservePosition(_ slot: UInt32) {
        if Int(slot) < positionCount { return }
        let larger = max(16, positionCount * 2, Int(slot) + 1)
        let storage = UnsafeMutablePointer<UInt32>.allocate(capacity: larger)
        storage.moveInitialize(from: positions, count: positionCount)
        (storage + positionCount).initialize(repeating: Self.absent, count: larger - positionCount)
        positions.deallocate()
        positions = storage
        positionCount = larger
    }
}
