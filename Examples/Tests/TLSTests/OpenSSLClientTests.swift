// Rules proved here, against the programs `openssl s_client` and curl:
// - A server speaks with them in both versions, and they verify its certificate.
// - New keys, which either side asks for, disturb nothing. Renegotiation is refused, and the connection goes on.
// - A session is resumed with a ticket, also if the server requires certificates.

import EventLoop
import EventLoopStreams
import EventLoopTLS
import TestSupport
import Testing

@Suite(.bounded) struct OpenSSLClientTests {
    private let setup = Setup()

    private func arguments(_ path: String, _ more: [String]) -> [String] {
        [
            "s_client", "-unix", path, "-CAfile", setup.root.file, "-verify_return_error", "-verify_hostname", "localhost", "-servername",
            "localhost",
        ] + more
    }

    @Test(arguments: ["-tls1_2", "-tls1_3"])
    func `a typed line arrives, and so does the answer; keys change in between`(version: String) async throws {
        let folder = setup.files.folder
        let (listener, typing, server) = (Listener(folder + "/socket"), Typing(folder + "/typed"), try setup.server(["echo"]))
        let program = try Program("openssl", arguments(listener.path, [version, "-alpn", "echo"]), in: folder, input: typing.path)
        try await withLoops(1) { loops in
            let stream = try await listener.accept(on: loops[0])
            try await stream.startTLS(server)
            #expect(stream.applicationProtocol == "echo")
            typing.type("first\n")
            var lines = stream.lines().makeAsyncIterator()
            #expect(try await lines.next() == "first")
            try await stream.write("answer 1\n")
            try await suspendUntil("the answer arrives") { program.output.contains("answer 1\n") }
            if version == "-tls1_3" {
                // K: new keys for both sides; k: for the client.
                for (key, number) in [("K", 2), ("k", 3), ("K", 4)] {
                    let before = stream.bytesReceived
                    async let line = stream.read(exactly: 7)
                    typing.type(key + "\n")
                    try await suspendUntil("the request for new keys arrives") { stream.bytesReceived > before }
                    typing.type("line \(number)\n")
                    #expect(try await line == Array("line \(number)\n".utf8))
                    try await stream.write("answer \(number)\n")
                    try await suspendUntil("the answer arrives") { program.output.contains("answer \(number)\n") }
                }
            }
            typing.type("Q\n")
            #expect(try await lines.next() == nil, "close_notify")
            stream.closeAfterWriting()
            let code = try await program.end()
            #expect(code == 0, "\(program.output)")
            #expect(program.output.contains("Verification: OK"))
        }
    }

    @Test func `renegotiation is refused`() async throws {
        let folder = setup.files.folder
        let (listener, typing, server) = (Listener(folder + "/socket"), Typing(folder + "/typed"), try setup.server())
        let program = try Program("openssl", arguments(listener.path, ["-tls1_2"]), in: folder, input: typing.path)
        try await withLoops(1) { loops in
            let stream = try await listener.accept(on: loops[0])
            try await stream.startTLS(server)
            typing.type("first\n")
            var lines = stream.lines().makeAsyncIterator()
            #expect(try await lines.next() == "first")
            typing.type("R\n")
            // The program ends when its wish is refused.
            let end = await stream.failure { _ in while try await lines.next() != nil {} }
            #expect(end == "none" || end.hasPrefix("TLS: "))
            stream.close()
            _ = try await program.end()
            #expect(program.output.contains("no renegotiation"))
        }
    }

    @Test(arguments: ["-tls1_2", "-tls1_3"])
    func `a session is resumed with a ticket, with client certificates`(version: String) async throws {
        let folder = setup.files.folder
        let alice = setup.files.makeIdentity("alice", by: setup.root, usage: "clientAuth")
        let server = try TLSServer(
            certificateChain: setup.identity.certificate, privateKey: setup.identity.key, clientCertificates: setup.root.file)
        let listener = Listener(folder + "/socket")
        for (round, option) in ["-sess_out", "-sess_in"].enumerated() {
            let program = try Program(
                "openssl",
                arguments(
                    listener.path, [version, "-ign_eof", "-cert", alice.certificate, "-key", alice.key, option, folder + "/session"]),
                in: folder)
            try await withLoops(1) { loops in
                let stream = try await listener.accept(on: loops[0])
                try await stream.startTLS(server)
                #expect(stream.peerCertificateSubject == "CN=alice", "also in a resumed session")
                try await stream.write("hello\n")
                try await suspendUntil("the client has read it, and the tickets") { program.output.contains("hello\n") }
                stream.closeAfterWriting()
                _ = try await program.end()
            }
            #expect(program.output.contains(round == 0 ? "New, TLSv1" : "Reused, TLSv1"), "\(program.output)")
        }
    }

    /// Serves one request with curl, and returns its exit code and output.
    private func curl(_ server: TLSServer, _ more: [String]) async throws -> (Int32, String, protocol: String?) {
        let folder = setup.files.folder
        let listener = Listener(folder + "/socket")
        let program = try Program(
            "curl", ["--silent", "--show-error", "--noproxy", "*", "--unix-socket", listener.path] + more + ["https://localhost/path"],
            in: folder)
        return try await withLoops(1) { loops in
            let stream = try await listener.accept(on: loops[0])
            let failure = await stream.failure { stream in
                try await stream.startTLS(server)
                var headers = stream.lines().makeAsyncIterator()
                while let line = try await headers.next(), !line.isEmpty {}  // ends: with the request's head
                let body = String(repeating: "0123456789", count: 30_000)
                try await stream.write("HTTP/1.1 200 OK\r\nContent-Length: \(body.utf8.count)\r\nConnection: close\r\n\r\n" + body)
            }
            stream.closeAfterWriting()
            let code = try await program.end()
            return (code, failure == "none" ? program.output : "\(failure); \(program.output)", stream.applicationProtocol)
        }
    }

    @Test(arguments: ["1.2", "1.3"])
    func `curl gets an answer`(version: String) async throws {
        let (code, output, protocolName) = try await curl(
            setup.server(["h3", "http/1.1"], upTo: version == "1.2" ? .tls12 : .tls13), ["--cacert", setup.root.file, "--tlsv\(version)"])
        #expect(code == 0)
        #expect(output == String(repeating: "0123456789", count: 30_000))
        #expect(protocolName == "http/1.1")
    }

    @Test func `curl refuses a certificate of another issuer, and the server hears of it`() async throws {
        let other = setup.files.makeIssuer("Other")
        let (code, output, _) = try await curl(setup.server(), ["--cacert", other.file])
        // CURLE_PEER_FAILED_VERIFICATION
        #expect(code == 60)
        #expect(output.contains("TLS: the peer sent the alert 48, unknown CA"))
    }
}
