// Rules proved here (docs/handover.md, semantics 27.13):
// - When a listener that somebody keeps is handed from server to server under load, no client is lost.
// - A predecessor leaves the clients that it has no room or no time for in the queue, and its successor serves them.

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

    /// A Unix socket: a client that has connected is in its queue.
    init(at path: String) {
        (descriptor, address) = (socketFile(path), .unix(path: path))
        precondition(listen(descriptor, 64) == 0, "listen: errno \(errno)")
    }

    deinit { close(descriptor) }

    /// As passed to another process: another number for the same socket.
    func copy() -> Int32 { fcntl(descriptor, F_DUPFD_CLOEXEC, 0) }
}

/// Returns when the loop waits for the gate in a closure, so that it accepts nobody.
private func occupy(_ loop: RunLoop) async throws -> Gate {
    let (gate, isBusy) = (Gate(), Box(false))
    loop.perform {
        isBusy.value = true
        gate.wait()
    }
    try await suspendUntil("the loop is busy") { isBusy.value }
    return gate
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

    @Test func `a predecessor accepts no more clients than it has room for, and its successor serves the others`() async throws {
        let directory = makeTemporaryDirectory(in: "/tmp")
        defer { removeFlatDirectory(directory) }
        try await withLoops(2) { loops in
            let listener = KeptListener(at: directory + "/socket")
            let old = try StreamServer(adopting: [listener.copy()], on: [loops[0]], connectionLimit: 2) { stream in
                _ = try? await stream.readAll()
                try? await stream.write("old")
            }
            let gate = try await occupy(loops[0])
            var clients: [ByteStream] = []
            for _ in 0..<4 { clients.append(try await ByteStream.connect(to: listener.address, on: loops[1])) }
            let ending = Task { await old.shutdown(grace: patience) }
            try await suspendUntil("two are served") { old.connections == 2 }
            gate.open()
            try await suspendUntil("the predecessor listens no more") { old.core.state.withLock { $0.listeners } == 0 }
            try #require(old.core.state.withLock { $0.parked.count } == 0)
            let new = try StreamServer(adopting: [listener.copy()], on: [loops[1]]) { stream in try? await stream.write("new") }
            for client in clients[2...] { #expect(try await client.readAll() == "new") }
            for client in clients[..<2] {
                try await client.finishWriting()
                #expect(try await client.readAll() == "old")
            }
            for client in clients { client.close() }
            await ending.value
            await new.shutdown(grace: .zero)
        }
    }

    /// `isCancelled`: the task that shuts the server down is cancelled, which has the same effect.
    @Test(arguments: [false, true])
    func `without a grace, a predecessor leaves all clients that wait to its successor`(isCancelled: Bool) async throws {
        let directory = makeTemporaryDirectory(in: "/tmp")
        defer { removeFlatDirectory(directory) }
        try await withLoops(2) { loops in
            let listener = KeptListener(at: directory + "/socket")
            let old = try StreamServer(adopting: [listener.copy()], on: [loops[0]]) { stream in try? await stream.write("old") }
            let gate = try await occupy(loops[0])
            var clients: [ByteStream] = []
            for _ in 0..<3 { clients.append(try await ByteStream.connect(to: listener.address, on: loops[1])) }
            let ending = Task {
                if isCancelled { withUnsafeCurrentTask { $0?.cancel() } }
                await old.shutdown(grace: isCancelled ? patience : .zero)
            }
            try await suspendUntil("the grace is over") { old.core.state.withLock { $0.phase } >= .cancelled }
            gate.open()
            await ending.value
            let new = try StreamServer(adopting: [listener.copy()], on: [loops[1]]) { stream in try? await stream.write("new") }
            for client in clients {
                #expect(try await client.readAll() == "new")
                client.close()
            }
            await new.shutdown(grace: .zero)
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
