// The errors of ports.

extension RunLoop {
    /// Why a message could not be sent or answered, or why a named port could not be made.
    public enum PortError: Error, Sendable, Equatable {
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
    }
}
