// A message to a port.

extension RunLoop {
    /// A message to a `Port` (NSPortMessage): an id that sender and receiver agree on, and components.
    ///
    /// A message is a value. Its byte arrays are copied on write, and its ports are references, which the message retains.
    public struct PortMessage: Sendable {
        public enum Component: Sendable {
            case bytes([UInt8])
            case port(Port)
        }

        public var id: UInt32
        /// The receiver gets them in this order. A message may have none.
        public var components: [Component]
        /// The sender's port, to which the receiver sends its reply.
        public var replyPort: Port?

        public init(id: UInt32, components: [Component] = [], replyPort: Port? = nil) {
            (self.id, self.components, self.replyPort) = (id, components, replyPort)
        }
    }
}
