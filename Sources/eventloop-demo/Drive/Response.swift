// The part of an HTTP/1.1 response that the demo's client needs: the status, and where the response ends.

enum Response {
    private static let longest = 4096
    private static let headEnd: [UInt8] = Array("\r\n\r\n".utf8)
    private static let lengthName: [UInt8] = Array("\r\ncontent-length:".utf8)

    enum State { case incomplete, complete, malformed }

    /// One request at a time is in flight, so more than one answer is an error.
    static func examine(_ bytes: UnsafeRawBufferPointer) -> State {
        guard let end = find(headEnd, in: bytes) else { return bytes.count < longest ? .incomplete : .malformed }
        guard isSuccess(bytes), let length = contentLength(UnsafeRawBufferPointer(rebasing: bytes[..<end])) else { return .malformed }
        let total = end + headEnd.count + length
        guard total <= longest, bytes.count <= total else { return .malformed }
        return bytes.count == total ? .complete : .incomplete
    }

    /// "HTTP/1.1 200 OK": the status starts at the tenth byte.
    private static func isSuccess(_ bytes: UnsafeRawBufferPointer) -> Bool { bytes.count > 12 && bytes[9] == UInt8(ascii: "2") }

    private static func contentLength(_ head: UnsafeRawBufferPointer) -> Int? {
        guard let name = find(lengthName, in: head) else { return nil }
        var value = 0
        var digits = 0
        for byte in head[(name + lengthName.count)...] {
            switch byte {
            case UInt8(ascii: " ") where digits == 0: continue
            case UInt8(ascii: "0")...UInt8(ascii: "9") where digits < 6:
                value = value * 10 + Int(byte - UInt8(ascii: "0"))
                digits += 1
            default: return digits > 0 && byte == UInt8(ascii: "\r") ? value : nil
            }
        }
        return digits > 0 ? value : nil
    }

    /// The first occurrence of `pattern` (in lower case), ignoring the case of the text.
    private static func find(_ pattern: [UInt8], in bytes: UnsafeRawBufferPointer) -> Int? {
        guard bytes.count >= pattern.count else { return nil }
        for start in 0...(bytes.count - pattern.count) {
            var index = 0
            while index < pattern.count, lowercased(bytes[start + index]) == pattern[index] { index += 1 }
            if index == pattern.count { return start }
        }
        return nil
    }

    private static func lowercased(_ byte: UInt8) -> UInt8 {
        (UInt8(ascii: "A")...UInt8(ascii: "Z")).contains(byte) ? byte | 0x20 : byte
    }
}
