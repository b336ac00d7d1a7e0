// What a stream has received and its handler or framing has not consumed.

internal import CStreams

/// What a stream has received and nobody has consumed yet: contiguous, and visible in place.
///
/// A value is valid during the call that receives it: bytes that must live longer are taken. Bytes that remain are at the beginning of the
/// next value, with what came meanwhile behind them. Consuming is O(1); taking copies what it returns.
public struct ReceivedBytes: ~Copyable {
    private let start: UnsafeRawPointer
    private let end: Int
    private var offset = 0
    private let positionOfStart: UInt64?
    /// Allocated by this value; nil if the bytes belong to a stream.
    private let owned: UnsafeMutableRawBufferPointer?

    /// The peer has sent its last byte: nothing comes after these.
    public let isLast: Bool

    /// A copy of `bytes`, for tests of framings and handlers.
    public init(_ bytes: [UInt8], isLast: Bool = false) {
        // One byte more, so that there is an address for no bytes.
        let owned = UnsafeMutableRawBufferPointer.allocate(byteCount: bytes.count + 1, alignment: 1)
        owned.copyBytes(from: bytes)
        // SAFETY: `owned` is not empty, so it has an address; `deinit` frees it.
        start = UnsafeRawPointer(owned.baseAddress.unsafelyUnwrapped)
        end = bytes.count
        positionOfStart = nil
        self.owned = owned
        self.isLast = isLast
    }

    /// The bytes of a stream, which must stay where they are while the value exists. `position`: how many bytes of the stream were consumed
    /// before the first of these, if the stream knows it. Framings learn from it that bytes were consumed by another caller.
    package init(viewing bytes: UnsafeRawBufferPointer, isLast: Bool, at position: UInt64? = nil) {
        // SAFETY: the address of an empty buffer is never read.
        start = bytes.baseAddress ?? UnsafeRawPointer(bitPattern: 1).unsafelyUnwrapped
        end = bytes.count
        positionOfStart = position
        owned = nil
        self.isLast = isLast
    }

    deinit { owned?.deallocate() }

    /// The number of bytes that are not consumed.
    public var count: Int { end - offset }

    /// The number of bytes that this value had at the beginning and has not any more.
    package var consumedCount: Int { offset }

    /// How many bytes of the stream were consumed before the first of these; nil if that is not known.
    var position: UInt64? { positionOfStart.map { $0 + UInt64(offset) } }

    /// Calls `body` with the bytes in place. The pointer is valid during the call.
    public func withUnsafeBytes<R, Failure>(
        _ body: (UnsafeRawBufferPointer) throws(Failure) -> R
    ) throws(Failure) -> R { /* DOES CALLOUT */
        try body(remaining)
    }

    // SAFETY: for callers in this module that use the pointer only while `self` exists.
    var remaining: UnsafeRawBufferPointer { UnsafeRawBufferPointer(start: start + offset, count: count) }

    /// Drops the first `count` bytes. A precondition failure if there are not so many.
    public mutating func consume(_ count: Int) {
        precondition(count >= 0, "ReceivedBytes: cannot consume \(count) bytes; the number must not be negative")
        precondition(count <= self.count, "ReceivedBytes: cannot consume \(count) bytes; only \(self.count) have been received")
        offset += count
    }

    /// Returns the first `count` bytes, and consumes them. A precondition failure if there are not so many. Copies the bytes.
    public mutating func take(_ count: Int) -> [UInt8] {
        let bytes = remaining
        consume(count)
        return Array(UnsafeRawBufferPointer(rebasing: bytes[..<count]))
    }

    /// Returns the next line without its LF or CRLF, and consumes both.
    ///
    /// Nil if no LF has come yet. Then a handler compares `count` with the longest line that it accepts: without a limit, a peer that never
    /// sends LF stops at `receiveLimit`, and the stream waits for it forever. When `isLast` is true, the last line may lack its LF. Invalid
    /// UTF-8 is replaced by U+FFFD.
    public mutating func takeLine() -> String? {
        guard let length = firstIndex(of: .lineFeed) else {
            guard isLast && count > 0 else { return nil }
            return takeText(count, thenConsume: 0)
        }
        return takeLine(to: length)
    }

    // MARK: For framings

    /// The offset of the first `byte` among the bytes from `first` up to `limit`.
    func firstIndex(of byte: UInt8, from first: Int = 0, upTo limit: Int = .max) -> Int? {
        let bytes = remaining
        let count = min(bytes.count, limit) - first
        guard count > 0, let found = cstreams_find(bytes.baseAddress.unsafelyUnwrapped + first, count, byte) else { return nil }
        return found - bytes.baseAddress.unsafelyUnwrapped
    }

    /// The length of the line before the LF at `lineFeed`: a CR there belongs to the end of the line.
    func lengthOfLine(to lineFeed: Int) -> Int {
        lineFeed > 0 && remaining[lineFeed - 1] == .carriageReturn ? lineFeed - 1 : lineFeed
    }

    /// Takes the line before the LF at `lineFeed`.
    mutating func takeLine(to lineFeed: Int) -> String {
        let length = lengthOfLine(to: lineFeed)
        return takeText(length, thenConsume: lineFeed + 1 - length)
    }

    /// Takes `count` bytes as text, and drops `terminator` bytes behind them.
    mutating func takeText(_ count: Int, thenConsume terminator: Int) -> String {
        let text = String(decoding: UnsafeRawBufferPointer(rebasing: remaining[..<count]), as: UTF8.self)
        consume(count + terminator)
        return text
    }
}

extension UInt8 {
    static let lineFeed = UInt8(ascii: "\n")
    static let carriageReturn = UInt8(ascii: "\r")
}
