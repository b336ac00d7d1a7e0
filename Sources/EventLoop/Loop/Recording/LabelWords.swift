import Synchronization

/// A label in sixteen words: the number of its bytes, with a bit if it was truncated, and the bytes. Copied, because references would be counted.
enum LabelWords {
    static let maximumBytes = 120
    static let count = 1 + maximumBytes / 8
    private static let cutBit: UInt64 = 1 << 32

    /// How many words a label takes whose first word is `header`.
    @inline(__always) static func used(_ header: UInt64) -> Int { 1 + (Int(header & 0xFFFF) + 7) / 8 }

    /// Writes a label. A bit in the header distinguishes an empty label from no label.
    @inline(never) static func write(_ label: String, to words: UnsafeMutablePointer<Atomic<UInt64>>) {
        var label = label
        label.withUTF8 { bytes in
            var count = bytes.count
            if count > maximumBytes {
                // Room for the three bytes of the mark behind it.
                count = maximumBytes - 3
                // Not inside a character, whose continuation bytes begin with the bits 10.
                while count > 0 && bytes[count] & 0xC0 == 0x80 { count -= 1 }  // ends: at the first byte
            }
            words[0].store(UInt64(count) | 1 << 33 | (count < bytes.count ? cutBit : 0), ordering: .relaxed)
            for index in stride(from: 0, to: count, by: 8) {
                var word: UInt64 = 0
                for byte in 0..<min(8, count - index) { word |= UInt64(bytes[index + byte]) << UInt64(8 * byte) }
                words[1 + index / 8].store(word, ordering: .relaxed)
            }
        }
    }

    /// The label; nil if there is none. Text that another thread was writing over may be anything, and is repaired.
    static func read(_ words: UnsafeMutablePointer<Atomic<UInt64>>) -> String? { read { words[$0].load(ordering: .relaxed) } }

    static func read(_ word: (Int) -> UInt64) -> String? {
        let header = word(0)
        if header == 0 { return nil }
        let count = min(Int(header & 0xFFFF), maximumBytes)
        let bytes = (0..<count).map { UInt8(truncatingIfNeeded: word(1 + $0 / 8) >> UInt64($0 % 8 * 8)) }
        return String(decoding: bytes, as: UTF8.self) + (header & cutBit != 0 ? "…" : "")
    }
}
