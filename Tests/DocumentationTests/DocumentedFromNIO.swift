// The program of docs/from-nio.md, compiled and run.
//
// DocumentedCodeTests compares each block of Swift in that page with this file, line by line: change both.

import EventLoop
import EventLoopStreams
import EventLoopTestSupport
import Testing

/// Answers each line in upper case, on four threads, until `stopped` returns.
func serveUpperCase(
    listeningOn address: RunLoop.SocketAddress, started: (RunLoop.SocketAddress) -> Void, until stopped: () async -> Void
) async throws {
    let group = try RunLoopThreadGroup(count: 4, name: "server")
    var options = ByteStream.Options()
    options.idleTimeout = .seconds(60)
    let server = try StreamServer(listeningOn: address, on: group.runLoops, options: options, connectionLimit: 10_000) { stream in
        do {
            for try await line in stream.lines(limit: 4_096) { try await stream.write(line.uppercased() + "\n") }
        } catch {
            print("a client is gone: \(error)")
        }
    }
    started(server.localAddress)
    await stopped()
    await server.shutdown(grace: .seconds(10))
    await group.shutdown()
}

@Suite(.bounded) struct DocumentedFromNIO {
    @Test func `a server on four threads answers each line, and shuts down`() async throws {
        let (address, isOver) = (Box<RunLoop.SocketAddress?>(nil), Box(false))
        let serving = Task {
            try await serveUpperCase(listeningOn: .ipv4(host: "127.0.0.1", port: 0)) {
                address.value = $0
            } until: {
                try? await suspendUntil("the clients are served") { isOver.value }
            }
        }
        try await suspendUntil("the server listens") { address.value != nil }
        let server = try #require(address.value)
        let thread = try RunLoopThread(name: "client")
        for _ in 0..<8 {
            let stream = try await ByteStream.connect(to: server, on: thread.runLoop)
            try await stream.write("one\ntwo\n")
            #expect(try await stream.read(exactly: 8) == Array("ONE\nTWO\n".utf8))
            stream.close()
        }
        isOver.value = true
        try await serving.value
        thread.stop()
        await thread.join()
    }
}
