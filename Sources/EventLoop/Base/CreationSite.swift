// Where an item was made, for the description that answers what keeps a loop alive.

struct CreationSite: Sendable, CustomStringConvertible {
    /// `#fileID` is a literal: its bytes live as long as the program.
    let file: StaticString
    let line: UInt32

    init(_ file: StaticString, _ line: UInt) {
        self.file = file
        self.line = UInt32(clamping: line)
    }

    var description: String { "\(file):\(line)" }
}
