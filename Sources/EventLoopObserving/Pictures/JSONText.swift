// Text that is written as JSON, piece by piece, without Foundation. It is harmless inside a script element, too.

internal import EventLoop

/// Bytes of UTF-8. Appends amortize to no allocation.
struct JSONText {
    private(set) var bytes: [UInt8] = []

    init(reserving capacity: Int) { bytes.reserveCapacity(capacity) }

    var string: String { String(decoding: bytes, as: UTF8.self) }

    /// Syntax, which is written as it is.
    mutating func write(_ syntax: StaticString) {
        // SAFETY: the buffer is valid during the closure, which only copies from it. `\(syntax)` of one scalar has no pointer.
        syntax.withUTF8Buffer { bytes.append(contentsOf: $0) }
    }

    mutating func write(_ number: Int) {
        if number < 0 { bytes.append(UInt8(ascii: "-")) }
        writeDigits(number.magnitude, atLeast: 1)
    }

    mutating func write(_ number: Int64) { write(Int(number)) }

    /// Microseconds with three decimals, as the Trace Event Format wants them.
    mutating func write(microsecondsOf nanoseconds: Int64) {
        if nanoseconds < 0 { bytes.append(UInt8(ascii: "-")) }
        let (whole, fraction) = nanoseconds.magnitude.quotientAndRemainder(dividingBy: 1000)
        writeDigits(UInt(whole), atLeast: 1)
        bytes.append(UInt8(ascii: "."))
        writeDigits(UInt(fraction), atLeast: 3)
    }

    private mutating func writeDigits(_ number: UInt, atLeast count: Int) {
        let first = bytes.count
        var rest = number
        while rest > 0 || bytes.count - first < count {
            bytes.append(UInt8(ascii: "0") + UInt8(truncatingIfNeeded: rest % 10))
            rest /= 10
        }
        bytes[first...].reverse()
    }

    /// A string with its quotes.
    mutating func write(quoted text: String) {
        bytes.append(UInt8(ascii: "\""))
        writeEscaped(text)
        bytes.append(UInt8(ascii: "\""))
    }

    /// What is inside the quotes. Escapes what JSON forbids in strings; what ends a script element or begins a tag, a comment or an entity;
    /// and U+2028 and U+2029, which end a line in older JavaScript. They are E2 80 A8 and E2 80 A9.
    mutating func writeEscaped(_ text: String) {
        for byte in text.utf8 {
            switch byte {
            case UInt8(ascii: "\""), UInt8(ascii: "\\"):
                bytes.append(UInt8(ascii: "\\"))
                bytes.append(byte)
            case 0..<0x20, 0x7F, UInt8(ascii: "<"), UInt8(ascii: ">"), UInt8(ascii: "&"), UInt8(ascii: "'"):
                write("\\u00")
                writeHexadecimal(byte >> 4)
                writeHexadecimal(byte & 15)
            case 0xA8, 0xA9:
                if bytes.count > 1, bytes[bytes.count - 1] == 0x80, bytes[bytes.count - 2] == 0xE2 {
                    bytes.removeLast(2)
                    write("\\u202")
                    bytes.append(byte == 0xA8 ? UInt8(ascii: "8") : UInt8(ascii: "9"))
                } else {
                    bytes.append(byte)
                }
            default: bytes.append(byte)
            }
        }
    }

    private mutating func writeHexadecimal(_ digit: UInt8) {
        bytes.append(digit < 10 ? UInt8(ascii: "0") + digit : UInt8(ascii: "a") + digit - 10)
    }
}
