internal import CPlatform
import Synchronization

extension RunLoop {
    /// Listens, and passes each connection to a task.
    ///
    /// The socket listens from the call on, with a `SocketSource` in `mode` of this loop (by default, all common modes). `SocketSource` documents the
    /// addresses, the parameters and the errors. It accepts a connection only while the task waits for one: if the task is slow, connections wait in
    /// the kernel's queue (`backlog`), and when that is full, clients are refused. A connection that did not reach the task is closed.
    ///
    /// The listener is closed when the iterating task is cancelled, or when the last copy of the sequence and its iterator is released. One task at a
    /// time may iterate. Iterating throws `SourceError` if the listener fails, and `RunLoopEnded` when the loop's thread exits. Thread-safe.
    ///
    /// ```
    /// let connections = try loop.connections(listeningOn: .ipv4(host: "127.0.0.1", port: 8080))
    /// for try await connection in connections { Task { await serve(connection.descriptor) } }
    /// ```
    public func connections(
        listeningOn address: SocketAddress, backlog: Int32 = 1024, reusePort: Bool = false, ipv6Only: Bool = false, mode: Mode = .common,
        file: StaticString = #fileID, line: UInt = #line
    ) throws(SourceError) -> Connections {
        let channel = SingleElementChannel<(descriptor: OwnedDescriptor, peer: SocketAddress)>()
        let source = try SocketSource(
            listeningOn: address, backlog: backlog, reusePort: reusePort, ipv6Only: ipv6Only, label: "connections for a task", file: file,
            line: line
        ) { source, descriptor, peer in
            source.isAccepting = false
            channel.post((OwnedDescriptor(descriptor), peer)) { _, _ in assertionFailure("accepted two connections at one time") }
        }
        source.isAccepting = false
        // An ended loop refuses the source. Then the first `next` throws.
        channel.connect(on: self, mode, demand: { (source: SocketSource) in source.isAccepting = true }) { source }
        return Connections(localAddress: source.localAddress ?? address, reader: ChannelReader(channel))
    }

    /// Connects to a socket, and returns the descriptor, which is non-blocking and close-on-exec. The caller must close it.
    ///
    /// Uses a `SocketSource(connectingTo:)` in `mode` of this loop (by default, all common modes). Throws `SourceError`: `.badAddress`, or `.system`
    /// with the operation `connect`, ETIMEDOUT if the `timeout`, in this loop's time, has passed. Throws `CancellationError` if the task is cancelled
    /// (a connection that is established meanwhile is closed), and `RunLoopEnded` when the loop's thread exits. Any task may call this.
    public func connection(
        to address: SocketAddress, timeout: Duration? = nil, mode: Mode = .common, isolation: isolated (any Actor)? = #isolation,
        file: StaticString = #fileID, line: UInt = #line
    ) async throws -> Int32 {
        let channel = SingleElementChannel<OwnedDescriptor>()
        channel.connect(on: self, mode) {
            try SocketSource(connectingTo: address, timeout: timeout, label: "a task connects", file: file, line: line) {
                switch $1 {
                case .success(let descriptor): channel.post(OwnedDescriptor(descriptor)) { _, _ in }
                case .failure(let error): channel.end(throwing: error)
                }
            }
        }
        return try await channel.only(isolation: isolation).take()
    }

    /// The result of `connections(listeningOn:)`.
    public struct Connections: AsyncSequence, Sendable {
        /// An accepted connection.
        public struct Connection: Sendable, Hashable {
            /// Non-blocking and close-on-exec. The caller closes it.
            public let descriptor: Int32
            /// The address of the other end.
            public let peer: SocketAddress
        }

        public typealias Element = Connection
        public typealias Failure = any Error
        /// The address that the socket listens on, with the port that the kernel chose.
        public let localAddress: SocketAddress
        let reader: ChannelReader<(descriptor: OwnedDescriptor, peer: SocketAddress)>
        public func makeAsyncIterator() -> AsyncIterator { AsyncIterator(reader: reader) }

        public struct AsyncIterator: AsyncIteratorProtocol {
            let reader: ChannelReader<(descriptor: OwnedDescriptor, peer: SocketAddress)>
            /// The next connection; nil if the task is cancelled.
            public mutating func next(isolation actor: isolated (any Actor)? = #isolation) async throws -> Connection? {
                try await reader.channel.next(isolation: actor).map { Connection(descriptor: $0.descriptor.take(), peer: $0.peer) }
            }
        }
    }
}

/// A descriptor that is closed on release unless it was taken. Thread-safe.
final class OwnedDescriptor: Sendable {
    private let descriptor: Atomic<Int32>
    init(_ descriptor: Int32) { self.descriptor = Atomic(descriptor) }

    deinit {
        let descriptor = descriptor.load(ordering: .acquiring)
        if descriptor >= 0 { cplatform_close(descriptor) }
    }

    /// Passes the descriptor to the caller, which must close it. Once only.
    func take() -> Int32 { descriptor.exchange(-1, ordering: .acquiringAndReleasing) }
}
