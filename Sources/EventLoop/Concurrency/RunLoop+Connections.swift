// Connections, accepted and made, for a task.

import Synchronization

#if canImport(Glibc)
import Glibc
#elseif canImport(Musl)
import Musl
#else
import Darwin
#endif

extension RunLoop {
    /// Listens, and tells a task of each connection.
    ///
    /// The socket listens from the call on, with a `SocketSource` in `mode` of this loop (by default all common modes): see there for the
    /// addresses, the parameters and what is thrown. A connection is accepted when the task has come to wait for one and at no other time,
    /// so those that a slow task cannot take wait in the kernel's queue (`backlog`), and the clients behind them are turned away. One that
    /// was accepted and never reached the task is closed.
    ///
    /// The listener goes when the task that iterates is cancelled, or the last copy of the sequence and of its iterator is let go of. One
    /// task iterates at a time. Iterating throws `SourceError` when the listener breaks, and `RunLoopEnded` when the loop's thread exits.
    ///
    /// ```
    /// let connections = try loop.connections(listeningOn: .ipv4(host: "127.0.0.1", port: 8080))
    /// for try await connection in connections { Task { await serve(connection.descriptor) } }
    /// ```
    ///
    /// Thread-safe.
    public func connections(
        listeningOn address: SocketAddress, backlog: Int32 = 1024, reusePort: Bool = false, ipv6Only: Bool = false, mode: Mode = .common,
        file: StaticString = #fileID, line: UInt = #line
    ) throws(SourceError) -> Connections {
        let channel = SingleElementChannel<Connections.Arrival>()
        let source = try SocketSource(
            listeningOn: address, backlog: backlog, reusePort: reusePort, ipv6Only: ipv6Only, label: "connections for a task", file: file,
            line: line
        ) { source, descriptor, peer in
            source.isAccepting = false
            channel.post(Connections.Arrival(descriptor: OwnedDescriptor(descriptor), peer: peer)) { _, _ in
                assertionFailure("a second connection was accepted before the first was taken")
            }
        }
        source.isAccepting = false
        // The loop alone holds the source, so that it goes with the loop.
        source.onInvalidation { channel.end(throwing: $0.failure ?? RunLoopEnded()) }
        channel.connect(demand: { [weak source] in source?.isAccepting = true }, removal: { [weak source] in source?.invalidate() })
        // An ended loop refuses it; then the first `next` throws.
        if !add(source, forMode: mode) { source.invalidate() }
        return Connections(localAddress: source.localAddress ?? address, reader: ChannelReader(channel))
    }

    /// Connects to a socket, and returns its descriptor, non-blocking and close-on-exec and the caller's to close.
    ///
    /// As `SocketSource(connectingTo:)` in `mode` of this loop (by default all common modes). Throws `SourceError`: `.badAddress`, or
    /// `.system` with the operation `connect`, ETIMEDOUT when the `timeout`, in this loop's time, was over; `CancellationError` when the
    /// task is cancelled, and `RunLoopEnded` when the loop's thread exits. A connection that comes to stand while the task is being
    /// cancelled is closed.
    ///
    /// Any task may call this.
    public func connection(
        to address: SocketAddress, timeout: Duration? = nil, mode: Mode = .common, isolation: isolated (any Actor)? = #isolation,
        file: StaticString = #fileID, line: UInt = #line
    ) async throws -> Int32 {
        let channel = SingleElementChannel<OwnedDescriptor>()
        try report(connectionTo: address, timeout, to: channel, mode, file, line)
        return try await channel.only(isolation: isolation).take()
    }

    /// Apart, so that the loop alone holds the source while the task waits, and it goes with the loop.
    private func report(
        connectionTo address: SocketAddress, _ timeout: Duration?, to channel: SingleElementChannel<OwnedDescriptor>, _ mode: Mode,
        _ file: StaticString, _ line: UInt
    ) throws {
        let source = try SocketSource(connectingTo: address, timeout: timeout, label: "a task connects", file: file, line: line) {
            switch $1 {
            case .success(let descriptor): channel.post(OwnedDescriptor(descriptor)) { _, _ in }
            case .failure(let error): channel.end(throwing: error)
            }
        }
        source.onInvalidation { channel.end(throwing: $0.failure ?? RunLoopEnded()) }
        channel.connect { [weak source] in source?.invalidate() }
        if !add(source, forMode: mode) { throw RunLoopEnded() }
    }

    /// What `connections(listeningOn:)` makes.
    public struct Connections: AsyncSequence, Sendable {
        /// A connection that was accepted. The descriptor is non-blocking and close-on-exec, and yours to close.
        public struct Connection: Sendable, Hashable {
            public let descriptor: Int32
            public let peer: SocketAddress
        }

        public typealias Element = Connection
        public typealias Failure = any Error

        struct Arrival: Sendable {
            let descriptor: OwnedDescriptor
            let peer: SocketAddress
        }

        /// The address it listens on, with the port that the kernel chose.
        public let localAddress: SocketAddress
        let reader: ChannelReader<Arrival>

        public func makeAsyncIterator() -> AsyncIterator { AsyncIterator(reader: reader) }

        public struct AsyncIterator: AsyncIteratorProtocol {
            let reader: ChannelReader<Arrival>

            /// The next connection; nil when the task is cancelled.
            public mutating func next(isolation actor: isolated (any Actor)? = #isolation) async throws -> Connection? {
                guard let arrival = try await reader.channel.next(isolation: actor) else { return nil }
                return Connection(descriptor: arrival.descriptor.take(), peer: arrival.peer)
            }
        }
    }
}

/// A descriptor that is closed unless somebody takes it. Thread-safe.
final class OwnedDescriptor: Sendable {
    private let descriptor: Atomic<Int32>

    init(_ descriptor: Int32) { self.descriptor = Atomic(descriptor) }

    deinit {
        let descriptor = descriptor.load(ordering: .acquiring)
        if descriptor >= 0 { close(descriptor) }
    }

    /// From now on the caller's. Once.
    func take() -> Int32 { descriptor.exchange(-1, ordering: .acquiringAndReleasing) }
}
