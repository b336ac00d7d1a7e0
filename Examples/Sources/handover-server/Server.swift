// The listener of this example, who serves it, and who gets it.

import EventLoop
import EventLoopMessagePorts
import EventLoopStreams
import Synchronization

#if canImport(Glibc)
import Glibc
#else
import Darwin
#endif

final class Server: Sendable {
    private struct State {
        /// Kept, to be passed on. The server has a copy, and closes only that.
        var listener: Int32 = -1
        var server: StreamServer?
    }

    private let loop: RunLoop
    private let state = Mutex(State())

    init(on loop: RunLoop) { self.loop = loop }

    var address: RunLoop.SocketAddress { state.withLock { $0.server!.localAddress } }

    /// Takes over the listener.
    func serve(_ listener: Int32) throws {
        let server = try StreamServer(adopting: [fcntl(listener, F_DUPFD_CLOEXEC, 0)], on: [loop]) { stream in
            do { for try await line in stream.lines() { try await stream.write(line + "\n") } } catch {}
        }
        state.withLock { $0 = State(listener: listener, server: server) }
    }

    func shutdown() async {
        let state = state.withLock { $0 }
        close(state.listener)
        await state.server?.shutdown(grace: .seconds(30))
    }

    // MARK: From server to server

    /// Asks the server that has the name for its listener, and serves it. False if nobody has the name, or gives it up without an answer.
    func succeed(_ name: String) async throws -> Bool {
        guard let predecessor = try predecessor(name) else { return false }
        // Its release would end the connection, which says whether the predecessor is still there.
        defer { withExtendedLifetime(predecessor) {} }
        let (arrivals, arrival) = AsyncThrowingStream.makeStream(of: Void.self)
        predecessor.onInvalidation { arrival.finish() }
        // Replies carry no descriptors, so the predecessor sends the listener as a request.
        let mine = "\(name).\(getpid())"
        let port = try RunLoop.LocalMessagePort(
            name: mine,
            descriptorHandler: { _, _, _, passed in
                guard passed.count == 1, let listener = passed.take(0) else { return nil }
                do {
                    try self.serve(listener)
                    arrival.yield()
                    return Array("serving".utf8)
                } catch {
                    arrival.finish(throwing: error)
                    return nil
                }
            })
        loop.add(port)
        defer { port.invalidate() }
        try await predecessor.send(id: 0, data: Array(mine.utf8), timeout: .seconds(10))
        for try await _ in arrivals {
            // The answer is on its way before the port ends.
            try await loop.performAsync {}
            return true
        }
        return false
    }

    private func predecessor(_ name: String) throws -> RunLoop.RemoteMessagePort? {
        do { return try RunLoop.RemoteMessagePort(name: name) } catch RunLoop.PortError.notFound { return nil }
    }

    /// Returns when the successor serves. Until then, and if this throws, this server does.
    func handOver(to successor: String) async throws {
        let listener = state.withLock { $0.listener }
        let port = try RunLoop.RemoteMessagePort(name: successor)
        let answer = try await port.request(id: 0, descriptors: [listener], timeout: .seconds(10))
        guard answer == Array("serving".utf8) else { throw RunLoop.PortError.becameInvalid }
    }
}
