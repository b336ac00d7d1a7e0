extension RunLoop {
    /// Why a message could not be sent or answered, or why a named port could not be made.
    public enum PortError: Error, Sendable, Equatable, CustomStringConvertible {
        /// The port is invalid, or became invalid before it accepted the message.
        case invalidPort
        /// The other end became invalid while the caller waited for its reply.
        case becameInvalid
        /// The port had no room for the message in time.
        case sendTimedOut
        /// The message was sent, and no reply arrived in time.
        case replyTimedOut
        /// No port has the name.
        case notFound
        /// A live port in this process or another has the name.
        case nameInUse
        /// A port cannot have this name.
        case badName(String)
        /// The other end, or the directory of names, belongs to another user.
        case notPermitted
        /// The message has this many bytes, which is more than the port accepts.
        case messageTooLarge(Int)
        /// The other end sent data that is not a message.
        case protocolViolation(String)
        /// The named operation failed with this errno.
        case system(operation: String, errno: Int32)

        /// One line for a person, with the system's message where there is one, such as `connecting to /run/a: Connection refused (ECONNREFUSED)`.
        public var description: String {
            switch self {
            case .invalidPort: "the port is invalid, or became invalid before it accepted the message"
            case .becameInvalid: "the other end became invalid while the caller waited for its reply"
            case .sendTimedOut: "the port had no room for the message in time"
            case .replyTimedOut: "the message was sent, but no reply arrived in time"
            case .notFound: "no message port has this name"
            case .nameInUse: "a live message port has this name"
            case .badName(let name): "\(quoted(name)) cannot be the name of a message port"
            case .notPermitted: "the other end of the connection, or the directory of the names, belongs to another user"
            case .messageTooLarge(let count): "the message has \(count) bytes, more than the port accepts"
            case .protocolViolation(let reason): "the other end sent data that is not a message: \(reason)"
            case .system(let operation, let errno): "\(operation): \(systemMessage(errno))"
            }
        }
    }
}
