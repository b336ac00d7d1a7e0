// Rules proved here (StreamService.swift):
// - A graceful shutdown and a cancellation shut the server down with its grace period, and `run()` returns.
// - It throws when the server's loops end under it.

import EventLoop
import EventLoopServiceLifecycle
import EventLoopStreams
import ServiceLifecycleTestKit
import TestSupport
import Testing

@Suite(.bounded) struct StreamServiceTests {
    /// An echo server on a thread of its own.
    private func withServer(_ body: (RunLoopThread, StreamServer) async throws -> Void) async throws {
        let thread = try RunLoopThread(name: "server")
        let server = try StreamServer(listeningOn: .ipv4(host: "127.0.0.1", port: 0), on: [thread.runLoop]) { stream in
            do { for try await line in stream.lines() { try await stream.write(line + "\n") } } catch {}
        }
        try await body(thread, server)
        thread.stop()
        await thread.join()
    }

    private func client(of server: StreamServer, on thread: RunLoopThread) async throws -> ByteStream {
        let stream = try await ByteStream.connect(to: server.localAddress, on: thread.runLoop)
        try await stream.write("hello\n")
        #expect(try await stream.read(exactly: 6) == Array("hello\n".utf8))
        return stream
    }

    @Test(arguments: [true, false])
    func `the end of the service gives connections their grace period`(isGraceful: Bool) async throws {
        try await withServer { thread, server in
            let client = try await client(of: server, on: thread)
            let service = StreamService(server, grace: patience)
            let hasReturned = Box(false)
            try await testGracefulShutdown { trigger in
                try await withThrowingTaskGroup(of: Void.self) { group in
                    group.addTask {
                        try await service.run()
                        hasReturned.value = true
                    }
                    if isGraceful { trigger.triggerGracefulShutdown() } else { group.cancelAll() }
                    try await suspendUntil("the server stops to accept") {
                        guard let other = try? await ByteStream.connect(to: server.localAddress, on: thread.runLoop) else { return true }
                        other.close()
                        return false
                    }
                    // The connection goes on.
                    try await client.write("again\n")
                    #expect(try await client.read(exactly: 6) == Array("again\n".utf8))
                    #expect(!hasReturned.value)
                    client.close()
                    try await group.waitForAll()
                }
            }
            #expect(hasReturned.value && server.connections == 0)
        }
    }

    @Test func `run throws when the server's loops end under it`() async throws {
        try await withServer { thread, server in
            let run = Task { try await StreamService(server).run() }
            thread.stop()
            await thread.join()
            await #expect(throws: RunLoopEnded.self) { try await run.value }
        }
    }
}
