// The parts of a request line.

#if HTTP

internal import EventLoopLibC

/// What a request line says, in offsets of the head.
struct RequestLine: Sendable {
    var method = 0..<0
    /// Path and query.
    var path = 0..<0
    /// Of an absolute target.
    var authority: Range<Int>?
    var isHead = false
    /// HTTP/1.0.
    var isOld = false
    /// The offset behind the line.
    var end = 0
    var fieldCount = 0
}

extension UnsafeRawBufferPointer {
    /// The offset of the first `byte` from `start` on.
    func offset(of byte: UInt8, from start: Int) -> Int? {
        guard let baseAddress, start < count, let found = memchr(baseAddress + start, Int32(byte), count - start) else { return nil }
        return UnsafeRawPointer(found) - baseAddress
    }
}

#endif
