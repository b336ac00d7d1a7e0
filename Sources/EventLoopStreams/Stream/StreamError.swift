// The errors of streams, beside those of sources.

public enum StreamError: Error, Sendable, Equatable {
    case closed, endedEarly, timedOut
    case frameTooLong(limit: Int)
    /// The resolver's answer, with its sentence.
    case hostNotFound(host: String, reason: String)
}
