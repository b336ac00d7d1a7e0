// Rules proved here, against the program `openssl s_server`:
// - A client speaks with it in both versions, with an application protocol, and with a certificate of its own.
// - A server with a bad certificate is refused.
// - A server that is killed has truncated the stream; one that ends has not.

import EventLoop
import EventLoopStreams
import EventLoopTLS
import TestSupport
import Testing

@Suite(.bounded) struct OpenSSLServerTests {
    private let setup = Setup()

    /// Starts a server, and connects to it.
    private func withServer(
        _ identity: Identity, _ arguments: [String], _ body: (ByteStream, Program) async throws -> Void
    ) async throws {
        let path = setup.files.folder + "/socket"
        let program = try Program(
            "openssl", ["s_server", "-unix", path, "-unlink", "-cert", identity.certificate, "-key", identity.key] + arguments,
            in: setup.files.folder)
        try await withLoops(1) { loops in
            let stream = try await connection(to: path, on: loops[0])
            defer { stream.close() }
            try await body(stream, program)
        }
    }

    @Test(arguments: ["-tls1_2", "-tls1_3"])
    func `it answers an encrypted request`(version: String) async throws {
        try await withServer(setup.identity, [version, "-www", "-alpn", "x,http/1.1"]) { stream, _ in
            try await stream.startTLS(setup.client(["http/1.1", "x"]))
            #expect(stream.tlsVersion == (version == "-tls1_2" ? "TLSv1.2" : "TLSv1.3"))
            #expect(stream.applicationProtocol == "x")
            try await stream.write("GET / HTTP/1.0\r\n\r\n")
            let answer = try await stream.readText()
            #expect(answer.hasPrefix("HTTP/1.0 200 ok\r\n"))
            #expect(stream.tlsError == nil)
        }
    }

    @Test(arguments: ["-tls1_2", "-tls1_3"])
    func `it takes the client's certificate`(version: String) async throws {
        let alice = setup.files.makeIdentity("alice", by: setup.root, usage: "clientAuth")
        let arguments = [version, "-rev", "-Verify", "1", "-verify_return_error", "-CAfile", setup.root.file]
        try await withServer(setup.identity, arguments) { stream, program in
            let client = TLSClient(
                serverName: "localhost", trustedCertificates: setup.root.file, certificate: alice.certificate, privateKey: alice.key)
            try await stream.startTLS(client)
            try await stream.write("abc\n")
            #expect(try await stream.read(exactly: 4) == Array("cba\n".utf8))
            #expect(program.output.contains("CN = alice"))
        }
        try await withServer(setup.identity, arguments) { stream, _ in
            let failure = await stream.failure {
                try await $0.startTLS(setup.client())
                _ = try await $0.read()
            }
            #expect(failure.contains("the peer sent the alert \(version == "-tls1_2" ? 40 : 116)"))
        }
    }

    @Test func `a bad certificate is refused`() async throws {
        let (files, root) = (setup.files, setup.root)
        let other = files.makeIssuer("Other")
        let cases: [(Identity, TLSError.Kind)] = [
            (files.makeIdentity("expired", by: root, .past), .certificateExpired), (files.makeIdentity("self"), .selfSignedCertificate),
            (files.makeIdentity("below", by: other), .unknownIssuer),
            (files.makeIdentity("name", names: ["DNS:example.com"], by: root), .hostNameMismatch),
        ]
        for (identity, kind) in cases {
            try await withServer(identity, ["-rev"]) { stream, _ in
                await #expect(throws: TLSError.self) { try await stream.startTLS(setup.client()) }
                #expect(stream.tlsError?.kind == kind)
            }
        }
    }

    @Test(arguments: ["-tls1_2", "-tls1_3"])
    func `a server that is killed has truncated the stream`(version: String) async throws {
        try await withServer(setup.identity, [version, "-rev"]) { stream, program in
            try await stream.startTLS(setup.client())
            try await stream.write("abc\n")
            #expect(try await stream.read(exactly: 4) == Array("cba\n".utf8))
            program.kill()
            await #expect(throws: RunLoop.SourceError.self) { try await stream.read() }
            #expect(stream.tlsError?.kind == .truncated)
        }
    }

    @Test func `a server that says CLOSE ends properly`() async throws {
        try await withServer(setup.identity, ["-rev"]) { stream, _ in
            try await stream.startTLS(setup.client())
            try await stream.write("CLOSE\n")
            let rest = try await stream.readToEnd()
            #expect(rest.isEmpty && stream.tlsError == nil)
        }
    }

    @Test func `it refuses a client without a version in common`() async throws {
        try await withServer(setup.identity, ["-tls1_2", "-rev"]) { stream, _ in
            let client = TLSClient(serverName: "localhost", trustedCertificates: setup.root.file, minimumVersion: .tls13)
            await #expect(throws: TLSError.self) { try await stream.startTLS(client) }
            #expect(stream.tlsError?.kind == .alert(70))
        }
    }
}
