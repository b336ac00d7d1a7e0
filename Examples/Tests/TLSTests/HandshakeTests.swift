// Rules proved here, on engines in memory:
// - A handshake succeeds with both versions, wherever the bytes are split, and both sides know version and application protocol.
// - A client accepts a server only if its chain is trusted, valid today, and for the client's name; the error says what is wrong.
// - A server that requires client certificates accepts only clients that have one of its issuers.
// - Bytes that end during the handshake, at whatever byte, are a truncation.
// - Bytes of another protocol make the handshake fail.
// - After it, an engine knows of a record that has begun.

import EventLoop
import TestSupport
import Testing

@testable import EventLoopStreams
@testable import EventLoopTLS

@Suite struct HandshakeTests {
    private let files = Certificates()
    private let root: Certificates.Issuer

    init() { root = files.makeIssuer("Root") }

    private func server(
        _ identity: Identity? = nil, _ protocols: [String] = [], clients: String? = nil,
        _ versions: ClosedRange<TLSVersion> = .tls12 ... .tls13
    ) throws -> TLSServer {
        let identity = identity ?? files.makeIdentity("server", by: root)
        return try TLSServer(
            certificateChain: identity.certificate, privateKey: identity.key, applicationProtocols: protocols, clientCertificates: clients,
            minimumVersion: versions.lowerBound, maximumVersion: versions.upperBound)
    }

    private func client(
        _ name: String? = "localhost", _ protocols: [String] = [], _ identity: Identity? = nil,
        _ versions: ClosedRange<TLSVersion> = .tls12 ... .tls13, verification: TLSClient.Verification = .full
    ) -> TLSClient {
        TLSClient(
            serverName: name, trustedCertificates: root.file, applicationProtocols: protocols, certificate: identity?.certificate,
            privateKey: identity?.key, minimumVersion: versions.lowerBound, maximumVersion: versions.upperBound, verification: verification)
    }

    // MARK: Success

    @Test(arguments: [TLSVersion.tls12, .tls13])
    func `both sides know what they agreed on`(version: TLSVersion) throws {
        var pair = try EnginePair(client("localhost", ["h2", "http/1.1"]), server(nil, ["spdy", "http/1.1", "h2"], version...version))
        pair.exchange()
        for side in [pair.client, pair.server] {
            #expect(side.isDone)
            #expect(side.session?.version == (version == .tls12 ? "TLSv1.2" : "TLSv1.3"))
            #expect(side.session?.applicationProtocol == "http/1.1", "the server's order counts")
        }
        #expect(pair.client.session?.peerCertificate?.subject == "CN=server")
        #expect(pair.server.session?.peerCertificate == nil)
    }

    @Test(arguments: [TLSVersion.tls12, .tls13])
    func `a handshake does not depend on where its bytes are split`(version: TLSVersion) throws {
        let (client, server) = (client("localhost", ["a"], nil, version...version), try server(nil, ["a"]))
        var first = try EnginePair(client, server)
        first.exchange()
        // Signatures differ in length by a few bytes.
        let (most, more) = (first.fromClient.count + 4, first.fromServer.count + 4)
        for position in 1..<max(most, more) {
            var pair = try EnginePair(client, server)
            pair.exchange(cutClient: cut(at: position), cutServer: cut(at: position))
            try #require(pair.isDone, "split at byte \(position)")
            pair.client.write("question")
            pair.exchange()
            try #require(pair.server.readText() == "question", "split at byte \(position)")
        }
        for size in [1, 2, 5, 6, 100] {
            var pair = try EnginePair(client, server)
            pair.exchange(cutClient: inPieces(of: size), cutServer: inPieces(of: size))
            #expect(pair.isDone, "in pieces of \(size)")
        }
    }

    @Test(arguments: [TLSVersion.tls12, .tls13])
    func `a part of a record is unread input, wherever it ends, and a record that was read is none`(version: TLSVersion) throws {
        var pair = try EnginePair(client("localhost", [], nil, version...version), server())
        pair.exchange()
        for text in ["question", "another"] {
            pair.client.write(text)
            let record = pair.client.takeOutput()
            for (number, byte) in record.enumerated() {
                #expect(!pair.server.hasUnreadInput || number > 0)
                pair.server.receive([byte])
                #expect(pair.server.hasUnreadInput, "byte \(number), before it is read")
                let isWhole = number == record.count - 1
                #expect(pair.server.readText() == (isWhole ? text : ""), "byte \(number)")
                #expect(pair.server.hasUnreadInput != isWhole, "byte \(number)")
            }
        }
    }

    @Test func `a server without protocols, and a client without, agree on none`() throws {
        for (offered, spoken) in [(["h2"], []), ([], ["h2"]), ([], [])] as [([String], [String])] {
            var pair = try EnginePair(client("localhost", offered), server(nil, spoken))
            pair.exchange()
            #expect(pair.isDone && pair.client.session?.applicationProtocol == nil && pair.server.session?.applicationProtocol == nil)
        }
    }

    @Test(arguments: [TLSVersion.tls12, .tls13])
    func `without a protocol in common, both sides fail`(version: TLSVersion) throws {
        var pair = try EnginePair(client("localhost", ["h2"]), server(nil, ["http/1.1"], version...version))
        pair.exchange()
        #expect(pair.client.handshakeError?.kind == .alert(120))
        #expect(pair.server.handshakeError?.kind == .protocolError)
    }

    @Test func `without a version in common, both sides fail`() throws {
        var pair = try EnginePair(client("localhost", [], nil, .tls12 ... .tls12), server(nil, [], .tls13 ... .tls13))
        pair.exchange()
        #expect(pair.client.handshakeError?.kind == .alert(70))
        #expect(pair.server.handshakeError?.kind == .protocolError)
    }

    // MARK: Verification

    @Test(arguments: [
        ("localhost", ["DNS:localhost"]), ("LOCALHOST", ["DNS:localhost"]), ("localhost.", ["DNS:localhost"]),
        ("a.example.com", ["DNS:other.org", "DNS:*.example.com"]), ("127.0.0.1", ["IP:127.0.0.1"]), ("::1", ["IP:::1"]),
        ("[::1]", ["IP:0:0:0:0:0:0:0:1"]), ("fe80::1%eth0", ["IP:fe80::1"]), ("xn--bcher-kva.example", ["DNS:xn--bcher-kva.example"]),
    ])
    func `a name of the certificate is accepted`(name: String, names: [String]) throws {
        var pair = try EnginePair(client(name), server(files.makeIdentity("server", names: names, by: root)))
        pair.exchange()
        #expect(pair.isDone, "\(pair.client.handshakeError as Any)")
    }

    @Test(arguments: [
        ("localhost", ["DNS:example.com"]), ("localhost", []), ("a.b.example.com", ["DNS:*.example.com"]),
        ("example.com", ["DNS:*.example.com"]),
        ("abc.example.com", ["DNS:a*.example.com"]), ("127.0.0.1", ["IP:127.0.0.2"]), ("127.0.0.1", ["DNS:127.0.0.1"]),
        ("::1", ["IP:127.0.0.1"]), ("localhost", ["DNS:localhost.evil.org"]), ("localhost", ["email:localhost@localhost"]),
    ])
    func `another name is refused, and the server is told`(name: String, names: [String]) throws {
        // Its common name is the right one, and does not count.
        var pair = try EnginePair(client(name), server(files.makeIdentity(name, names: names, by: root)))
        pair.exchange()
        let error = try #require(pair.client.handshakeError)
        #expect(error.kind == .hostNameMismatch)
        #expect(error.serverName == name)
        #expect(error.description.hasPrefix("TLS with \(name): the peer's certificate is refused: "))
        let toldServer = pair.server.handshakeError ?? pair.server.failure
        #expect(toldServer?.kind == .alert(42), "bad_certificate")
    }

    @Test func `without a server name, the peer's address counts`() throws {
        let server = try server()
        var pair = try EnginePair(client(nil), server, address: "127.0.0.1")
        pair.exchange()
        #expect(pair.isDone)
        var other = try EnginePair(client(nil), server, address: "127.0.0.2")
        other.exchange()
        #expect(other.client.handshakeError?.kind == .hostNameMismatch)
        let error = #expect(throws: TLSError.self) { try client(nil).makeEngine(host: nil) }
        #expect(error?.kind == .configuration)
    }

    @Test(arguments: ["", ".", "a b", "bücher.example", "a\0.example", ".example", String(repeating: "a", count: 300)])
    func `a name that cannot be sent is refused before the handshake`(name: String) throws {
        let error = #expect(throws: TLSError.self) { try client(name).makeEngine(host: nil) }
        #expect(error?.kind == .configuration)
    }

    @Test func `an expired certificate, and one of tomorrow, are refused`() throws {
        for (validity, kind) in [(Validity.past, TLSError.Kind.certificateExpired), (.future, .certificateNotYetValid)] {
            var pair = try EnginePair(client(), server(files.makeIdentity("server", by: root, validity)))
            pair.exchange()
            #expect(pair.client.handshakeError?.kind == kind)
        }
    }

    @Test func `a certificate under an expired root is refused`() throws {
        let old = files.makeIssuer("Old root", .past)
        let server = try server(files.makeIdentity("server", by: old))
        var pair = try EnginePair(TLSClient(serverName: "localhost", trustedCertificates: old.file), server)
        pair.exchange()
        #expect(pair.client.handshakeError?.kind == .certificateExpired)
    }

    @Test func `an untrusted issuer is refused, and so is a missing one`() throws {
        let (other, between) = (files.makeIssuer("Other"), files.makeIssuer("Between", by: root))
        let cases: [(Identity, TLSError.Kind?)] = [
            (files.makeIdentity("self"), .selfSignedCertificate),
            (files.makeIdentity("below", by: other), .unknownIssuer),
            (files.makeIdentity("below with root", by: other, sending: [other]), .selfSignedCertificate),
            (files.makeIdentity("missing", by: between), .unknownIssuer),
            (files.makeIdentity("complete", by: between, sending: [between]), nil),
            (files.makeIdentity("purpose", by: root, usage: "clientAuth"), .certificateRejected),
        ]
        for (identity, kind) in cases {
            var pair = try EnginePair(client(), server(identity))
            pair.exchange()
            #expect(pair.client.handshakeError?.kind == kind, "\(identity.certificate)")
            #expect(pair.isDone == (kind == nil), "\(identity.certificate)")
        }
    }

    @Test func `the system's certificates do not include the test's`() throws {
        var pair = try EnginePair(TLSClient(serverName: "localhost"), server())
        pair.exchange()
        #expect(pair.client.handshakeError?.kind == .unknownIssuer)
    }

    @Test func `a server's own certificate can be the trusted one`() throws {
        for parent in [nil, root] {
            let identity = files.makeIdentity("pinned", by: parent)
            var pair = try EnginePair(TLSClient(serverName: "localhost", trustedCertificates: identity.certificate), server(identity))
            pair.exchange()
            #expect(pair.isDone, "\(pair.client.handshakeError as Any)")
        }
    }

    @Test func `verification can be reduced, and says so in its name`() throws {
        let (wrongName, wrongIssuer) = (files.makeIdentity("name", names: [], by: root), files.makeIdentity("issuer", names: []))
        for (identity, verification, isAccepted) in [
            (wrongName, TLSClient.Verification.chainOnly, true), (wrongIssuer, .chainOnly, false), (wrongIssuer, .none, true),
        ] {
            var pair = try EnginePair(client("localhost", verification: verification), server(identity))
            pair.exchange()
            #expect(pair.isDone == isAccepted)
        }
    }

    // MARK: Client certificates

    @Test(arguments: [TLSVersion.tls12, .tls13])
    func `a client with a certificate of the server's issuer is accepted, and known`(version: TLSVersion) throws {
        let identity = files.makeIdentity("Älice, \"A\"", names: [], by: root, usage: "clientAuth")
        var pair = try EnginePair(client("localhost", [], identity), server(nil, [], clients: root.file, version...version))
        pair.exchange()
        #expect(pair.isDone)
        #expect(pair.server.session?.peerCertificate?.subject == "CN=Älice\\, \\\"A\\\"")
        #expect(pair.server.session?.peerCertificate?.bytes.first == 0x30)
    }

    @Test(arguments: [TLSVersion.tls12, .tls13])
    func `clients without an accepted certificate are refused, and told`(version: TLSVersion) throws {
        let other = files.makeIssuer("Other")
        let cases: [(Identity?, TLSError.Kind, UInt8)] = [
            (nil, .certificateMissing, version == .tls12 ? 40 : 116), (files.makeIdentity("self"), .selfSignedCertificate, 48),
            (files.makeIdentity("below", by: other), .unknownIssuer, 48),
            (files.makeIdentity("late", by: root, .past), .certificateExpired, 45),
            (files.makeIdentity("server purpose", by: root, usage: "serverAuth"), .certificateRejected, 43),
        ]
        for (identity, kind, alert) in cases {
            var pair = try EnginePair(client("localhost", [], identity), server(nil, [], clients: root.file, version...version))
            pair.exchange()
            #expect(pair.server.handshakeError?.kind == kind)
            // In TLS 1.3 the client's handshake has ended when the server reads its certificate.
            if version == .tls13 { _ = pair.client.readAll() }
            #expect(pair.client.failure?.kind == .alert(alert))
        }
    }

    // MARK: Broken peers

    @Test(arguments: [TLSVersion.tls12, .tls13])
    func `bytes that end during the handshake, at whatever byte, are a truncation`(version: TLSVersion) throws {
        let (client, server) = (client("localhost", ["a"], nil, version...version), try server(nil, ["a"]))
        var full = try EnginePair(client, server)
        full.exchange()
        for isClient in [true, false] {
            var position = 0
            while true {  // ends: the side that gets enough bytes completes its handshake
                let pair = try EnginePair(client, server)
                let (cutSide, other) = isClient ? (pair.client, pair.server) : (pair.server, pair.client)
                deliver(position, to: cutSide, from: other)
                if cutSide.isDone { break }
                cutSide.receiveEnd()
                try #require(cutSide.handshakeError?.kind == .truncated, "after \(position) bytes")
                position += 1
            }
            #expect(position > 100)
        }
    }

    /// Everything goes to `other`, and only so many bytes go to `side`.
    private func deliver(_ count: Int, to side: TLSEngine, from other: TLSEngine) {
        side.begin()
        other.begin()
        var left = count
        while true {  // ends: each side stops after the handshake
            let (out, back) = (side.takeOutput(), other.takeOutput())
            if out.isEmpty && back.isEmpty { return }
            other.receive(out)
            side.receive(back.prefix(left))
            left -= min(left, back.count)
        }
    }

    @Test func `another protocol makes the handshake fail, and says what it was`() throws {
        for text in [
            "GET / HTTP/1.1\r\nHost: a\r\n\r\n", "EHLO example.com\r\n", "SSH-2.0-OpenSSH_9\r\n", String(repeating: "\0", count: 100),
        ] {
            let server = try server().makeEngine()
            server.begin()
            server.receive(text.utf8)
            #expect(server.handshakeError?.kind == .protocolError)
            let client = try client().makeEngine(host: nil)
            client.begin()
            client.receive(text.utf8)
            #expect(client.handshakeError?.kind == .protocolError)
        }
        let server = try server().makeEngine()
        server.begin()
        server.receive("GET / HTTP/1.1\r\n".utf8)
        #expect(server.handshakeError?.description == "TLS: http request")
    }

    @Test func `plain bytes before the handshake make it fail`() throws {
        // What an attacker inserts behind STARTTLS, before the encryption.
        var pair = try EnginePair(client(), server())
        pair.server.begin()
        pair.server.receive("RCPT TO:<evil@example.com>\r\n".utf8)
        pair.exchange()
        #expect(pair.server.handshakeError?.kind == .protocolError)
        #expect(!pair.client.isDone)
        pair.client.receiveEnd()
        #expect(pair.client.handshakeError?.kind == .truncated)
    }
}
