// The public face of a datagram socket.

internal import CPlatform
public import EventLoop

/// A datagram socket (UDP or Unix) on a loop, in modes, like a source. Handlers or `async` calls, never both on the same socket.
///
/// ```
/// let socket = try DatagramSocket(boundTo: .ipv4(host: "127.0.0.1", port: 9000), on: loop)
/// socket.onReceive { socket, datagram in socket.send(datagram.bytes, to: datagram.peer) }
/// ```
///
/// **Order.** Datagrams are delivered in the order of their arrival, each once. A datagram that is longer than `maximumSize` is truncated and
/// marked.
///
/// **Limits.** What tasks have not taken is limited by `receiveLimit`, what the kernel has not taken by `sendLimit`. What exceeds a limit is
/// dropped and counted in `statistics`.
///
/// **Errors.** A connected socket hears what the kernel learns of its peer, such as a port that nobody has: the next `write` throws it, and the
/// socket goes on.
///
/// **The end.** `close()`, the release of the last reference to the socket, and the end of its loop end the socket, and remove the file that
/// it has made for a Unix path. A socket is retained by its `datagrams` and by tasks that use it, not by its handler or its loop.
///
/// Thread-safe. See `CFSocketCreate` with `SOCK_DGRAM`.
public final class DatagramSocket: Sendable {
    let core: DatagramCore

    /// Makes a socket that exchanges datagrams with everybody.
    ///
    /// - Parameters:
    ///   - address: with port 0, the kernel chooses one, which `localAddress` then has. A path must not exist.
    ///   - loop: where handlers are called.
    ///   - mode: in which the socket receives. Sending does not need the mode to run.
    ///   - options: limits, buffers, multicast.
    ///   - label: for warnings and recordings.
    ///   - file: with `line`, the place that warnings and recordings name.
    ///   - line: see `file`.
    /// - Throws: `.badAddress`; `.loopEnded`; `.system` with the operation, such as `bind 127.0.0.1:53`, and its errno.
    public init(
        boundTo address: RunLoop.SocketAddress, on loop: RunLoop, mode: RunLoop.Mode = .common, options: Options = Options(),
        label: String? = nil, file: StaticString = #fileID, line: UInt = #line
    ) throws(RunLoop.SourceError) {
        options.check(file: file, line: line)
        core = DatagramCore(try DatagramDescriptor(boundTo: address, options), on: loop, mode, options)
        try core.open(label: label, file: file, line: line)
        core.setOwner(self)
    }

    /// Makes a socket that exchanges datagrams with one peer only.
    ///
    /// - Parameters:
    ///   - peer: the only one.
    ///   - local: the socket's own address; nil: the kernel chooses one, and a Unix socket has none, so that its peer cannot answer.
    ///   - loop: where handlers are called.
    ///   - mode: in which the socket receives. Sending does not need the mode to run.
    ///   - options: limits, buffers, multicast.
    ///   - label: for warnings and recordings.
    ///   - file: with `line`, the place that warnings and recordings name.
    ///   - line: see `file`.
    /// - Throws: as `init(boundTo:)`; `.system` with EAFNOSUPPORT if the two addresses are of different kinds.
    public init(
        connectedTo peer: RunLoop.SocketAddress, from local: RunLoop.SocketAddress? = nil, on loop: RunLoop, mode: RunLoop.Mode = .common,
        options: Options = Options(), label: String? = nil, file: StaticString = #fileID, line: UInt = #line
    ) throws(RunLoop.SourceError) {
        options.check(file: file, line: line)
        core = DatagramCore(try DatagramDescriptor(connectedTo: peer, from: local, options), on: loop, mode, options)
        try core.open(label: label, file: file, line: line)
        core.setOwner(self)
    }

    /// A socket of a network in memory.
    init(
        over end: MemoryDatagramEnd, on loop: RunLoop, mode: RunLoop.Mode, options: Options, label: String?, file: StaticString, line: UInt
    ) throws(RunLoop.SourceError) {
        core = DatagramCore(end, on: loop, mode, options)
        try core.open(label: label, file: file, line: line)
        core.setOwner(self)
    }

    deinit { core.close() }

    /// The loop of the socket.
    public var loop: RunLoop { core.loop }

    /// The socket's own address, with the port that the kernel chose. Kept after the end.
    public var localAddress: RunLoop.SocketAddress { core.transport.localAddress }

    /// What the socket has done so far. Kept after the end. Asks the kernel for its drops while the socket is open. All zero in a child of fork, if
    /// the parent made the socket.
    public var statistics: Statistics { core.statistics }

    /// False after `close()`, and when the loop has ended or the socket has failed.
    public var isOpen: Bool { core.isOpen }

    // MARK: Handlers

    /// Called for each datagram, on the loop's thread. Setting it again replaces the body.
    ///
    /// Set late, it is called for the datagrams that are queued, too. While a body runs its loop, the socket's other datagrams wait. What a body
    /// sends while others wait to be delivered may go out together with what the body sends for those. A precondition failure on a socket
    /// whose `datagrams` a task has read. Thread-safe.
    public func onReceive(_ body: @escaping @Sendable (DatagramSocket, Datagram) -> Void) { core.setHandler(body) }

    /// Sends a datagram, or queues it while the kernel has no room. An empty one can be sent.
    ///
    /// Tries at once, on the caller's thread, if nothing is queued. `peer` is needed unless the socket is connected. Thread-safe.
    ///
    /// - Returns: False when it was not queued: `sendLimit`, an address of another family or one that cannot be used, another peer than the
    ///   one that the socket is connected to, or closed. A datagram that the kernel refuses for good is counted in `sendDrops`.
    @discardableResult
    public func send(_ bytes: [UInt8], to peer: RunLoop.SocketAddress? = nil) -> Bool { core.send(bytes, to: peer) }

    // MARK: Tasks

    /// Sends a datagram, or queues it while the kernel has no room; waits while `sendLimit` are queued. Writes keep their order.
    ///
    /// Throws `StreamError.closed`, or `.system` for what the kernel reports of this socket: what it has heard of the peer of a connected
    /// socket (then the datagram is not sent, and the socket goes on), or why it refuses this datagram. `.system` with EISCONN for another
    /// peer than the one that the socket is connected to, EDESTADDRREQ if there is none, and EAFNOSUPPORT for an address of another family;
    /// `.badAddress`. Cancelled while it waits, it throws `CancellationError` and has queued nothing.
    public func write(
        _ bytes: [UInt8], to peer: RunLoop.SocketAddress? = nil, isolation: isolated (any Actor)? = #isolation
    ) async throws { try await core.write(bytes, to: peer, isolation: isolation) }

    /// The datagrams as they arrive; ends when the socket is closed. One iterator.
    ///
    /// A precondition failure on a socket with a handler.
    public var datagrams: Datagrams { Datagrams(socket: self) }

    /// The result of `datagrams`. It retains the socket.
    public struct Datagrams: AsyncSequence, Sendable {
        /// What arrives.
        public typealias Element = Datagram
        let socket: DatagramSocket

        /// The iterator of the sequence. One task uses it at a time.
        public struct AsyncIterator: AsyncIteratorProtocol {
            let socket: DatagramSocket

            /// The next datagram; nil when the socket is closed.
            ///
            /// When the loop has ended, returns what is queued, throws `RunLoopEnded` once, and then returns nil. If the socket has failed, throws
            /// its `SourceError` once. If the task is cancelled, throws `CancellationError`; no datagram is lost, and the socket stays usable.
            public mutating func next(isolation actor: isolated (any Actor)? = #isolation) async throws -> Datagram? {
                try await socket.core.next(isolation: actor)
            }
        }

        /// Makes the iterator. It retains the socket.
        public func makeAsyncIterator() -> AsyncIterator { AsyncIterator(socket: socket) }
    }

    // MARK: Groups, the descriptor, the end

    /// Receives what is sent to a multicast group. `interface` is a name such as `eth0`; nil: the system's choice. The group's port is ignored.
    ///
    /// Throws `.badAddress`, or `.system` with the errno of setsockopt(2): ENODEV without such an interface, EINVAL if it is no multicast address,
    /// EADDRINUSE if the socket has joined already, EAFNOSUPPORT for a group of another family, EBADF when the socket is closed
    /// or the parent's. Thread-safe.
    public func join(_ group: RunLoop.SocketAddress, interface: String? = nil) throws(RunLoop.SourceError) {
        try core.transport.setMember(of: group, interface, joins: true)
    }

    /// Leaves a group that the socket has joined. As `join`; throws `.system` with EADDRNOTAVAIL if it has not.
    public func leave(_ group: RunLoop.SocketAddress, interface: String? = nil) throws(RunLoop.SourceError) {
        try core.transport.setMember(of: group, interface, joins: false)
    }

    /// Calls `body` with the socket's descriptor, which stays open until `body` returns; nil without calling it if the socket is closed, and in a
    /// child of fork, which shares the socket with its parent. For options. Thread-safe.
    public func withDescriptor<Result, Failure>(_ body: (Int32) throws(Failure) -> Result) throws(Failure) -> Result? { /* DOES CALLOUT */
        guard let number = core.transport.beginUse() else { return nil }
        // Many calls on a descriptor are cancellation points: a thread that ended in one would keep its use, and the descriptor open, for ever.
        let cancellation = cplatform_hold_cancellation()
        defer { cplatform_resume_cancellation(cancellation) }
        defer { core.transport.endUse() }
        return try body(number)
    }

    /// Ends the socket. Queued datagrams are sent before, as far as the kernel takes them at once; what was received and not taken is dropped.
    /// Nothing if it has ended. Thread-safe.
    public func close() { core.close() }
}
