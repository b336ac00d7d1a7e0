// Where an item was made, for the description that answers what keeps a loop alive.

/// A place in the source, in one word: every item has one.
struct CreationSite: Sendable, CustomStringConvertible {
    /// The address of the file's name, and below it 16 bits of line. `#fileID` is a literal: its bytes live as long as the program, never
    /// change, and end with a zero (StaticString: "guaranteed to be null-terminated"). Addresses of a program have 48 bits.
    private let word: UInt64

    init(_ file: StaticString, _ line: UInt) {
        precondition(file.hasPointerRepresentation, "the file of an item's making is #fileID, or another string of some length")
        let address = UInt64(UInt(bitPattern: file.utf8Start))
        word = (address >> 48 == 0 ? address << 16 : 0) | UInt64(min(line, 0xFFFF))
    }

    var description: String {
        guard let file = UnsafePointer<CChar>(bitPattern: UInt(word >> 16)) else { return "line \(word & 0xFFFF)" }
        return String(cString: file) + ":\(word & 0xFFFF)"
    }
}
