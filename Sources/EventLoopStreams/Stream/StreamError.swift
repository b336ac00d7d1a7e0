// The errors of streams, beside those of sources.

/// Why a call of a byte stream failed.
public enum StreamError: Error, Sendable, Equatable {
    /// The stream was closed, by this side or by an error.
    case closed
    /// The peer ended in the middle of a frame.
    case endedEarly
    /// A timeout passed.
    case timedOut
    /// The peer announced or sent a frame that is longer than the framing permits.
    case frameTooLong(limit: Int)
    /// The resolver's answer, with its sentence.
    case hostNotFound(host: String, reason: String)
}
