// Where an item was created. A loop's description says it, to answer what keeps the loop alive.

/// A source location in one word, because every item stores one.
package struct CreationSite: Sendable, Hashable, CustomStringConvertible {
    /// The upper 48 bits are the address of the file name, the lower 16 bits are the line. `#fileID` is a literal: its bytes live as long
    /// as the program, never change, and end with a zero (StaticString: "guaranteed to be null-terminated"). User addresses have 48 bits.
    let word: UInt64

    /// A site that was stored as a word; nil for zero.
    init?(word: UInt64) {
        if word == 0 { return nil }
        self.word = word
    }

    package init(_ file: StaticString, _ line: UInt) {
        precondition(file.hasPointerRepresentation, "the file argument is a single character; pass #fileID, or a longer string literal")
        let address = UInt64(UInt(bitPattern: file.utf8Start))
        word = (address >> 48 == 0 ? address << 16 : 0) | UInt64(min(line, 0xFFFF))
    }

    /// Whether the library itself made the item.
    var isInLibrary: Bool {
        // The modules that make items for themselves. EventLoopFoundation makes none, and its calls are the program's.
        let rests = ["", "CF", "Datagrams", "HTTP", "MessagePorts", "Metrics", "Simulation", "Streams", "XCTest"]
        let place = description
        return rests.contains { place.hasPrefix("EventLoop\($0)/") }
    }

    package var description: String {
        guard let file = UnsafePointer<CChar>(bitPattern: UInt(word >> 16)) else { return "line \(word & 0xFFFF)" }
        return String(cString: file) + ":\(word & 0xFFFF)"
    }
}
