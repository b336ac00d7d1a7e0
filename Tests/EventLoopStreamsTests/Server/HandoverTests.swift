// Rule proved here (docs/handover.md): when a listener that somebody keeps is handed from server to server under load, no client is lost.

import EventLoop
import EventLoopTestSupport
import Testing

@testable import EventLoopStreams

#if canImport(Glibc)
import Glibc
#else
import Darwin
#endif

/// What the manager or the predecessor has: a socket that listens, in no loop.
private final class KeptListener: Sendable {
    let descriptor: Int32
    let address: SocketAddress

    init() throws {
        let source = try RunLoop.SocketSource(listeningOn: anyPort(of: 40)) { _, descriptor, _ in close(descriptor) }
        address = source.localAddress!
        descriptor = fcntl(source.descriptor, F_DUPFD_CLOEXEC, 0)
        // Closes the source's own descriptor.
        source.invalidate()
    }

    deinit { close(descriptor) }

    /// As passed to another process: another number for the same socket.
    func copy() -> Int32 { fcntl(descriptor, F_DUPFD_CLOEXEC, 0) }
}

@Suite(.bounded) struct HandoverTests {
    /// `overlaps`: the successor serves before the predecessor shuts down (b); otherwise nobody serves in between, and clients wait (a).
    @Test(arguments: [true, false]) func `of the clients during ten hand-overs of a listener none is lost`(overlaps: Bool) async throws {
        let (perTask, tasks) = (100, 8)
        try await withLoops(2) { loops in
            let listener = try KeptListener()
            let make = { try StreamServer(adopting: [listener.copy()], on: [loops[0]]) { stream in try? await stream.write("hi") } }
            let served = Box(0)
            let clients = (0..<tasks).map { _ in
                Task(executorPreference: loops[1]) {
                    for _ in 0..<perTask {
                        let client = try await ByteStream.connect(to: listener.address, timeout: patience, on: loops[1])
                        if try await client.readAll() == "hi" { served.increment() }
                        client.close()
                    }
                }
            }
            var server = try make()
            for round in 1...10 {
                // Each hand-over is in the middle of the load.
                try await suspendUntil("some more clients are served") { served.value >= round * perTask * tasks / 12 }
                if overlaps {
                    let successor = try make()
                    await server.shutdown(grace: patience)
                    server = successor
                } else {
                    await server.shutdown(grace: patience)
                    server = try make()
                }
            }
            for client in clients { try await client.value }
            #expect(served.value == perTask * tasks)
            await server.shutdown(grace: .zero)
        }
    }

    @Test func `a server with listeners of its own that ends under load resets nobody`() async throws {
        try await withLoops(3) { loops in
            let (reset, refused, served) = (Box(0), Box(0), Box(0))
            let server = try StreamServer(listeningOn: anyPort(of: 41), on: Array(loops[..<2])) { stream in try? await stream.write("hi") }
            let address = server.localAddress
            let clients = (0..<8).map { _ in
                Task(executorPreference: loops[2]) {
                    while true {  // ends: nobody listens any more
                        guard let client = try? await ByteStream.connect(to: address, timeout: patience, on: loops[2]) else {
                            refused.increment()
                            return
                        }
                        let text = try? await client.readAll()
                        if text == "hi" { served.increment() } else { reset.increment() }
                        client.close()
                    }
                }
            }
            try await suspendUntil("the load") { served.value >= 300 }
            await server.shutdown(grace: patience)
            for client in clients { await client.value }
            #expect(reset.value == 0 && refused.value == 8)
        }
    }
}
