// The part of an HTTP/1.1 response that the demo's client needs: the status, and where the response ends.

struct Response {
    private static let capacity = 4096
    private static let headEnd: [UInt8] = Array("\r\n\r\n".utf8)
    private static let lengthName: [UInt8] = Array("\r\ncontent-length:".utf8)

    private var bytes = [UInt8](repeating: 0, count: Response.capacity)
    private(set) var count = 0
    /// Head and body; nil until the head is complete.
    private var total: Int?

    enum State { case incomplete, complete, malformed }

    /// Calls `read` with the free space of the buffer, and returns its result.
    mutating func fill(_ read: (UnsafeMutableRawBufferPointer) -> Int) -> Int {
        let start = count
        let received = bytes.withUnsafeMutableBytes { read(UnsafeMutableRawBufferPointer(rebasing: $0[start...])) }
        if received > 0 { count += received }
        return received
    }

    mutating func examine() -> State {
        if total == nil {
            guard let end = find(Response.headEnd, before: count) else {
                return count == Response.capacity ? .malformed : .incomplete
            }
            guard isSuccess, let length = contentLength(before: end), end + 4 + length <= Response.capacity else {
                return .malformed
            }
            total = end + 4 + length
        }
        // One request at a time is in flight, so more than one answer is an error.
        return count == total ? .complete : count > total! ? .malformed : .incomplete
    }

    mutating func clear() {
        (count, total) = (0, nil)
    }

    /// "HTTP/1.1 200 OK": the status starts at the tenth byte.
    private var isSuccess: Bool { count > 12 && bytes[9] == UInt8(ascii: "2") }

    private func contentLength(before end: Int) -> Int? {
        guard let name = find(Response.lengthName, before: end) else { return nil }
        var value = 0
        var digits = 0
        for byte in bytes[(name + Response.lengthName.count)..<end] {
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
    private func find(_ pattern: [UInt8], before end: Int) -> Int? {
        bytes.withUnsafeBufferPointer { bytes in
            pattern.withUnsafeBufferPointer { pattern in
                guard end >= pattern.count else { return nil }
                for start in 0...(end - pattern.count) {
                    var index = 0
                    while index < pattern.count, lowercased(bytes[start + index]) == pattern[index] { index += 1 }
                    if index == pattern.count { return start }
                }
                return nil
            }
        }
    }

    private func lowercased(_ byte: UInt8) -> UInt8 {
        (UInt8(ascii: "A")...UInt8(ascii: "Z")).contains(byte) ? byte | 0x20 : byte
    }
}
