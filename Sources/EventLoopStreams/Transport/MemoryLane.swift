// One direction of a connection in memory.

/// Bytes on their way from one end to the other, in a buffer of fixed size.
struct MemoryLane: Sendable {
    private var bytes: [UInt8] = []
    /// So many of `bytes` have been read.
    private var head = 0
    private let capacity: Int
    private var pieces: MemoryPieces?
    /// Since the connection was made.
    private(set) var written = 0
    /// The writing end sends no more.
    private(set) var isFinished = false
    /// The reading end is closed.
    var isAbandoned = false
    /// What is on its way does not arrive for now.
    var isHeld = false
    /// After so many bytes in all, the reading end sees the end, and further bytes vanish.
    private var endsAfter = Int.max
    /// After so many bytes in all, the connection is reset.
    private var resetsAfter = Int.max

    init(capacity: Int, pieces: MemoryPieces?) { (self.capacity, self.pieces) = (capacity, pieces) }

    /// How many bytes wait to be read.
    var count: Int { bytes.count - head }

    /// Whether the connection is to be reset because enough has been written.
    var isResetDue: Bool { written >= resetsAfter }

    var canRead: Bool { !isHeld && (count > 0 || isFinished) }

    /// Beyond its end, a direction takes everything.
    var canWrite: Bool { count < capacity || isAbandoned || written >= endsAfter }

    mutating func finish() { isFinished = true }

    mutating func end(after count: Int) {
        endsAfter = max(count, written)
        if written == endsAfter { isFinished = true }
    }

    mutating func reset(after count: Int) { resetsAfter = max(count, written) }

    /// How many bytes the lane takes of this part.
    mutating func write(_ part: UnsafeRawBufferPointer) -> Int {
        if written >= endsAfter { return part.count }
        let count = min(part.count, capacity - count, endsAfter - written, resetsAfter - written)
        bytes.append(contentsOf: part.prefix(count))
        written += count
        if written >= endsAfter { isFinished = true }
        return count
    }

    /// The end is at the reader's side, perhaps behind bytes that it has not read.
    var hasArrivedEnd: Bool { isFinished && !isHeld }

    /// All that has been written has arrived.
    mutating func splitNoMore() { pieces = nil }

    /// A pass of the reading end's loop begins: it may read the next piece.
    mutating func beginPass() { pieces?.beginPass() }

    /// How many bytes were moved into `space`; nil if the reading end has to wait for its next pass.
    mutating func read(into space: UnsafeMutableRawBufferPointer) -> Int? {
        let available = isHeld ? 0 : count
        let granted = min(space.count, available, pieces?.granted ?? .max)
        if granted == 0 { return available > 0 || pieces?.delaysEnd == true ? nil : 0 }
        bytes.withUnsafeBytes { space.copyMemory(from: UnsafeRawBufferPointer(rebasing: $0[head..<(head + granted)])) }
        head += granted
        pieces?.take(granted)
        if head == bytes.count {
            bytes.removeAll(keepingCapacity: true)
            head = 0
        } else if head >= 4_096 && head * 2 >= bytes.count {
            bytes.removeFirst(head)
            head = 0
        }
        return granted
    }
}

/// Where a direction is split: the same seed gives the same places, whatever the sizes of the writes.
package struct MemoryPieces: Sendable {
    private var random: SeededRandom
    /// How many bytes may be read in this pass.
    private(set) var granted = 0
    /// The end of the stream comes in a pass of its own.
    private let endsApart: Bool
    private var hasRead = false

    package init(seed: UInt64) {
        random = SeededRandom(seed: seed)
        endsApart = seed & 2 == 0
    }

    var delaysEnd: Bool { endsApart && hasRead }

    mutating func beginPass() {
        hasRead = false
        if granted > 0 { return }
        // Short pieces are as frequent as long ones, up to 2 KiB.
        let size = 1 << (random.next() % 12)
        granted = 1 + Int(random.next() % UInt64(size))
    }

    mutating func take(_ count: Int) {
        granted -= count
        hasRead = true
    }
}
