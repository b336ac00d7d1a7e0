// Lines of text.

/// Lines without their LF or CRLF. The last one may lack it.
///
/// A CR that no LF follows is part of its line. Invalid UTF-8 is replaced by U+FFFD. A line with more than `limit` bytes, not counting its LF
/// or CRLF, throws `StreamError.frameTooLong`, as soon as so many bytes have come. Each byte is searched once.
public struct LineFraming: StreamFraming {
    private let limit: Int
    /// So many of the bytes that remained after the last call are no LF.
    private var searched = 0
    /// Where these bytes begin in the stream. They are elsewhere if another caller has consumed some of them.
    private var position: UInt64?

    /// `limit` bytes is the longest line; at least 1.
    public init(limit: Int = 65_536) {
        precondition(limit > 0, "LineFraming: the limit of a line is \(limit) bytes; it must be at least 1")
        self.limit = limit
    }

    public mutating func next(in bytes: inout ReceivedBytes, isLast: Bool) throws(StreamError) -> String? {
        if bytes.position != position { searched = 0 }
        // The LF of the longest line is the second byte behind it, after a CR.
        let searchLimit = limit > .max - 2 ? .max : limit + 2
        if let lineFeed = bytes.firstIndex(of: .lineFeed, from: searched, upTo: searchLimit) {
            guard bytes.lengthOfLine(to: lineFeed) <= limit else { throw StreamError.frameTooLong(limit: limit) }
            searched = 0
            defer { position = bytes.position }
            return bytes.takeLine(to: lineFeed)
        }
        guard bytes.count <= limit || mayBeWhole(bytes, isLast: isLast) else { throw StreamError.frameTooLong(limit: limit) }
        searched = isLast ? 0 : bytes.count
        defer { position = bytes.position }
        return isLast && bytes.count > 0 ? bytes.takeText(bytes.count, thenConsume: 0) : nil
    }

    /// Whether the bytes are the longest line and a CR, whose LF may come.
    private func mayBeWhole(_ bytes: borrowing ReceivedBytes, isLast: Bool) -> Bool {
        !isLast && bytes.count - 1 == limit && bytes.remaining[limit] == .carriageReturn
    }
}
