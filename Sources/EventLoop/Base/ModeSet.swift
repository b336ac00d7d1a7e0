// The modes of one loop that an item is in, as a set of mode indices. The first 64 indices need no allocation.

struct ModeSet: Sendable {
    private var low: UInt64 = 0
    private var high: [UInt64] = []

    var isEmpty: Bool { low == 0 && high.allSatisfy { $0 == 0 } }

    @inline(__always)
    func contains(_ index: Int) -> Bool { index < 64 ? low & (1 &<< UInt64(index)) != 0 : containsHigh(index) }

    @inline(never)
    private func containsHigh(_ index: Int) -> Bool {
        let word = index / 64 - 1
        return word < high.count && high[word] & (1 << UInt64(index % 64)) != 0
    }

    /// True if the set did not contain the index.
    @inline(__always)
    @discardableResult
    mutating func insert(_ index: Int) -> Bool {
        if contains(index) { return false }
        if index < 64 { low |= 1 &<< UInt64(index) } else { insertHigh(index) }
        return true
    }

    @inline(never)
    private mutating func insertHigh(_ index: Int) {
        let word = index / 64 - 1
        while high.count <= word { high.append(0) }
        high[word] |= 1 << UInt64(index % 64)
    }

    /// True if the set contained the index.
    @inline(__always)
    @discardableResult
    mutating func remove(_ index: Int) -> Bool {
        if !contains(index) { return false }
        if index < 64 { low &= ~(1 &<< UInt64(index)) } else { removeHigh(index) }
        return true
    }

    @inline(never)
    private mutating func removeHigh(_ index: Int) { high[index / 64 - 1] &= ~(1 << UInt64(index % 64)) }

    /// The first 64 indices, as bits, and whether there was ever another one.
    @inline(__always)
    var lowWord: UInt64 { low }
    @inline(__always)
    var hasHighWords: Bool { !high.isEmpty }

    func forEach(_ body: (Int) -> Void) {
        var word = low
        while word != 0 {  // ends: each iteration clears a bit
            body(word.trailingZeroBitCount)
            word &= word - 1
        }
        if !high.isEmpty { forEachHigh(body) }
    }

    /// The same for the indices from 64 on.
    @inline(never)
    func forEachHigh(_ body: (Int) -> Void) {
        for (offset, bits) in high.enumerated() {
            var word = bits
            while word != 0 {  // ends: each iteration clears a bit
                body((offset + 1) * 64 + word.trailingZeroBitCount)
                word &= word - 1
            }
        }
    }
}
