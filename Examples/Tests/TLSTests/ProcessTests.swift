// TLS and the end of processes: exit() while loops use TLS, and children of fork. Each test is in a process of its own.

import EventLoop
import EventLoopStreams
import EventLoopTLS
import TestSupport
import Testing

#if os(Linux)
import Glibc

@Suite(.bounded, .serialized) struct ProcessTests {
    private let setup = Setup()

    /// A client and a server that send to each other without end, on loops of their own.
    private static func play(_ root: String, _ certificate: String, _ key: String) async throws -> (ByteStream, ByteStream, [RunLoopThread])
    {
        let threads = try (0..<2).map { try RunLoopThread(name: "tls \($0)") }
        let (one, two) = connectedPair()
        let client = try ByteStream(adopting: one, on: threads[0].runLoop)
        let server = try ByteStream(adopting: two, on: threads[1].runLoop)
        let context = try TLSServer(certificateChain: certificate, privateKey: key)
        async let accepted: Void = server.startTLS(context)
        try await client.startTLS(TLSClient(serverName: "localhost", trustedCertificates: root))
        try await accepted
        return (client, server, threads)
    }

    /// Before OpenSSL's cleanup was left out, 5 of 150 processes crashed. EVENTLOOP_EXITS=300 plays that many.
    @Test func `exit while loops use TLS is an orderly end`() async throws {
        let rounds = getenv("EVENTLOOP_EXITS").flatMap { Int(String(cString: $0)) } ?? 4
        let (root, certificate, key) = (setup.root.file, setup.identity.certificate, setup.identity.key)
        for _ in 0..<rounds {
            await #expect(processExitsWith: .exitCode(7)) {
                [root = root as String, certificate = certificate as String, key = key as String] in
                var streams: [ByteStream] = []
                for _ in 0..<2 {
                    let (client, server, _) = try await Self.play(root, certificate, key)
                    for stream in [client, server] { stream.onReceive { stream, bytes in stream.send(bytes.take(bytes.count)) } }
                    client.send([UInt8](repeating: 1, count: 10_000))
                    streams.append(client)
                }
                // Handshakes, too, are in progress.
                for _ in 0..<2 { Task { while true { _ = try await Self.play(root, certificate, key) } } }
                try await suspendUntil("they talk") { streams.allSatisfy { $0.bytesReceived > 100_000 } }
                exit(7)
            }
        }
    }

    @Test func `a child that ends its use of a stream over TLS sends nothing to the parent's peer`() async throws {
        let (root, certificate, key) = (setup.root.file, setup.identity.certificate, setup.identity.key)
        await #expect(processExitsWith: .success) { [root = root as String, certificate = certificate as String, key = key as String] in
            let (client, server, threads) = try await Self.play(root, certificate, key)
            try await server.write(".")
            #expect(try await client.read() == Array(".".utf8))
            let box = Box<ByteStream?>(client)
            let sent = client.bytesSent
            for use in 0..<6 {
                let end = oneForkedChild {
                    killLater(seconds: 60)
                    switch use {
                    case 0: box.value = nil
                    case 1: box.value?.close()
                    case 2: box.value?.closeAfterWriting()
                    case 3: box.value?.send("from the child")
                    case 4: box.value?.finishSending()
                    default: exit(0)
                    }
                    return 0
                }
                #expect(end.status == 0, "\(use): \(end)")
            }
            let stream = try #require(box.value)
            #expect(stream.bytesSent == sent)
            try await stream.write("from the parent")
            #expect(try await server.read() == Array("from the parent".utf8))
            #expect(server.isOpen && server.tlsError == nil)
            for thread in threads {
                thread.stop()
                await thread.join()
            }
        }
    }
}
#endif
