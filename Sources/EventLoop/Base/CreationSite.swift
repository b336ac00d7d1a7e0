/// Where an item was created, in one word, because every item stores one.
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
    var isInLibrary: Bool { Self.libraryModules.contains(String(description.prefix { $0 != "/" })) }

    /// The package's modules that may make items for themselves: all but EventLoopFoundation, which makes none; its calls are the program's.
    static var libraryModules: [String] {
        [
            "", "CF", "Datagrams", "HTTP", "Logging", "MessagePorts", "Metrics", "NIO", "Observing", "ServiceLifecycle", "Simulation",
            "Streams", "Supervisor", "TLS", "Testing", "XCTest",
        ].map { "EventLoop" + $0 }
    }

    package var description: String {
        guard let file = UnsafePointer<CChar>(bitPattern: UInt(word >> 16)) else { return "line \(word & 0xFFFF)" }
        return String(cString: file) + ":\(word & 0xFFFF)"
    }
}
