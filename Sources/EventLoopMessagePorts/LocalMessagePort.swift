// The serving end of a named port: CFMessagePort's local end, as a source.

internal import CPlatform
public import EventLoop
internal import EventLoopLibC

extension RunLoop {
    /// A named port that serves messages from other threads and processes of the same user (CFMessagePort's local end,
    /// `CFMessagePortCreateLocal`).
    ///
    /// A message port is a source: add it to a loop, in the modes in which it serves. Messages that arrive before that, or while other
    /// modes run, wait in the kernel and hold back their senders. Each call of the handler is for one message, runs on the loop's thread,
    /// and counts as a handled source. Messages of one client arrive in the order of sending; clients take turns. The value of the handler
    /// is the reply: nil and empty data are different replies. For a one-way message it is ignored.
    ///
    /// The port has its name from `init` until it is invalidated. Invalidation, from any thread or the handler itself, gives the name back
    /// and disconnects every client before it returns; a request whose handler is running then gets no reply.
    ///
    /// If the file of its socket or the directory of that file is removed, as at a logout, the port takes its name again when it is served
    /// next, in the first usable directory; its connections continue. If another port has the name by then, this one becomes invalid with
    /// EADDRINUSE as its `failure`. (On Linux; elsewhere the port only keeps its connections.)
    ///
    /// Other users cannot connect. docs/message-ports.md says what a client can do to the port. Thread-safe.
    public final class LocalMessagePort: _ModuleSource, @unchecked Sendable {
        // SAFETY: constants.

        /// The default limit of a message's size: 16 MiB.
        public static let defaultMaximumMessageSize = 16 << 20

        /// The name that clients connect to.
        public let name: String
        /// The limit of a message's size, in bytes. A client that sends a longer one is disconnected. A longer reply is not sent, and the
        /// requester gets `.messageTooLarge`.
        public let maximumMessageSize: Int
        private let behavior: LocalPortBehavior

        /// Creates a port and takes the name at once, before the port is added to a loop. Descriptors that come with a message are closed.
        ///
        /// Blocks the thread while another process or thread holds the lock of the ports' directory, usually for microseconds, and for 5 s at most.
        /// In async code, make the port in a closure of `performAsync`, on the loop of a thread that may wait.
        ///
        /// - Parameters:
        ///   - name: at most 128 bytes of UTF-8, without NUL; unique among all processes of the user.
        ///   - maximumMessageSize: the limit for requests and replies, in bytes; both ends should have the same.
        ///   - label: for warnings, recordings and `debugDescription`.
        ///   - file: with `line`, the place that warnings and recordings name.
        ///   - line: see `file`.
        ///   - handler: called on the loop's thread with the message's id and data; returns the reply.
        /// - Throws: `.nameInUse` if a live port has the name, in this process or another; `.badName`; `.system`, also if the directory of
        ///   the ports belongs to another user. The name of a process that has died is taken over.
        public convenience init(
            name: String, maximumMessageSize: Int = defaultMaximumMessageSize,
            label: String? = nil, file: StaticString = #fileID, line: UInt = #line,
            handler: @escaping @Sendable (LocalMessagePort, _ id: Int32, _ data: [UInt8]) -> [UInt8]?
        ) throws(PortError) {
            try self.init(
                name: name, maximumMessageSize: maximumMessageSize, label: label, file: file, line: line,
                descriptorHandler: { port, id, data, _ in handler(port, id, data) })
        }

        /// The same with a handler that gets the descriptors that came with the message. Those that it does not take are closed. Blocks as the
        /// other initializer.
        public init(
            name: String, maximumMessageSize: Int = defaultMaximumMessageSize,
            label: String? = nil, file: StaticString = #fileID, line: UInt = #line,
            descriptorHandler: @escaping @Sendable (LocalMessagePort, _ id: Int32, _ data: [UInt8], PassedDescriptors) -> [UInt8]?
        ) throws(PortError) {
            precondition(
                maximumMessageSize >= 0 && maximumMessageSize <= Int(Int32.max),
                "maximumMessageSize must be between 0 and 2,147,483,647 bytes, but is \(maximumMessageSize)")
            let behavior = try LocalPortBehavior(try PortName(name), maximumMessageSize: maximumMessageSize, .init(call: descriptorHandler))
            self.behavior = behavior
            self.name = name
            self.maximumMessageSize = maximumMessageSize
            super.init(behavior, recordedKind: .messagePort, label: label, site: CreationSite(file, line))
        }

        deinit {
            // A valid port that is released is in no loop.
            if isValid { behavior.server.withdraw() }
            endByLastRelease()
        }
    }
}

/// What the loop does with a port.
private final class LocalPortBehavior: SourceBehavior {
    /// A structure: each access under the lock would wrap a bare closure once more.
    struct Handler: Sendable {
        let call: @Sendable (RunLoop.LocalMessagePort, Int32, [UInt8], RunLoop.PassedDescriptors) -> [UInt8]?
    }

    let server: PortServer
    private let name: PortName
    let identity: FileIdentity
    /// Nil once the port is finished.
    private let handler: LoopLock<Handler?>

    init(_ name: PortName, maximumMessageSize: Int, _ handler: Handler) throws(RunLoop.PortError) {
        server = try PortServer(name, maximumLength: maximumMessageSize)
        do { identity = try FileIdentity.pollable(server.set.set).identity } catch {
            server.withdraw()
            server.end()
            throw .system(operation: "watching the sockets of the message port \(quoted(name.text))", errno: error.errno)
        }
        self.name = name
        self.handler = LoopLock(handler)
    }

    var descriptor: Int32 { server.set.set }

    func serve(_ source: RunLoop.Source, _ ready: Readiness) -> Bool { /* DOES CALLOUT */
        // The initializer of no other class makes this behavior.
        let port = unsafeDowncast(source, to: RunLoop.LocalMessagePort.self)
        let handler = handler.withLockIfOwn { $0 } ?? nil
        let hasServed = server.serve { frame, passed throws(PortServer.NotHandled) in
            // An invalid port does not call its handler; messages that were read before are dropped with their connections.
            guard port.isValid, let handler else { throw PortServer.NotHandled() }
            return handler.call(port, frame.id, frame.body, passed)
        }
        if server.hasLostName { end(port) }
        return hasServed
    }

    /// Invalidates a port that cannot be found any more, because another port has its name.
    private func end(_ port: RunLoop.LocalMessagePort) { /* DOES CALLOUT */
        port.noteFailure(.system(operation: "keeping the name \(quoted(name.text))", errno: EADDRINUSE))
        port.invalidate()
    }

    func endAbandonedCalls() { server.endAbandonedCalls() }

    func didInvalidate() { server.withdraw() }

    func releaseHandlers() { /* DOES CALLOUT */
        // Released outside the lock: it may hold the last reference to an object of the user's.
        let handler = handler.withLockIfOwn { $0.take() } ?? nil
        withExtendedLifetime(handler) {}
        server.end()
    }

    var typeDescription: String { "message port \"\(name.text)\"" }
}
