extension RunLoop {
    /// A message to a `Port` (NSPortMessage): an id that sender and receiver agree on, and components.
    ///
    /// A message is a value. Its byte arrays are copied on write, and its ports are references, which the message retains.
    public struct PortMessage: Sendable {
        /// A part of a message.
        public enum Component: Sendable {
            /// Data, which sender and receiver share until one of them changes it.
            case bytes([UInt8])
            /// A port to which the receiver may send.
            case port(Port)
        }

        /// Says what the message means. The loop does not look at it.
        public var id: UInt32
        /// The receiver gets them in this order. A message may have none.
        public var components: [Component]
        /// The sender's port, to which the receiver sends its reply.
        public var replyPort: Port?

        /// Makes a message. It is not sent yet.
        public init(id: UInt32, components: [Component] = [], replyPort: Port? = nil) {
            (self.id, self.components, self.replyPort) = (id, components, replyPort)
        }
    }
}
