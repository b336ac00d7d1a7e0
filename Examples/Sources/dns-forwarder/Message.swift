// A DNS message, as far as a cache has to know it (RFC 1035, section 4).

struct Message {
    /// The whole message.
    private(set) var bytes: [UInt8]
    /// Its only question: the name in small letters, the type and the class.
    let question: [UInt8]
    /// Where the lifetimes of its records are.
    private let lifetimes: [Int]

    /// Nil if it is malformed, or has not one question.
    init?(_ bytes: [UInt8]) {
        guard bytes.count >= 12, Self.word(bytes, 4) == 1 else { return nil }
        guard let nameEnd = Self.endOfName(bytes, 12), nameEnd + 4 <= bytes.count else { return nil }
        let name = bytes[12..<nameEnd].map { (65...90).contains($0) ? $0 + 32 : $0 }
        var (place, lifetimes) = (nameEnd + 4, [Int]())
        let records = Self.word(bytes, 6) + Self.word(bytes, 8) + Self.word(bytes, 10)
        for _ in 0..<records {
            guard let end = Self.endOfName(bytes, place), end + 10 <= bytes.count else { return nil }
            // The field of an OPT record (RFC 6891) means something else.
            if Self.word(bytes, end) != 41 { lifetimes.append(end + 4) }
            place = end + 10 + Self.word(bytes, end + 8)
            guard place <= bytes.count else { return nil }
        }
        (self.bytes, question, self.lifetimes) = (bytes, name + bytes[nameEnd..<nameEnd + 4], lifetimes)
    }

    var id: UInt16 {
        get { UInt16(Self.word(bytes, 0)) }
        set { (bytes[0], bytes[1]) = (UInt8(newValue >> 8), UInt8(newValue & 255)) }
    }
    var isResponse: Bool { bytes[2] & 0x80 != 0 }
    /// A whole answer with records, and no error.
    var isWorthKeeping: Bool { bytes[2] & 0x02 == 0 && bytes[3] & 0x0F == 0 && Self.word(bytes, 6) > 0 }

    /// In seconds: the shortest of its records.
    var lifetime: Int { lifetimes.map { Self.word(bytes, $0) << 16 | Self.word(bytes, $0 + 2) }.min() ?? 0 }

    /// The message when it has been in a cache for so long.
    func aged(_ seconds: Int) -> Message {
        var copy = self
        for place in lifetimes {
            let left = max(0, (Self.word(bytes, place) << 16 | Self.word(bytes, place + 2)) - seconds)
            for byte in 0..<4 { copy.bytes[place + byte] = UInt8(left >> (24 - 8 * byte) & 255) }
        }
        return copy
    }

    private static func word(_ bytes: [UInt8], _ place: Int) -> Int { Int(bytes[place]) << 8 | Int(bytes[place + 1]) }

    /// Labels up to an empty one, or up to a pointer to another name.
    private static func endOfName(_ bytes: [UInt8], _ start: Int) -> Int? {
        var place = start
        while place < bytes.count {  // ends: each turn moves on
            switch bytes[place] {
            case 0: return place + 1
            case 1..<64: place += 1 + Int(bytes[place])
            case 192...255: return place + 2 <= bytes.count ? place + 2 : nil
            default: return nil
            }
        }
        return nil
    }
}
