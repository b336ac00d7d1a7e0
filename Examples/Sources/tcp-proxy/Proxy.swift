// Passes connections on to another server.
//
//   tcp-proxy PORT HOST PORT       listens on the loopback; ends with SIGTERM
//   tcp-proxy PATH PATH            from one Unix socket to another
//
// A side that reads slowly slows the other one down: `write` waits while 64 KiB are queued, so nothing is read meanwhile, the kernel's
// buffers fill, and the sender waits. The end of one direction does not end the other.

import EventLoop
import EventLoopStreams

@main
enum Proxy {
    static func main() async throws {
        RunLoop.adoptAsyncMain()
        let words = Array(CommandLine.arguments.dropFirst())
        guard words.count == 2 || words.count == 3 else { return print("usage: tcp-proxy PORT HOST PORT | tcp-proxy PATH PATH") }
        // Signals are counted from here on, so this comes before the server.
        var terminations = RunLoop.main.signals(15).makeAsyncIterator()
        let server = try StreamServer(listeningOn: address(words[0]), on: [.main], connectionLimit: 1_000) { client in
            // A server that cannot be reached, or a connection that breaks, ends the client's.
            try? await pass(client, to: Array(words.dropFirst()))
        }
        print("listening on \(server.localAddress)")
        _ = try await terminations.next()
        await server.shutdown(grace: .seconds(1))
    }

    private static func address(_ place: String) -> RunLoop.SocketAddress {
        UInt16(place).map { .ipv4(host: "127.0.0.1", port: $0) } ?? .unix(path: place)
    }

    private static func pass(_ client: ByteStream, to place: [String]) async throws {
        let server =
            if place.count == 2, let port = UInt16(place[1]) {
                try await ByteStream.connect(host: place[0], port: port, on: client.loop)
            } else {
                try await ByteStream.connect(to: address(place[0]), on: client.loop)
            }
        defer { server.close() }
        try await withThrowingTaskGroup { group in
            group.addTask { try await copy(from: client, to: server) }
            group.addTask { try await copy(from: server, to: client) }
            // Throws the first error, which cancels the other direction. `waitForAll` would wait for that one.
            for try await _ in group {}
        }
    }

    private static func copy(from source: ByteStream, to target: ByteStream) async throws {
        while let bytes = try await source.read() { try await target.write(bytes) }
        try await target.finishWriting()
    }
}
