// Rules proved here (RunLoop+Connections.swift): a connection is accepted when a task waits for one. A connection that does not reach the
// task is closed. The listener ends with the sequence and with the task. A task's connect succeeds, fails, times out or is cancelled.

import EventLoop
import EventLoopTestSupport
import Testing

#if canImport(Glibc)
import Glibc
#else
import Darwin
#endif

private let anyPort = SocketAddress.ipv4(host: "127.0.0.1", port: 0)

/// Whether the kernel refuses connections to the address.
private func isRefused(_ address: SocketAddress, on loop: RunLoop) async -> Bool {
    do {
        close(try await loop.connection(to: address))
        return false
    } catch { return error as? RunLoop.SourceError == .system(operation: "connect \(address)", errno: ECONNREFUSED) }
}

@Suite(.bounded, .tags(.memory, .threads)) struct `Connections for tasks` {
    @Test func `a server and all its clients can be tasks`() async throws {
        try await withLoopThread { thread in
            let loop = thread.runLoop
            let connections = try loop.connections(listeningOn: anyPort)
            let server = Task {
                for try await connection in connections {
                    #expect(isNonBlockingAndCloseOnExec(connection.descriptor))
                    #expect("\(connection.peer)".hasPrefix("127.0.0.1:"))
                    _ = write(connection.descriptor, "hello", 5)
                    close(connection.descriptor)
                }
            }
            for _ in 0..<50 / roundsDivisor {
                let descriptor = try await loop.connection(to: connections.localAddress)
                #expect(isNonBlockingAndCloseOnExec(descriptor))
                for try await _ in loop.readiness(of: descriptor) {
                    #expect(drain(descriptor) == "hello")
                    break
                }
                try await loop.performAsync { _ = close(descriptor) }
            }
            server.cancel()
            try await server.value
            try await loop.performAsync {}
            // A process that another test starts has a copy of the listener until it executes its program.
            try await suspendUntil("nobody listens") { await isRefused(connections.localAddress, on: loop) }
        }
    }

    @Test func `no connection is accepted while no task asks for one`() async throws {
        try await withLoopThread { thread in
            let loop = thread.runLoop
            let connections = try loop.connections(listeningOn: anyPort)
            let clients = (0..<3).map { _ in connectedClient(to: connections.localAddress) }
            let handled = loop.statistics.sourcesHandled
            for _ in 0..<10 { try await loop.performAsync {} }
            #expect(loop.statistics.sourcesHandled - handled <= 10)
            var iterator = connections.makeAsyncIterator()
            for _ in 0..<3 {
                let connection = try #require(try await iterator.next())
                close(connection.descriptor)
            }
            for client in clients { close(client) }
        }
    }

    @Test func `a connection that no task takes is closed, whenever the cancellation comes`() async throws {
        try await withLoopThread { thread in
            let loop = thread.runLoop
            for round in 0..<100 / roundsDivisor {
                let connections = try loop.connections(listeningOn: anyPort)
                let client = connectedClient(to: connections.localAddress)
                let task = Task { for try await connection in connections { close(connection.descriptor) } }
                for _ in 0..<(round % 15) { await Task.yield() }
                task.cancel()
                try await task.value
                try await loop.performAsync {}
                // The connection is reset or at its end, not left open.
                var byte: UInt8 = 0
                var entry = pollfd(fd: client, events: Int16(POLLIN), revents: 0)
                #expect(poll(&entry, 1, 1_200_000) == 1)
                #expect(read(client, &byte, 1) <= 0)
                close(client)
            }
        }
    }

    @Test func `the listener ends with the sequence, and the loop's end is an error`() async throws {
        let thread = try RunLoopThread(name: "short")
        let loop = thread.runLoop
        var dropped: RunLoop.Connections? = try loop.connections(listeningOn: anyPort)
        let address = dropped!.localAddress
        dropped = nil
        try await loop.performAsync {}
        try await suspendUntil("nobody listens") { await isRefused(address, on: loop) }
        let connections = try loop.connections(listeningOn: anyPort)
        let server = Task { for try await _ in connections {} }
        await Task.yield()
        thread.stop()
        #expect(thread.join(timeout: patience))
        await #expect(throws: RunLoopEnded.self) { try await server.value }
        let late = try loop.connections(listeningOn: anyPort)
        await #expect(throws: RunLoopEnded.self) { for try await _ in late {} }
        await #expect(throws: RunLoopEnded.self) { try await loop.connection(to: connections.localAddress) }
        #expect(throws: RunLoop.SourceError.badAddress("x:1")) { try loop.connections(listeningOn: .ipv4(host: "x", port: 1)) }
    }

    @Test func `a connect that hangs times out, and can be cancelled`() async throws {
        let server = DeafListener(anyPort)
        server.fill()
        try await withLoopThread { thread in
            let loop = thread.runLoop
            await #expect(throws: RunLoop.SourceError.system(operation: "connect \(server.address)", errno: ETIMEDOUT)) {
                try await loop.connection(to: server.address, timeout: .milliseconds(1))
            }
            let task = Task { try await loop.connection(to: server.address) }
            try await suspendUntil("a task connects") { loop.debugDescription.contains("a task connects") }
            task.cancel()
            await #expect(throws: CancellationError.self) { try await task.value }
            try await loop.performAsync {}
            #expect(!loop.debugDescription.contains("a task connects"))
        }
    }
}
