// The server of docs/concurrency.md, compiled and run.
//
// DocumentedCodeTests compares its block in that page with this file, line by line: change both.

import EventLoop
import EventLoopStreams
import EventLoopTestSupport
import Testing

enum Log {
    @TaskLocal static var client = "nobody"
}

/// All that serves a connection, child tasks included, can name its client.
func startNamingServer(on loop: RunLoop) throws -> StreamServer {
    try StreamServer(listeningOn: .ipv4(host: "127.0.0.1", port: 0), on: [loop]) { stream in
        let client = stream.peerAddress.map { "\($0)" } ?? "nobody"
        await Log.$client.withValue(client) { await sayHello(stream) }
    }
}

func sayHello(_ stream: ByteStream) async {
    try? await stream.write("hello, \(Log.client)\n")
}

@Suite(.bounded) struct DocumentedConnectionTasks {
    @Test func `what serves a connection knows its client from a task-local`() async throws {
        try await withTestLoop { loop in
            let server = try startNamingServer(on: loop)
            let client = try await ByteStream.connect(to: server.localAddress, on: loop)
            let address = try #require(client.localAddress)
            #expect(try await client.readLine() == "hello, \(address)")
            client.close()
            await server.shutdown()
        }
    }
}
