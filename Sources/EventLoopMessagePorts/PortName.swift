// The names of message ports, and the names of their files.

internal import EventLoop

/// A valid name. Pure.
struct PortName: Sendable, Equatable {
    static let limit = 128
    /// Longer file names are truncated, and end in a hash of the whole name.
    private static let plainLimit = 40
    private static let prefixLength = 16

    let text: String

    /// - Throws: `.badName` if the name is empty, has a NUL, or has more than 128 bytes.
    init(_ text: String) throws(RunLoop.PortError) {
        let bytes = text.utf8
        if bytes.isEmpty || bytes.count > Self.limit || bytes.contains(0) { throw .badName(text) }
        self.text = text
    }

    /// The name of the file, which is the same in every process. Letters, digits and `-_.` stay, other bytes become `%` and two digits. It
    /// is never `.` or `..`, has no slash, and at most 49 bytes, because a socket's address has room for about a hundred, including the
    /// directory.
    var fileName: String {
        var escaped: [UInt8] = []
        for (index, byte) in text.utf8.enumerated() {
            if Self.isPlain(byte) && !(index == 0 && byte == UInt8(ascii: ".")) {
                escaped.append(byte)
            } else {
                escaped += [UInt8(ascii: "%"), Self.digit(byte >> 4), Self.digit(byte & 15)]
            }
        }
        if escaped.count <= Self.plainLimit { return String(decoding: escaped, as: UTF8.self) }
        // Plain names have their tildes escaped, so no truncated name equals a plain one.
        return String(decoding: escaped.prefix(Self.prefixLength) + [UInt8(ascii: "~")] + hashDigits, as: UTF8.self)
    }

    private static func isPlain(_ byte: UInt8) -> Bool {
        switch byte {
        case UInt8(ascii: "a")...UInt8(ascii: "z"), UInt8(ascii: "A")...UInt8(ascii: "Z"), UInt8(ascii: "0")...UInt8(ascii: "9"): true
        case UInt8(ascii: "-"), UInt8(ascii: "_"), UInt8(ascii: "."): true
        default: false
        }
    }

    private static func digit(_ value: UInt8) -> UInt8 { Array("0123456789abcdef".utf8)[Int(value)] }

    /// FNV-1a with 128 bits. It prevents accidental collisions. Deliberate ones gain nothing, because the same user may take any name
    /// anyway.
    private var hashDigits: [UInt8] {
        var hash: UInt128 = 0x6c62_272e_07bb_0142_62b8_2175_6295_c58d
        for byte in text.utf8 { hash = (hash ^ UInt128(byte)) &* 0x0000_0000_0100_0000_0000_0000_0000_013b }
        return (0..<32).map { Self.digit(UInt8(truncatingIfNeeded: hash >> UInt128(124 - 4 * $0)) & 15) }
    }
}
