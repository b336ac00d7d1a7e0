// Rules proved here, for the example https-get, against a server of this library:
// - It prints bodies with a length, in chunks, and up to the end of the connection.
// - It fails if the connection is cut, or if the certificate is not trusted.

import EventLoop
import EventLoopStreams
import EventLoopTLS
import TestSupport
import Testing

@Suite(.bounded) struct HTTPSGetTests {
    private let setup = Setup()
    private static let body = String(repeating: "0123456789abcdef", count: 10_000)

    @Sendable private static func answer(_ stream: ByteStream, _ tls: TLSServer) async throws {
        try await stream.startTLS(tls)
        var lines = stream.lines().makeAsyncIterator()
        let path = try await lines.next()?.split(separator: " ").dropFirst().first ?? ""
        while let line = try await lines.next(), !line.isEmpty {}  // ends: with the request's head
        let head = "HTTP/1.1 200 OK\r\nServer: test\r\n"
        switch path {
        case "/length": try await stream.write(head + "Content-Length: \(body.utf8.count)\r\n\r\n" + body)
        case "/chunks":
            try await stream.write(head + "Transfer-Encoding: chunked\r\n\r\n")
            for start in stride(from: 0, to: 16_000, by: 1_000) {
                _ = start
                try await stream.write("2710;extension=1\r\n" + body.prefix(10_000) + "\r\n")
            }
            try await stream.write("0\r\n\r\n")
        case "/missing": try await stream.write("HTTP/1.1 404 Not Found\r\nContent-Length: 5\r\n\r\nnone\n")
        case "/end": try await stream.write(head + "\r\n" + body)
        case "/cut":
            try await stream.write(head + "\r\n" + body)
            try await suspendUntil("it is sent") { stream.bytesWaiting == 0 }
            stream.close()
        default: try await stream.write("nonsense\r\n")
        }
    }

    /// Runs the program against a server.
    private func get(_ path: String, trusting file: String? = nil) async throws -> (code: Int32, output: String) {
        let tls = try setup.server(["http/1.1"])
        return try await withLoops(1) { loops in
            let server = try StreamServer(listeningOn: .ipv4(host: "127.0.0.1", port: 0), on: loops) { stream in
                try? await Self.answer(stream, tls)
            }
            guard case .ipv4(_, let port) = server.localAddress else { throw SystemFailure("no port") }
            let program = Program(
                path: try builtProgramPath("https-get"), ["localhost", "\(port)", path, file ?? setup.root.file], in: setup.files.folder)
            let code = try await program.end()
            await server.shutdown(grace: .zero)
            return (code, program.output)
        }
    }

    @Test(arguments: ["/length", "/end", "/chunks"])
    func `it prints the status and the body`(path: String) async throws {
        let (code, output) = try await get(path)
        #expect(code == 0)
        let same =
            output == "200 over TLSv1.3\n"
            + (path == "/chunks" ? String(repeating: String(Self.body.prefix(10_000)), count: 16) : Self.body)
        #expect(same, "\(output.prefix(200))")
    }

    @Test func `it prints other statuses, too`() async throws {
        let (code, output) = try await get("/missing")
        #expect(code == 0 && output == "404 over TLSv1.3\nnone\n")
    }

    @Test(arguments: ["/cut", "/nonsense"])
    func `it fails if the answer is cut, or none`(path: String) async throws {
        let (code, output) = try await get(path)
        #expect(code != 0 && !output.contains("200 over"))
        if path == "/cut" { #expect(output.contains("truncated")) }
    }

    @Test func `it does not trust another issuer`() async throws {
        let (code, output) = try await get("/length", trusting: setup.files.makeIssuer("Other").file)
        #expect(code != 0 && output.contains("TLS with localhost: the peer's certificate is refused"))
    }
}
