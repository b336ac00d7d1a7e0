// Where an item was made, for the description that answers what keeps a loop alive.

/// A place in the source, in two words: every item has one.
struct CreationSite: @unchecked Sendable, CustomStringConvertible {
    // SAFETY: `#fileID` is a literal, whose bytes live as long as the program and never change.
    private let file: UnsafePointer<UInt8>
    private let length: UInt32
    private let line: UInt32

    init(_ file: StaticString, _ line: UInt) {
        precondition(file.hasPointerRepresentation, "the file of an item's making is #fileID, or another string of some length")
        self.file = file.utf8Start
        length = UInt32(clamping: file.utf8CodeUnitCount)
        self.line = UInt32(clamping: line)
    }

    var description: String {
        String(decoding: UnsafeBufferPointer(start: file, count: Int(length)), as: UTF8.self) + ":\(line)"
    }
}
