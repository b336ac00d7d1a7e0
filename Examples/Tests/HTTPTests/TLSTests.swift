// Rules proved here (docs/http.md, TLS): a server over TLS answers as one without: requests, large answers, files, sequences, clients that go.

#if HAS_COpenSSL && os(Linux)

import EventLoop
import Glibc
import HTTPTypes
import TestSupport
import Testing

@testable import EventLoopHTTP
@testable import EventLoopStreams
@testable import EventLoopTLS

/// Passes bytes on between a socket and a server, on a thread of its own; on request all but the last one to the server.
private final class Relay: Sendable {
    let (holdsBack, hasHeldBack) = (Box(false), Box(false))
    /// Bytes that the server was sent.
    let passedOn = Box<UInt64>(0)
    private let socket: Int32
    private let thread: JoinableThread<Void>

    init(_ socket: Int32, to server: HTTPServer) throws {
        let client = try Client(to: server.localAddress)
        let server = dup(client.descriptor)
        self.socket = socket
        let (holdsBack, hasHeldBack, passedOn) = (holdsBack, hasHeldBack, passedOn)
        thread = plainThread {
            defer { Glibc.close(server) }
            var piece = [UInt8](repeating: 0, count: 65_536)
            while true {  // ends: with one of the connections
                var pollers = [socket, server].map { pollfd(fd: $0, events: Int16(POLLIN), revents: 0) }
                poll(&pollers, 2, -1)
                for (from, to) in [(0, server), (1, socket)] where pollers[from].revents != 0 {
                    let count = recv(pollers[from].fd, &piece, piece.count, 0)
                    if count <= 0 { return }
                    let isHeldBack = from == 0 && holdsBack.value
                    let first = isHeldBack ? count - 1 : count
                    if from == 0 { passedOn.change { $0 += UInt64(first) } }
                    _ = Glibc.send(to, piece, first, Int32(MSG_NOSIGNAL))
                    if !isHeldBack { continue }
                    hasHeldBack.value = true
                    try waitUntil("the last byte may go") { !holdsBack.value }
                    passedOn.change { $0 += 1 }
                    _ = Glibc.send(to, Array(piece[first..<count]), 1, Int32(MSG_NOSIGNAL))
                }
            }
        }
    }

    func end() throws {
        try thread.join()
        Glibc.close(socket)
    }
}

/// A client whose test decides which encrypted bytes go together.
private final class HandDrivenClient {
    private let engine: TLSEngine
    private let connection: Client
    private var received = ""

    /// Returns after the handshake.
    init(_ server: HTTPServer, _ client: TLSClient) throws {
        engine = try client.makeEngine(host: nil)
        connection = try Client(server)
        engine.begin()
        try send(engine.takeOutput())
        while case .inProgress = engine.handshake { try exchange() }  // ends: with the handshake, or with the connection
    }

    /// One record.
    func encrypted(_ text: String) -> [UInt8] {
        _ = Array(text.utf8).withUnsafeBytes { engine.write($0) }
        return engine.takeOutput()
    }

    func send(_ bytes: some Collection<UInt8>) throws { try connection.send(Array(bytes)) }

    /// Waits for the answer to a request whose handler answers with `path`.
    func receive(_ path: String) throws {
        while !received.contains("\r\n\r\n\(path)") { try exchange() }  // ends: with the answer, or with the connection
        received = ""
    }

    /// Waits for bytes of the server, and sends what TLS answers.
    private func exchange() throws {
        try waitUntilReadable(connection.descriptor, "the server sends something")
        var piece = [UInt8](repeating: 0, count: 65_536)
        let count = recv(connection.descriptor, &piece, piece.count, 0)
        if count <= 0 { throw ClientError(description: "the connection ended behind \(received)") }
        piece[..<count].withUnsafeBytes { engine.receive($0) }
        var space = [UInt8](repeating: 0, count: 65_536)
        while case .bytes(let count) = space.withUnsafeMutableBytes({ engine.read(into: $0) }) {  // ends: with what has come
            received += String(decoding: space[..<count], as: UTF8.self)
        }
        try send(engine.takeOutput())
    }
}

@Suite(.bounded) struct HTTPOverTLSTests {
    /// A certificate that signs itself.
    private func certificate(in folder: String) throws -> TLSServer {
        let (key, chain) = (folder + "/key.pem", folder + "/chain.pem")
        _ = try output(
            of: "openssl",
            [
                "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2", "-subj", "/CN=localhost",
                "-addext", "subjectAltName=DNS:localhost", "-keyout", key, "-out", chain,
            ])
        return try TLSServer(certificateChain: chain, privateKey: key)
    }

    @Test func `requests, large answers, sequences and pipelining go through TLS`() async throws {
        try await withFolder { folder in
            let certificate = try certificate(in: folder)
            let large = [UInt8](repeating: 7, count: 1_000_000)
            var options = HTTPServer.Options()
            options.prepareConnection = { try await $0.startTLS(certificate) }
            let thread = RunningLoop()
            let server = try HTTPServer(listeningOn: .ipv4(host: "127.0.0.1", port: 0), on: [thread.loop], options: options) { request in
                switch request.path {
                case "/large": return Response(body: .bytes(large))
                case "/file": return Response(body: .file(path: folder + "/chain.pem"))
                case "/sequence":
                    let (stream, continuation) = AsyncThrowingStream<[UInt8], any Error>.makeStream()
                    for number in 0..<50 { continuation.yield([UInt8](repeating: UInt8(number), count: 1_000)) }
                    continuation.finish()
                    return Response(body: .sequence(stream))
                default: return .text(request.head.scheme ?? "none")
                }
            }
            let stream = try await ByteStream.connect(to: server.localAddress, on: thread.loop)
            try await stream.startTLS(TLSClient(serverName: "localhost", trustedCertificates: folder + "/chain.pem"))
            try await stream.write(get() + get("/large") + get("/sequence") + get("/file") + get("/", "Connection: close\r\n"))
            var received: [UInt8] = []
            while let piece = try await stream.read() { received += piece }
            let text = String(decoding: received, as: UTF8.self)
            #expect(text.matches(of: #/HTTP/1\.1 200 OK/#).count == 5)
            #expect(text.contains("https") && text.contains("BEGIN CERTIFICATE") && text.contains("3e8\r\n"))
            #expect(received.count(where: { $0 == 7 }) == 1_001_000)
            stream.close()
            await server.shutdown()
            try thread.end()
        }
    }

    /// The kernel has nothing more of it, and the parser nothing yet.
    @Test func `a request of which TLS has a part when the shutdown begins is answered`() async throws {
        try await withFolder { folder in
            let certificate = try certificate(in: folder)
            let accepted = Box<ByteStream?>(nil)
            var options = HTTPServer.Options()
            options.prepareConnection = { stream in
                try await stream.startTLS(certificate)
                accepted.value = stream
            }
            let clock = RunLoop.ManualClock()
            let (thread, clients) = (try RunLoopThread(name: "manual", setup: { $0.use(clock) }), RunningLoop())
            let server = try HTTPServer(listeningOn: .unix(path: folder + "/s"), on: [thread.runLoop], options: options) { .text($0.path) }
            let (ours, theirs) = connectedSockets()
            let relay = try Relay(theirs, to: server)
            let client = try ByteStream(adopting: ours, on: clients.loop)
            try await client.startTLS(TLSClient(serverName: "localhost", trustedCertificates: folder + "/chain.pem"))
            try await client.write(get("/first"))
            try await receive("/first", from: client)
            relay.holdsBack.value = true
            try await client.write(get("/second"))
            try await suspendUntil("the server has read all but one byte") {
                relay.hasHeldBack.value && accepted.value?.bytesReceived == relay.passedOn.value
            }
            let hasDrained = Box(false)
            server.core.drain()
            thread.runLoop.perform { hasDrained.value = true }
            try await suspendUntil("the loop has seen the shutdown") { hasDrained.value }
            relay.holdsBack.value = false
            try await receive("/second", from: client)
            client.close()
            accepted.value = nil
            await server.shutdown(grace: .zero)
            try await elsewhere { try relay.end() }
            try clients.end()
            thread.stop()
            await thread.join()
        }
    }

    /// 1. One read gives the server a request, and a part of the next one's record: of its header, the header, or more.
    /// 2. The server answers the request. It has read nothing since, and the kernel has nothing.
    /// 3. The shutdown begins.
    @Test(arguments: [1, 5, 20])
    func `a request whose record has begun behind the last one is answered after the shutdown has begun`(count: Int) async throws {
        try await withFolder { folder in
            let certificate = try certificate(in: folder)
            var options = HTTPServer.Options()
            options.prepareConnection = { try await $0.startTLS(certificate) }
            // The second that the client has does not end in time that stands still.
            let (address, clock) = (RunLoop.SocketAddress.unix(path: folder + "/s"), RunLoop.ManualClock())
            try await withServer(options: options, address: address, clock: clock, respond: { .text($0.path) }) { server in
                let client = try HandDrivenClient(
                    server, TLSClient(serverName: "localhost", trustedCertificates: folder + "/chain.pem"))
                let (first, second) = (client.encrypted(get("/first")), client.encrypted(get("/second")))
                try client.send(first + second.prefix(count))
                try client.receive("/first")
                let hasDrained = Gate()
                server.core.drain()
                server.core.hosts[0].loop.perform { hasDrained.open() }
                hasDrained.wait()
                try client.send(second.dropFirst(count))
                try client.receive("/second")
            }
        }
    }

    private func receive(_ text: String, from stream: ByteStream) async throws {
        var received: [UInt8] = []
        while !String(decoding: received, as: UTF8.self).contains("\r\n\r\n\(text)") {  // ends: with the answer, or with the connection
            guard let piece = try await stream.read() else {
                throw ClientError(description: "the connection ended before \(text) behind \(String(decoding: received, as: UTF8.self))")
            }
            received += piece
        }
    }

    @Test func `a client that speaks no TLS is closed, and others are served`() async throws {
        try await withFolder { folder in
            let certificate = try certificate(in: folder)
            var options = HTTPServer.Options()
            options.prepareConnection = { try await $0.startTLS(certificate) }
            try await withServer(options: options, respond: { _ in .text("x") }) { server in
                let client = try Client(server)
                try client.send(get())
                let answer = try client.rest()
                #expect(!answer.starts(with: Array("HTTP".utf8)))
            }
        }
    }

    /// 1. The handshake fails, and the server has sent its alert and its end.
    /// 2. A connection that is closed now is reset by what the client still sends, and the reset may destroy the alert.
    @Test func `after a handshake that fails, the connection waits for its client to close`() async throws {
        try await withFolder { folder in
            let certificate = try certificate(in: folder)
            var options = HTTPServer.Options()
            options.prepareConnection = { try await $0.startTLS(certificate) }
            // In time that stands still, the wait has no limit.
            try await withServer(options: options, clock: RunLoop.ManualClock(), respond: { _ in .text("x") }) { server in
                let client = try Client(server)
                try client.send(get())
                _ = try client.rest()
                let host = server.core.hosts[0]
                try waitUntil("the preparation is over") { host.connections.isEmpty }
                // The loop has done what it did with the connection then.
                let isPast = Gate()
                host.loop.perform { isPast.open() }
                isPast.wait()
                #expect(server.connections == 1)
                client.close()
                try waitUntil("the connection ends") { server.connections == 0 }
            }
        }
    }
}

#endif
