// Received bytes that nobody has taken yet.
//
// Lifecycle of the memory: allocated when bytes come, freed when the last of them is taken (a small piece is kept for the next ones) or with
// the buffer.

/// A contiguous queue of bytes: appended at its end, taken from its beginning.
struct InputBuffer: ~Copyable, @unchecked Sendable {
    // SAFETY: the buffer owns its memory, and its user guards it by a lock.
    private var base: UnsafeMutableRawPointer?
    private var capacity = 0
    private var start = 0
    private var end = 0

    /// An empty buffer keeps no more than this.
    private static let keptCapacity = 1_024
    private static let smallestCapacity = 256

    init() {}

    deinit { base?.deallocate() }

    var count: Int { end &- start }
    var isEmpty: Bool { start == end }

    /// Valid until the buffer changes.
    var bytes: UnsafeRawBufferPointer {
        base.map { UnsafeRawBufferPointer(start: $0 + start, count: count) } ?? UnsafeRawBufferPointer(start: nil, count: 0)
    }

    mutating func append(_ bytes: UnsafeRawBufferPointer) {
        if bytes.isEmpty { return }
        reserve(bytes.count).copyMemory(from: bytes)
        end += bytes.count
    }

    /// Space behind the last byte, for `commit`. Valid until the buffer changes.
    mutating func reserve(_ size: Int) -> UnsafeMutableRawBufferPointer {
        if capacity - end < size { makeRoom(size) }
        return UnsafeMutableRawBufferPointer(start: base! + end, count: capacity - end)  // has a capacity now
    }

    /// The first `count` bytes of the reserved space belong to the buffer from now on.
    mutating func commit(_ count: Int) { end += count }

    /// All of the present bytes come before those of the buffer.
    mutating func prepend(_ earlier: consuming InputBuffer) {
        if earlier.isEmpty { return }
        earlier.append(bytes)
        self = earlier
    }

    mutating func dropFirst(_ count: Int) {
        precondition(count <= self.count, "\(count) of \(self.count) bytes were consumed: the bytes that were shown have been replaced")
        start += count
        if isEmpty { clear() }
    }

    mutating func take(_ count: Int) -> [UInt8] {
        let taken = [UInt8](bytes.prefix(count))
        dropFirst(count)
        return taken
    }

    mutating func removeAll() {
        start = end
        clear()
    }

    private mutating func clear() {
        (start, end) = (0, 0)
        if capacity <= Self.keptCapacity { return }
        base?.deallocate()
        (base, capacity) = (nil, 0)
    }

    /// Doubles, so that the cost of a byte is constant however small the pieces are.
    private mutating func makeRoom(_ size: Int) {
        let held = count
        if held + size <= capacity && start >= held {
            base!.copyMemory(from: base! + start, byteCount: held)  // does not overlap; has a capacity
        } else {
            let larger = max(held + size, capacity * 2, Self.smallestCapacity)
            let memory = UnsafeMutableRawPointer.allocate(byteCount: larger, alignment: 16)
            if let base {
                memory.copyMemory(from: base + start, byteCount: held)
                base.deallocate()
            }
            (base, capacity) = (memory, larger)
        }
        (start, end) = (0, held)
    }
}
