// Cuts a stream into messages.

/// Cuts a stream into messages, wherever the kernel has cut it into pieces.
///
/// A framing is a value with the state of one stream. Its result must not depend on how the bytes were split on their way:
///
/// ```
/// /// Messages of two bytes.
/// struct Pairs: StreamFraming {
///     mutating func next(in bytes: inout ReceivedBytes, isLast: Bool) throws -> [UInt8]? {
///         bytes.count >= 2 ? bytes.take(2) : nil
///     }
/// }
/// ```
///
/// A framing that must find the end of a message remembers how far it has searched, as `LineFraming` does: a peer that sends one byte at a
/// time makes a search from the beginning quadratic. One that reads a length checks it against a limit before it waits for so many bytes,
/// because a stream keeps all bytes of a message that is not whole.
public protocol StreamFraming: Sendable {
    /// What the framing makes of the bytes: a line, a message.
    associatedtype Frame: Sendable

    /// Returns the next whole message of `bytes`, and consumes it; nil when more bytes must come.
    ///
    /// Called again after each message that it returned, and when more bytes have come. Bytes that it does not consume are at the beginning
    /// of the next call's `bytes`.
    ///
    /// `isLast`: the peer has sent its last byte, and `bytes` has all that remain. If this returns nil then and no byte remains, the stream
    /// ended between two messages. If bytes remain, it ended inside a message, and the caller of the stream gets
    /// `StreamError.endedEarly`.
    ///
    /// An error ends the stream. Throw `StreamError.frameTooLong` for a message beyond the framing's limit.
    mutating func next(in bytes: inout ReceivedBytes, isLast: Bool) throws -> Frame?
}
