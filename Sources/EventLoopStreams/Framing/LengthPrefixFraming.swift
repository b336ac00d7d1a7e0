// Messages behind their length.

/// A length of 1 to 8 bytes, big-endian and without a sign, then so many bytes.
///
/// A length beyond `limit` throws `StreamError.frameTooLong` as soon as it has come: nothing is allocated for the message, and no byte of it
/// is waited for. A message without bytes is an empty array.
public struct LengthPrefixFraming: StreamFraming {
    private let lengthBytes: Int
    private let limit: Int

    /// `lengthBytes`: the size of the length, 1 to 8. `limit` bytes, not counting the length, is the longest message; at least 1. A limit
    /// that the length cannot express never applies.
    public init(lengthBytes: Int = 4, limit: Int = 16 << 20) {
        precondition((1...8).contains(lengthBytes), "LengthPrefixFraming: a length has 1 to 8 bytes, not \(lengthBytes)")
        precondition(limit > 0, "LengthPrefixFraming: the limit of a message is \(limit) bytes; it must be at least 1")
        (self.lengthBytes, self.limit) = (lengthBytes, limit)
    }

    public mutating func next(in bytes: inout ReceivedBytes, isLast: Bool) throws(StreamError) -> [UInt8]? {
        guard bytes.count >= lengthBytes else { return nil }
        var length: UInt64 = 0
        for byte in bytes.remaining[..<lengthBytes] { length = length << 8 | UInt64(byte) }
        guard let length = Int(exactly: length), length <= limit else { throw StreamError.frameTooLong(limit: limit) }
        guard bytes.count - lengthBytes >= length else { return nil }
        bytes.consume(lengthBytes)
        return bytes.take(length)
    }
}
