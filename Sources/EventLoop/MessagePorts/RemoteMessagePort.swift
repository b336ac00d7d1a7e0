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
    /// Any number of threads and tasks may send and ask at the same time; what one thread sends arrives in that order. The other end's death is
    /// noticed at once, without anybody running a loop: requests in progress end with `.becameInvalid`, and `onInvalidation` is called. An object
    /// that is let go of is invalidated. In a child of fork it is invalid. Thread-safe.
    public final class RemoteMessagePort: Sendable {
        public let name: String
        /// More than so many bytes are not sent, and a longer reply ends the connection.
        public let maximumMessageSize: Int
        let connection: RemoteConnection

        /// Connects to the port that has the name. It need not be in a loop yet: what is sent waits for it.
        ///
        /// - Parameters:
        ///   - timeout: how long to wait while the server's queue of new connections is full. Real time.
        ///   - maximumMessageSize: of a request and of a reply, in bytes; both ends should say the same.
        /// - Throws: `.notFound`; `.badName`; `.notPermitted` when the port, or the directory in which it would be, belongs to another user;
        ///   `.sendTimedOut` when the server does not take the connection in time; `.system`.
        public init(
            name: String, timeout: Swift.Duration = .seconds(1), maximumMessageSize: Int = LocalMessagePort.defaultMaximumMessageSize
        ) throws(PortError) {
            precondition(
                maximumMessageSize >= 0 && maximumMessageSize <= Int(Int32.max), "a message has between 0 and 2,147,483,647 bytes")
            let portName = try PortName(name)
            let engine = try PortEngine.shared()
            connection = try RemoteConnection(
                PortRegistration.find(portName, timeout: timeout), engine: engine, maximumLength: maximumMessageSize)
            self.name = name
            self.maximumMessageSize = maximumMessageSize
        }

        deinit { connection.end(.becameInvalid) }

        /// Whether the other end is there, as far as the kernel knows at this moment. One system call. Thread-safe.
        public var isValid: Bool { connection.isValid }

        /// Closes the connection. Requests in progress end with `.becameInvalid`; a second call does nothing. Calls what was given to
        /// `onInvalidation`, on the caller's thread. In a child of fork it does nothing. Thread-safe.
        public func invalidate() { /* DOES CALLOUT */
            connection.end(.becameInvalid)
        }

        /// Called once, when the port has become invalid: on the thread that invalidates it or lets go of it last, or that notices that the
        /// other end has gone, which is the library's own or one that waits for a reply; at once, on the caller's, if it is invalid already.
        /// Must not block: other ports wait for the library's thread. Several calls add up, in order. Thread-safe.
        public func onInvalidation(_ body: @escaping @Sendable () -> Void) { /* DOES CALLOUT */
            connection.onInvalidation(body)
        }

        /// Sends a message that wants no answer. Blocks until there is room for it, `timeout` (real time) at most; zero or less tries once.
        ///
        /// What was sent arrives unless the other end goes away first; whether it was handled the sender does not learn.
        ///
        /// - Throws: `.sendTimedOut`, and then it will not arrive; `.messageTooLarge`; `.invalidPort`; `.becameInvalid`; `.system`.
        public func send(id: Int32, data: [UInt8] = [], timeout: Swift.Duration) throws(PortError) { /* DOES CALLOUT */
            try send(id: id, data: data, descriptors: [], timeout: timeout)
        }

        /// The same, with at most 64 open file descriptors. The receiver gets its own; these stay the caller's.
        public func send(
            id: Int32, data: [UInt8] = [], descriptors: [Int32], timeout: Swift.Duration
        ) throws(PortError) { /* DOES CALLOUT */
            try connection.send(id: id, data: data, descriptors: descriptors, deadline: Self.deadline(timeout))
        }

        /// Sends a request and waits for the reply: the handler's value, nil or not.
        ///
        /// Without `replyMode` the thread blocks. With one, the calling thread's loop runs in that mode again and again until the reply has come,
        /// also while there is no room, so that what else is in the mode is served meanwhile; a stop then ends an inner round only. Use a mode of
        /// your own to have nothing else served. A port that the same thread serves answers only if it is in `replyMode`. Times are real, except
        /// that `replyTimeout` goes by the loop's own clock when it runs; a `replyTimeout` of zero looks once.
        ///
        /// - Throws: `.sendTimedOut`, and then it will not arrive; `.replyTimedOut`, and a reply that comes later is dropped; `.becameInvalid`
        ///   when either end goes away meanwhile; `.invalidPort` when that was before; `.messageTooLarge` for the request or the reply;
        ///   `.protocolViolation`; `.system`.
        public func request(
            id: Int32, data: [UInt8] = [], sendTimeout: Swift.Duration, replyTimeout: Swift.Duration, replyMode: Mode? = nil
        ) throws(PortError) -> [UInt8]? { /* DOES CALLOUT */
            try request(
                id: id, data: data, descriptors: [], sendTimeout: sendTimeout, replyTimeout: replyTimeout, replyMode: replyMode)
        }

        /// The same, with at most 64 open file descriptors. The receiver gets its own; these stay the caller's.
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
                replyMode != .common, "a loop cannot run in the common modes; wait for the reply in one of them, or in a mode of your own")
            let loop = RunLoop.threadsLoop()
            // Before everything else of the mode, as CFMessagePort's.
            let source = CustomSource(order: -100, label: "reply") {}
            let waiter = ReplyWaiter(.loop(loop, source))
            try connection.startRequest(waiter, id: id, data: data, descriptors: descriptors)
            return try connection.runUntilReply(
                waiter, source, loop, replyMode, sendDeadline: Self.deadline(sendTimeout), replyTimeout: replyTimeout)
        }

        /// Sends a request and suspends until the reply has come.
        ///
        /// `timeout` (real time) is for sending and waiting together. A task that is cancelled gives up at once, as if it had passed; one that
        /// was cancelled before sends nothing.
        ///
        /// - Throws: as the call that blocks.
        public func request(id: Int32, data: [UInt8] = [], timeout: Swift.Duration) async throws(PortError) -> [UInt8]? {
            try await request(id: id, data: data, descriptors: [], timeout: timeout)
        }

        /// The same, with at most 64 open file descriptors. The receiver gets its own; these stay the caller's, who keeps them open meanwhile.
        public func request(
            id: Int32, data: [UInt8] = [], descriptors: [Int32], timeout: Swift.Duration
        ) async throws(PortError) -> [UInt8]? {
            try await connection.requestOfTask(id: id, data: data, descriptors: descriptors, deadline: Self.deadline(timeout))
        }

        private static func deadline(_ timeout: Swift.Duration) -> Instant { .now.advanced(by: timeout) }
    }
}
