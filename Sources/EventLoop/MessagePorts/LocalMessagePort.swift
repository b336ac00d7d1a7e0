// The named end that serves requests: CFMessagePort's local end, as a source.

internal import CPlatform

#if canImport(Glibc)
import Glibc
#elseif canImport(Musl)
import Musl
#else
import Darwin
#endif

extension RunLoop {
    /// The named end that serves requests from other threads and processes of the same user (CFMessagePort's local end,
    /// `CFMessagePortCreateLocal`).
    ///
    /// A source: add it to a loop, in whatever modes it is to serve. Requests that come while other modes run, or before it is added, wait and
    /// hold their senders back. Each call of the handler is one request, counts as a handled source, and runs on the loop's thread; requests
    /// of one client come in the order of sending, clients take turns. The handler's value is the reply: nil, and empty data, arrive as what
    /// they are. Of a message that wants no answer it is dropped.
    ///
    /// The name is taken while the port is valid. Invalidation, from any thread or the handler itself, gives it back and tells every client
    /// before it returns; a request whose handler is running then gets no reply. In a child of fork the port belongs to the parent: the child
    /// cannot serve it, and does not give its name back.
    ///
    /// If the file of its socket is removed, or the directory around it, as at a logout, the port takes its name again as soon as it is served, in
    /// the first place that can be used; its connections go on. If another port has the name by then, this one becomes invalid and its
    /// `failure` says EADDRINUSE. (On Linux; elsewhere the port goes on with the connections that it has.)
    ///
    /// Other users cannot connect. What a client may do to the port, and what it may not, is in docs/message-ports.md. Thread-safe.
    public final class LocalMessagePort: Source, @unchecked Sendable {
        // SAFETY: constants.

        /// The default of what one message may have, in bytes: 16 MiB.
        public static let defaultMaximumMessageSize = 16 << 20

        public let name: String
        /// More than so many bytes are not taken: whoever sends them loses the connection. A longer reply is not sent, and its requester told.
        public let maximumMessageSize: Int
        private let server: PortServer
        private let identity: FileIdentity

        private let handler: HandlerSlot<Handler>

        private struct Handler: Sendable {
            let call: @Sendable (LocalMessagePort, Int32, [UInt8], PassedDescriptors) -> [UInt8]?
        }

        /// Takes the name, from now on and before the port is added to a loop. Descriptors that come with a message are closed.
        ///
        /// - Parameters:
        ///   - name: at most 128 bytes of UTF-8, without NUL; unique for the user, in all processes.
        ///   - maximumMessageSize: of a request and of a reply, in bytes; both ends should say the same.
        ///   - handler: called on the loop's thread with the message's id and data; returns the reply.
        /// - Throws: `.nameInUse` when a live port has the name, in this process or another; `.badName`; `.system`, also when the directory of
        ///   the ports belongs to somebody else. What a process left that has died is taken over.
        public convenience init(
            name: String, maximumMessageSize: Int = defaultMaximumMessageSize,
            label: String? = nil, file: StaticString = #fileID, line: UInt = #line,
            handler: @escaping @Sendable (LocalMessagePort, _ id: Int32, _ data: [UInt8]) -> [UInt8]?
        ) throws(PortError) {
            try self.init(
                name: name, maximumMessageSize: maximumMessageSize, label: label, file: file, line: line,
                descriptorHandler: { port, id, data, _ in handler(port, id, data) })
        }

        /// The same with a handler that is handed the descriptors that came with the message. What it does not take is closed.
        public init(
            name: String, maximumMessageSize: Int = defaultMaximumMessageSize,
            label: String? = nil, file: StaticString = #fileID, line: UInt = #line,
            descriptorHandler: @escaping @Sendable (LocalMessagePort, _ id: Int32, _ data: [UInt8], PassedDescriptors) -> [UInt8]?
        ) throws(PortError) {
            precondition(
                maximumMessageSize >= 0 && maximumMessageSize <= Int(Int32.max), "a message has between 0 and 2,147,483,647 bytes")
            server = try PortServer(try PortName(name), maximumLength: maximumMessageSize)
            do { identity = try FileIdentity.ofPollable(server.set.set) } catch {
                server.withdraw()
                server.end()
                throw .system(operation: "watching a set of descriptors", errno: error.errno)
            }
            self.name = name
            self.maximumMessageSize = maximumMessageSize
            handler = HandlerSlot(Handler(call: descriptorHandler))
            super.init(kind: .watched, label: label, site: CreationSite(file, line))
        }

        deinit {
            // The last release of a port that nobody has invalidated: it is in no loop.
            if isValid { server.withdraw() }
            endByLastRelease()
        }

        override var watch: Watch? {
            Watch(descriptor: server.set.set, wanted: .read, trigger: .level, priority: .default, identity: identity)
        }

        override func serve(_ ready: Readiness) -> Bool { /* DOES CALLOUT */
            let hasServed = server.serve { frame, passed in
                // A port that has ended answers nobody; what was read before is dropped.
                if !isValid { return nil }
                return handler.with { $0.handlers.call(self, frame.id, frame.body, passed) } ?? nil
            }
            if server.hasLostName { end() }
            return hasServed
        }

        /// Another port has the name: this one cannot be found any more.
        private func end() { /* DOES CALLOUT */
            state.withLock { state in
                if state.failure == nil { state.failure = .system(operation: "keeping the name \(name)", errno: EADDRINUSE) }
            }
            invalidate()
        }

        override func didInvalidate() { server.withdraw() }

        override func releaseHandlers() {
            handler.clear()
            server.end()
        }

        override var typeDescription: String { "message port \"\(name)\"" }
    }
}
