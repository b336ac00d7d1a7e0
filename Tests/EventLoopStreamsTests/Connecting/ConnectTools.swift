// Peers for tests that connect, and tasks on a loop in manual time.

import EventLoop
import EventLoopStreams
import EventLoopTestSupport
import Testing

#if canImport(Glibc)
import Glibc
#else
import Darwin
#endif

/// Connections succeed at once, and nobody accepts them.
final class SilentPeer: Sendable {
    let source: RunLoop.SocketSource
    var address: SocketAddress { source.localAddress! }

    init(_ address: SocketAddress = .ipv4(host: "127.0.0.1", port: 0), backlog: Int32 = 1024) throws {
        source = try RunLoop.SocketSource(listeningOn: address, backlog: backlog) { _, descriptor, _ in close(descriptor) }
    }

    deinit { source.invalidate() }
}

/// Connections neither succeed nor fail: the kernel has no room for them, and drops their packets.
final class HangingPeer: Sendable {
    private let peer: SilentPeer
    private let filler: RunLoop.SocketSource
    var address: SocketAddress { peer.address }

    init() throws {
        // The queue has room for one connection, and is full when that is in it.
        peer = try SilentPeer(backlog: 0)
        filler = try RunLoop.SocketSource(connectingTo: peer.address) { _, _ in }
        try waitUntilReadable(peer.source.descriptor, "the connection is in the queue")
    }

    deinit { filler.invalidate() }
}

/// Nobody listens there.
let refusingAddress = SocketAddress.ipv4(host: "127.0.0.1", port: 1)

/// A resolver with one answer, at once.
func resolver(_ addresses: [SocketAddress]) -> Resolver {
    Resolver { _, _, answer in
        answer(.success(addresses))
        return {}
    }
}

extension RunLoop {
    /// Runs `body` in a task on this loop, and the loop until the task has ended.
    @discardableResult
    func runTask<R: Sendable>(_ body: @escaping @Sendable () async throws -> R) throws -> R {
        let result = Locked<Result<R, any Error>?>(nil)
        let keepAlive = keepAlive()
        _ = Task(executorPreference: self) {
            let outcome: Result<R, any Error>
            do { outcome = .success(try await body()) } catch { outcome = .failure(error) }
            result.withLock { $0 = outcome }
            keepAlive.cancel()
            self.stop()
        }
        // In manual time this may take less than the patience of a thread.
        while result.withLock({ $0 == nil }) { _ = run(for: patience) }  // ends: with the task
        return try result.withLock { $0! }.get()
    }

    /// How many sources and timers the loop has, of all modes.
    var itemCount: Int { debugDescription.split(separator: "\n").filter { $0.hasPrefix("    ") }.count }
}

/// How many sockets the process has open. Only for a process of its own.
func openSockets() -> Int {
    (0..<1_024).filter {
        var (type, length) = (Int32(0), socklen_t(MemoryLayout<Int32>.size))
        return getsockopt(Int32($0), SOL_SOCKET, SO_TYPE, &type, &length) == 0
    }.count
}
