/// Where a heap's slots are in it: a number for each slot, in a table of the caller's, which may keep other things beside each number.
struct HeapPositions {
    static let absent = UInt32.max
    /// The number of slot 0.
    let first: UnsafeMutableRawPointer
    /// The bytes from one slot's number to the next one's.
    let stride: Int

    @inline(__always) subscript(slot: UInt32) -> UInt32 {
        get { first.load(fromByteOffset: Int(slot) &* stride, as: UInt32.self) }
        nonmutating set { first.storeBytes(of: newValue, toByteOffset: Int(slot) &* stride, as: UInt32.self) }
    }
}

/// Slots ordered by (deadline, sequence). The caller numbers the slots densely from zero, and keeps their positions: each call gets the same table. A
/// slot is in the heap at most once; the position of one that is not is `absent`. `insert`, `move` and `remove` are O(log n); `top` is O(1). A node
/// has four children, which fit into one cache line.
struct DeadlineHeap: ~Copyable {
    struct Entry {
        var deadline: Int64
        /// Breaks ties by insertion order. Compared by difference, so that it may wrap around.
        var sequence: UInt32
        var slot: UInt32

        @inline(__always) func precedes(_ other: Entry) -> Bool {
            deadline != other.deadline ? deadline < other.deadline : Int32(bitPattern: sequence &- other.sequence) < 0
        }
    }

    private var entries = PlainList<Entry>()
    var count: Int { entries.count }
    var isEmpty: Bool { count == 0 }
    var top: Entry? { count == 0 ? nil : entries[0] }

    mutating func insert(_ slot: UInt32, deadline: Int64, sequence: UInt32, _ positions: HeapPositions) {
        assert(positions[slot] == HeapPositions.absent, "a slot is in the heap at most once")
        entries.appendUninitialized()
        siftUp(count - 1, Entry(deadline: deadline, sequence: sequence, slot: slot), positions)
    }

    /// Changes the deadline of `slot`, which must be in the heap.
    mutating func move(_ slot: UInt32, deadline: Int64, sequence: UInt32, _ positions: HeapPositions) {
        let index = Int(positions[slot])
        let entry = Entry(deadline: deadline, sequence: sequence, slot: slot)
        if entry.precedes(entries[index]) { siftUp(index, entry, positions) } else { siftDown(index, entry, positions) }
    }

    /// Removes `slot`, which must be in the heap.
    mutating func remove(_ slot: UInt32, _ positions: HeapPositions) {
        let index = Int(positions[slot])
        assert(index < count && entries[index].slot == slot, "a slot that is in the heap")
        positions[slot] = HeapPositions.absent
        let moved = entries.popLast()!  // `slot` is there
        if index == count { return }
        if moved.precedes(entries[index]) { siftUp(index, moved, positions) } else { siftDown(index, moved, positions) }
    }

    private mutating func siftUp(_ start: Int, _ entry: Entry, _ positions: HeapPositions) {
        var index = start
        while index > 0 {  // ends: the index decreases
            let parent = (index - 1) >> 2
            if !entry.precedes(entries[parent]) { break }
            put(entries[parent], at: index, positions)
            index = parent
        }
        put(entry, at: index, positions)
    }

    private mutating func siftDown(_ start: Int, _ entry: Entry, _ positions: HeapPositions) {
        var index = start
        while true {  // ends: the index increases up to `count`
            let first = index << 2 + 1
            if first >= count { break }
            let least = leastChild(first)
            if !entries[least].precedes(entry) { break }
            put(entries[least], at: index, positions)
            index = least
        }
        put(entry, at: index, positions)
    }

    /// Which of the up to four children that begin at `first` is the least.
    @inline(__always) private func leastChild(_ first: Int) -> Int {
        if first &+ 4 <= count {
            let front = entries[first &+ 1].precedes(entries[first]) ? first &+ 1 : first
            let back = entries[first &+ 3].precedes(entries[first &+ 2]) ? first &+ 3 : first &+ 2
            return entries[back].precedes(entries[front]) ? back : front
        }
        var least = first
        for child in first &+ 1..<max(count, first &+ 1) where entries[child].precedes(entries[least]) { least = child }
        return least
    }

    @inline(__always) private mutating func put(_ entry: Entry, at index: Int, _ positions: HeapPositions) {
        entries[index] = entry
        positions[entry.slot] = UInt32(truncatingIfNeeded: index)
    }
}
