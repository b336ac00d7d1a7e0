// A connection to a named port: CFMessagePort's remote end.

internal import CPlatform
public import EventLoop
internal import EventLoopLibC

extension RunLoop {
    /// A connection to a named port of the same user, in this process or another (CFMessagePort's remote end,
    /// `CFMessagePortCreateRemote`).
    ///
    /// Any number of threads and tasks may send messages and requests at the same time; messages from one thread arrive in the order of
    /// sending. If the other end dies, requests in progress fail at once with `.becameInvalid` and the `onInvalidation` closures are
    /// called, even if no loop runs. Releasing the last reference invalidates the port. Thread-safe.
    public final class RemoteMessagePort: Sendable {
        /// The name of the port at the other end.
        public let name: String
        /// The limit of a message's size, in bytes. A longer message is not sent, and a longer reply ends the connection.
        public let maximumMessageSize: Int
        let connection: RemoteConnection

        /// Connects to the port that has the name. The port need not be in a loop yet: messages wait for it.
        ///
        /// Blocks the thread while the server's queue of new connections is full, for `timeout` at most. In async code pass `.zero`, which tries
        /// once, or connect in a closure of `performAsync`, on the loop of a thread that may wait.
        ///
        /// - Parameters:
        ///   - name: that of the port at the other end.
        ///   - timeout: how long to wait, in real time, while the server's queue of new connections is full.
        ///   - maximumMessageSize: the limit for requests and replies, in bytes; both ends should have the same.
        /// - Throws: `.notFound`; `.badName`; `.notPermitted` if the port, or the directory in which it would be, belongs to another user;
        ///   `.sendTimedOut` if the server's queue stays full; `.system`.
        public init(
            name: String, timeout: Swift.Duration = .seconds(1), maximumMessageSize: Int = LocalMessagePort.defaultMaximumMessageSize
        ) throws(PortError) {
            precondition(
                maximumMessageSize >= 0 && maximumMessageSize <= Int(Int32.max),
                "maximumMessageSize must be between 0 and 2,147,483,647 bytes, but is \(maximumMessageSize)")
            let portName = try PortName(name)
            let cancellation = cplatform_hold_cancellation()
            defer { cplatform_resume_cancellation(cancellation) }
            let engine = try PortEngine.shared()
            connection = try RemoteConnection(
                PortRegistration.find(portName, timeout: timeout), to: name, engine: engine, maximumLength: maximumMessageSize)
            self.name = name
            self.maximumMessageSize = maximumMessageSize
        }

        deinit { connection.end(.becameInvalid) }

        /// Whether the other end is open, as the kernel reports it now. One system call. Thread-safe.
        public var isValid: Bool { connection.isValid }

        /// Closes the connection. Requests in progress fail with `.becameInvalid`, and the `onInvalidation` closures are called on the
        /// caller's thread. No-op if the port is invalid. Thread-safe.
        public func invalidate() { /* DOES CALLOUT */
            connection.end(.becameInvalid)
        }

        /// Adds a closure to be called once, when the port becomes invalid. If it is invalid already, calls the closure at once.
        ///
        /// The closures run in the order of their addition, on the thread that invalidates the port, releases it, or notices that the other
        /// end has gone: the library's own thread or one that waits for a reply. They must not block, because other ports wait for the
        /// library's thread. Thread-safe.
        public func onInvalidation(_ body: @escaping @Sendable () -> Void) { /* DOES CALLOUT */
            connection.onInvalidation(body)
        }
    }
}
