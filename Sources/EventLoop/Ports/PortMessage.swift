// What is sent to a port.

extension RunLoop {
    /// A message for a `Port` (NSPortMessage): an id that sender and receiver have agreed on, and whatever belongs to it.
    ///
    /// A value: bytes are shared until somebody changes them, ports are references. A message holds the ports in it.
    public struct PortMessage: Sendable {
        public enum Component: Sendable {
            case bytes([UInt8])
            case port(Port)
        }

        public var id: UInt32
        /// In the order in which the receiver gets them; none at all is a message too.
        public var components: [Component]
        /// Where an answer goes. The sender's own port; the receiver sends to it.
        public var replyPort: Port?

        public init(id: UInt32, components: [Component] = [], replyPort: Port? = nil) {
            (self.id, self.components, self.replyPort) = (id, components, replyPort)
        }
    }
}
