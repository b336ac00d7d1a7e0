// A connection to a named port: CFMessagePort's remote end.

internal import CPlatform

#if canImport(Glibc)
import Glibc
#elseif canImport(Musl)
import Musl
#else
import Darwin
#endif

extension RunLoop {
    /// A connection to a named port of the same user, in this process or another (CFMessagePort's remote end,
    /// `CFMessagePortCreateRemote`).
    ///
    /// Any number of threads and tasks may send messages and requests at the same time; messages from one thread arrive in the order of
    /// sending. If the other end dies, requests in progress fail at once with `.becameInvalid` and the `onInvalidation` closures are
    /// called, even if no loop runs. Releasing the last reference invalidates the port. In a forked child it is invalid. Thread-safe.
    public final class RemoteMessagePort: Sendable {
        public let name: String
        /// The limit of a message's size, in bytes. A longer message is not sent, and a longer reply ends the connection.
        public let maximumMessageSize: Int
        let connection: RemoteConnection

        /// Connects to the port that has the name. The port need not be in a loop yet: messages wait for it.
        ///
        /// - Parameters:
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
            let engine = try PortEngine.shared()
            connection = try RemoteConnection(
                PortRegistration.find(portName, timeout: timeout), engine: engine, maximumLength: maximumMessageSize)
            self.name = name
            self.maximumMessageSize = maximumMessageSize
        }

        deinit { connection.end(.becameInvalid) }

        /// Whether the other end is open, as the kernel reports it now. One system call. Thread-safe.
        public var isValid: Bool { connection.isValid }

        /// Closes the connection. Requests in progress fail with `.becameInvalid`, and the `onInvalidation` closures are called on the
        /// caller's thread. No-op if the port is invalid, and in a forked child. Thread-safe.
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

        /// Sends a one-way message. Blocks until there is room for it, for at most `timeout` in real time; zero or less tries once.
        ///
        /// The message arrives unless the other end goes away first. The sender does not learn whether it was handled.
        ///
        /// - Throws: `.sendTimedOut`, and then the message does not arrive; `.messageTooLarge`; `.invalidPort`; `.becameInvalid`;
        ///   `.system`.
        public func send(id: Int32, data: [UInt8] = [], timeout: Swift.Duration) throws(PortError) { /* DOES CALLOUT */
            try send(id: id, data: data, descriptors: [], timeout: timeout)
        }

        /// The same, with at most 64 file descriptors. The receiver gets copies; the caller still owns these.
        public func send(
            id: Int32, data: [UInt8] = [], descriptors: [Int32], timeout: Swift.Duration
        ) throws(PortError) { /* DOES CALLOUT */
            try connection.send(id: id, data: data, descriptors: descriptors, deadline: Self.deadline(timeout))
        }

        /// Sends a request and waits for the reply: the handler's value, nil or not.
        ///
        /// Without `replyMode` the thread blocks. With one, the calling thread's loop runs in that mode, repeatedly, until the reply has
        /// arrived, also while there is no room for the request. Other items of the mode are served meanwhile; use a mode of your own to
        /// avoid that. A stop ends one of these runs, and not the wait. A port that the same thread serves replies only if it is in
        /// `replyMode`. Times are real, except that `replyTimeout` uses the clock of the loop if it runs. A `replyTimeout` of zero checks
        /// once.
        ///
        /// - Throws: `.sendTimedOut`, and then the request does not arrive; `.replyTimedOut`, and a later reply is dropped;
        ///   `.becameInvalid` if either end goes away meanwhile; `.invalidPort` if it went away before; `.messageTooLarge` for the request
        ///   or the reply; `.protocolViolation`; `.system`.
        public func request(
            id: Int32, data: [UInt8] = [], sendTimeout: Swift.Duration, replyTimeout: Swift.Duration, replyMode: Mode? = nil
        ) throws(PortError) -> [UInt8]? { /* DOES CALLOUT */
            try request(
                id: id, data: data, descriptors: [], sendTimeout: sendTimeout, replyTimeout: replyTimeout, replyMode: replyMode)
        }

        /// The same, with at most 64 file descriptors. The receiver gets copies; the caller still owns these.
        public func request(
            id: Int32, data: [UInt8] = [], descriptors: [Int32], sendTimeout: Swift.Duration, replyTimeout: Swift.Duration,
            replyMode: Mode? = nil
        ) throws(PortError) -> [UInt8]? { /* DOES CALLOUT */
            guard let replyMode else {
                let waiter = ReplyWaiter(.thread)
                try connection.sendRequest(waiter, id: id, data: data, descriptors: descriptors, deadline: Self.deadline(sendTimeout))
                return try connection.awaitReply(waiter, Self.deadline(replyTimeout))
            }
            precondition(
                replyMode != .common,
                "replyMode is .common, but a loop runs in a single mode: pass one of the common modes, or a mode of your own")
            let loop = RunLoop.threadsLoop()
            // Before other sources of the mode, as in CFMessagePort.
            let source = CustomSource(order: -100, label: "reply") {}
            let waiter = ReplyWaiter(.loop(loop, source))
            try connection.startRequest(waiter, id: id, data: data, descriptors: descriptors)
            return try connection.runUntilReply(
                waiter, source, loop, replyMode, sendDeadline: Self.deadline(sendTimeout), replyTimeout: replyTimeout)
        }

        /// Sends a request and suspends until the reply has come.
        ///
        /// `timeout`, in real time, covers sending and waiting. If the task is cancelled, the call fails at once, as if it had timed out.
        /// If it was cancelled before, nothing is sent.
        ///
        /// - Throws: the errors of the blocking call.
        public func request(id: Int32, data: [UInt8] = [], timeout: Swift.Duration) async throws(PortError) -> [UInt8]? {
            try await request(id: id, data: data, descriptors: [], timeout: timeout)
        }

        /// The same, with at most 64 file descriptors. The receiver gets copies; the caller still owns these and keeps them open until the
        /// call returns.
        public func request(
            id: Int32, data: [UInt8] = [], descriptors: [Int32], timeout: Swift.Duration
        ) async throws(PortError) -> [UInt8]? {
            try await connection.requestOfTask(id: id, data: data, descriptors: descriptors, deadline: Self.deadline(timeout))
        }

        private static func deadline(_ timeout: Swift.Duration) -> Instant { .now.advanced(by: timeout) }
    }
}
