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
    /// There is no such host, or it has no address. With the resolver's sentence.
    case hostNotFound(host: String, reason: String)
    /// The name servers did not answer, or too many lookups wait: the host may exist, so try again later.
    case nameServiceFailed(host: String, reason: String)
}

extension StreamError: CustomStringConvertible {
    /// What happened, with the values.
    public var description: String {
        switch self {
        case .closed: "the stream is closed"
        case .endedEarly: "the stream ended inside a frame"
        case .timedOut: "the time limit has passed"
        case .frameTooLong(let limit): "a frame is longer than its limit of \(limit) bytes"
        case .hostNotFound(let host, let reason): "no address for \(host): \(reason)"
        case .nameServiceFailed(let host, let reason): "the lookup of \(host) failed: \(reason)"
        }
    }
}
