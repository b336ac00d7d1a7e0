/// The modes of one loop that an item is in, as a set of mode indices. The first 64 indices need no allocation.
struct ModeSet: Sendable {
    /// The first 64 indices, as bits.
    private(set) var low: UInt64 = 0
    /// Nil and not empty, because a copy counts a reference to an empty array.
    private var high: [UInt64]?
    init(_ only: Int? = nil) { if let only { insert(only) } }
    var isEmpty: Bool { low == 0 && high?.allSatisfy { $0 == 0 } != false }
    @inline(__always) func contains(_ index: Int) -> Bool { index < 64 ? low & (1 &<< UInt64(index)) != 0 : containsHigh(index) }

    @inline(never) private func containsHigh(_ index: Int) -> Bool {
        guard let high, index / 64 <= high.count else { return false }
        return high[index / 64 - 1] & (1 << UInt64(index % 64)) != 0
    }

    /// True if the set did not contain the index.
    @discardableResult
    @inline(__always) mutating func insert(_ index: Int) -> Bool {
        if contains(index) { return false }
        if index < 64 { low |= 1 &<< UInt64(index) } else { insertHigh(index) }
        return true
    }

    @inline(never) private mutating func insertHigh(_ index: Int) {
        let word = index / 64 - 1
        var words = high.take() ?? []
        while words.count <= word { words.append(0) }
        words[word] |= 1 << UInt64(index % 64)
        high = words
    }

    /// True if the set contained the index.
    @discardableResult
    @inline(__always) mutating func remove(_ index: Int) -> Bool {
        if !contains(index) { return false }
        if index < 64 { low &= ~(1 &<< UInt64(index)) } else { removeHigh(index) }
        return true
    }

    @inline(never)
    private mutating func removeHigh(_ index: Int) { high![index / 64 - 1] &= ~(1 << UInt64(index % 64)) }  // the set has the index

    func subtracting(_ other: ModeSet) -> ModeSet {
        var rest = self
        other.forEach { rest.remove($0) }
        return rest
    }

    /// Whether there was ever an index from 64 on.
    @inline(__always) var hasHighWords: Bool { high != nil }

    @inline(__always) func forEach(_ body: (Int) -> Void) {
        Self.forEachBit(of: low, from: 0, body)
        if hasHighWords { forEachHigh(body) }
    }

    @inline(never) func forEachHigh(_ body: (Int) -> Void) {
        for (offset, bits) in (high ?? []).enumerated() { Self.forEachBit(of: bits, from: (offset + 1) * 64, body) }
    }

    @inline(__always) private static func forEachBit(of bits: UInt64, from first: Int, _ body: (Int) -> Void) {
        var word = bits
        while word != 0 {  // ends: each iteration clears a bit
            body(first &+ word.trailingZeroBitCount)
            word &= word - 1
        }
    }
}
