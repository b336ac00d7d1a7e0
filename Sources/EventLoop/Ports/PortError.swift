// What can be wrong with a port.

extension RunLoop {
    /// Why a message could not be sent or answered, or a named port not be made.
    public enum PortError: Error, Sendable, Equatable {
        /// The port is invalid, or became so before the message was in.
        case invalidPort
        /// The other end went away while the caller waited for its reply.
        case becameInvalid
        /// There was no room for the message in time.
        case sendTimedOut
        /// The message was sent, and no reply came in time.
        case replyTimedOut
        /// Nobody has the name.
        case notFound
        /// A live port has the name, in this process or another.
        case nameInUse
        /// Not a name that a port can have.
        case badName(String)
        /// The other end, or the place where names are kept, belongs to another user.
        case notPermitted
        /// The message has that many bytes, which is more than the port takes.
        case messageTooLarge(Int)
        /// The other end sent something that is no message.
        case protocolViolation(String)
        /// The named call failed with that errno.
        case system(operation: String, errno: Int32)
    }
}
