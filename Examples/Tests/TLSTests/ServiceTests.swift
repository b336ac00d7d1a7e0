// Rules proved here:
// - A server has several certificates, and shows the one for the name that the client asks for. Keys may be encrypted.
// - A client resumes sessions of the same name and address, in both versions, from any thread, and remembers a bounded number.
// - An end without close_notify is a failure, unless the client says otherwise. A timeout sends close_notify first.

import EventLoop
import Synchronization
import TestSupport
import Testing

@testable import EventLoopStreams
@testable import EventLoopTLS

@Suite(.bounded) struct CertificateTests {
    private let files = Certificates()

    private func certificate(_ identity: Identity) throws -> TLSCertificate {
        try TLSCertificate(chain: text(of: identity.certificate), privateKey: text(of: identity.key))
    }

    private func isRefused(_ body: () throws -> Void) -> Bool {
        do { try body() } catch { return (error as? TLSError)?.kind == .configuration }
        return false
    }

    @Test(arguments: [TLSVersion.tls12, .tls13])
    func `the server shows the certificate for the client's name, with its issuers, and the first one otherwise`(
        version: TLSVersion
    ) throws {
        let root = files.makeIssuer("Root")
        let between = files.makeIssuer("Between", by: root)
        let server = try TLSServer(
            certificates: [
                certificate(files.makeIdentity("first", names: ["DNS:first.example"], by: root)),
                certificate(files.makeIdentity("second", names: ["DNS:second.example"], by: between, sending: [between])),
                certificate(files.makeIdentity("wild", names: ["DNS:*.wild.example"], by: root)),
            ], maximumVersion: version)
        func shown(to name: String?, _ verification: TLSClient.Verification) throws -> (subject: String?, asked: String?) {
            let client = TLSClient(serverName: name, trustedCertificates: root.file, verification: verification)
            var pair = try EnginePair(client, server)
            pair.exchange()
            try #require(pair.isDone, "\(String(describing: pair.client.handshakeError))")
            return (pair.client.session?.peerCertificate?.subject, pair.server.session?.serverName)
        }
        for (name, subject) in [("first.example", "first"), ("second.example", "second"), ("a.wild.example", "wild")] {
            let (shown, asked) = try shown(to: name, .full)
            #expect(shown == "CN=\(subject)" && asked == name)
        }
        for name in ["other.example", "a.b.wild.example", "wild.example"] {
            #expect(try shown(to: name, .chainOnly).subject == "CN=first")
        }
        #expect(try shown(to: nil, .chainOnly) == ("CN=first", nil))
    }

    @Test func `a client may have its own certificate beside several of the server`() throws {
        let root = files.makeIssuer("Root")
        let server = try TLSServer(
            certificates: [certificate(files.makeIdentity("server", by: root))], clientCertificates: root.file)
        let alice = files.makeIdentity("alice", by: root)
        var pair = try EnginePair(
            TLSClient(
                serverName: "localhost", trustedCertificates: root.file, certificate: alice.certificate, privateKey: alice.key), server)
        pair.exchange()
        #expect(pair.server.session?.peerCertificate?.subject == "CN=alice")
    }

    @Test func `an encrypted key needs its passphrase`() throws {
        let one = files.makeIdentity("one")
        let (chain, key) = (try text(of: one.certificate), try text(of: files.encryptedCopy(ofKey: one.key)))
        _ = try TLSServer(certificates: [TLSCertificate(chain: chain, privateKey: key, passphrase: "secret")])
        for passphrase in [nil, "wrong", "", "secret\0"] {
            #expect(isRefused { _ = try TLSCertificate(chain: chain, privateKey: key, passphrase: passphrase) })
        }
    }

    @Test func `text that cannot be used is an error`() throws {
        let (one, two) = (files.makeIdentity("one"), files.makeIdentity("two"))
        let (chain, key) = (try text(of: one.certificate), try text(of: one.key))
        for (chain, key) in [
            ("", key), (chain, ""), (key, chain), (chain, try text(of: two.key)), (chain + "\0", key), (chain, key + "\0"),
            (chain + "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----\n", key),
        ] {
            #expect(isRefused { _ = try TLSCertificate(chain: chain, privateKey: key) })
        }
        #expect(isRefused { _ = try TLSServer(certificates: []) })
        #expect(isRefused { _ = try TLSServer(certificates: [certificate(one)], applicationProtocols: ["a\0"]) })
        #expect(isRefused { _ = try TLSServer(certificates: [certificate(one)], clientCertificates: one.certificate + "\0") })
    }

    @Test func `a running server gets another certificate, and its connections stay`() async throws {
        let root = files.makeIssuer("Root")
        let client = TLSClient(serverName: "localhost", trustedCertificates: root.file)
        let current = Mutex(try TLSServer(certificates: [certificate(files.makeIdentity("old", by: root))]))
        try await withLoops(2) { loops in
            let server = try StreamServer(listeningOn: .ipv4(host: "127.0.0.1", port: 0), on: [loops[0]]) { stream in
                let tls = current.withLock { $0 }
                guard (try? await stream.startTLS(tls)) != nil else { return }
                while let bytes = try? await stream.read() { try? await stream.write(bytes) }  // ends: with the connection
            }
            func connect() async throws -> ByteStream {
                let stream = try await ByteStream.connect(to: server.localAddress, on: loops[1])
                try await stream.startTLS(client)
                return stream
            }
            let before = try await connect()
            let renewed = try TLSServer(certificates: [certificate(files.makeIdentity("new", by: root))])
            current.withLock { $0 = renewed }
            let after = try await connect()
            #expect(before.peerCertificateSubject == "CN=old" && after.peerCertificateSubject == "CN=new")
            for stream in [before, after] {
                try await stream.write("still here")
                #expect(try await stream.read(exactly: 10) == Array("still here".utf8))
                stream.closeAfterWriting()
            }
            await server.shutdown()
        }
    }
}

@Suite(.bounded) struct ResumptionTests {
    private let setup = Setup()

    /// Whether the connection resumed a session, at both sides.
    private func connect(_ client: TLSClient, _ server: TLSServer, address: String = "one") throws -> Bool {
        var pair = try connected(client, server, address)
        // The tickets of TLS 1.3 come with the first bytes.
        pair.server.write("hello")
        pair.exchange()
        #expect(pair.client.readText() == "hello")
        let resumed = try #require(pair.client.session).wasResumed
        #expect(pair.server.session?.wasResumed == resumed)
        #expect(pair.client.session?.peerCertificate?.subject == "CN=server", "also of a resumed session")
        return resumed
    }

    private func connected(_ client: TLSClient, _ server: TLSServer, _ address: String) throws -> EnginePair {
        var pair = EnginePair(try client.makeEngine(host: "localhost", address: address), try server.makeEngine())
        pair.exchange()
        try #require(pair.isDone)
        return pair
    }

    @Test(arguments: [TLSVersion.tls12, .tls13])
    func `a client and its copies resume sessions of the same name and address`(version: TLSVersion) throws {
        let (client, server) = (setup.client(), try setup.server(upTo: version))
        let copy = client
        #expect(try connect(client, server) == false)
        for _ in 0..<5 { #expect(try connect(copy, server)) }
        #expect(try connect(client, server, address: "two") == false, "another address")
        #expect(try connect(setup.client(), server) == false, "another client value")
        var without = client
        without.resumesSessions = false
        #expect(try connect(without, server) == false)
        #expect(try connect(client, setup.server(upTo: version)) == false, "another server value has other keys, and refuses nobody")
        #expect(try connect(client, server) == false, "the newest session is tried")
    }

    @Test func `a name of its own has its own sessions`() throws {
        let identity = setup.files.makeIdentity("server", names: ["DNS:a.example", "DNS:b.example"], by: setup.root)
        let server = try TLSServer(certificateChain: identity.certificate, privateKey: identity.key)
        let client = TLSClient(trustedCertificates: setup.root.file)
        func connect(_ name: String) throws -> Bool? {
            var pair = EnginePair(try client.makeEngine(host: name, address: "one"), try server.makeEngine())
            pair.exchange()
            _ = pair.client.readAll()
            #expect(pair.server.session?.serverName == name)
            return pair.client.session?.wasResumed
        }
        #expect(try connect("a.example") == false)
        #expect(try connect("b.example") == false)
        #expect(try connect("a.example") == true)
        #expect(try connect("b.example") == true)
    }

    @Test func `a client remembers 256 servers, those that it used last`() throws {
        let (client, server) = (setup.client(), try setup.server())
        for number in 0...256 {
            _ = try connect(client, server, address: "\(number)")
            if number > 0 { #expect(try connect(client, server, address: "1")) }
        }
        #expect(try connect(client, server, address: "0") == false)
        #expect(try connect(client, server, address: "256"))
    }

    @Test(arguments: [TLSVersion.tls12, .tls13])
    func `several threads resume at once`(version: TLSVersion) throws {
        let (client, server) = (setup.client(), try setup.server(upTo: version))
        _ = try connect(client, server)
        let resumed = Box(0)
        let threads = (0..<4).map { _ in
            joinableThread { _ in for _ in 0..<25 where try connect(client, server) { resumed.increment() } }
        }
        for thread in threads { try thread.join() }
        #expect(resumed.value >= 50)
    }

    @Test func `resumption over sockets, and what it saves`() async throws {
        var client = setup.client()
        let server = try setup.server()
        for resumes in [false, true] {
            client.resumesSessions = resumes
            let (current, rounds) = (client, 200)
            let (hits, time) = try await withLoops(2) { loops in
                let listener = try StreamServer(listeningOn: .ipv4(host: "127.0.0.1", port: 0), on: [loops[0]]) { stream in
                    guard (try? await stream.startTLS(server)) != nil else { return }
                    try? await stream.write("hello")
                }
                var (hits, time) = (0, Duration.zero)
                for _ in 0..<rounds {
                    let stream = try await ByteStream.connect(to: listener.localAddress, on: loops[1])
                    time += try await ContinuousClock().measure { try await stream.startTLS(current) }
                    #expect(try await stream.readText() == "hello")
                    if stream.tlsSessionWasResumed { hits += 1 }
                    stream.close()
                }
                await listener.shutdown()
                return (hits, time)
            }
            print("resumption \(resumes): \(hits) of \(rounds) resumed, \(time / rounds) for a handshake")
            #expect(hits == (resumes ? rounds - 1 : 0))
        }
    }
}

@Suite(.bounded) struct EndTests {
    private let setup = Setup()

    @Test(arguments: [TLSVersion.tls12, .tls13], [true, false])
    func `an end without close_notify is a failure if the client requires one`(version: TLSVersion, requires: Bool) async throws {
        var client = setup.client()
        #expect(client.requiresCloseNotify && client.resumesSessions)
        client.requiresCloseNotify = requires
        try await withStreams(client, setup.server(upTo: version)) { atClient, atServer in
            try await atServer.write("all")
            #expect(try await atClient.read(exactly: 3) == Array("all".utf8))
            atServer.close()
            if requires {
                await #expect(throws: RunLoop.SourceError.self) { try await atClient.read() }
                #expect(atClient.tlsError?.kind == .truncated)
            } else {
                #expect(try await atClient.read() == nil)
                #expect(atClient.tlsError == nil)
            }
        }
    }

    @Test(arguments: [TLSVersion.tls12, .tls13])
    func `an end during the handshake is a failure in any case`(version: TLSVersion) throws {
        var client = setup.client()
        client.requiresCloseNotify = false
        let engine = try client.makeEngine(host: nil)
        engine.begin()
        engine.receiveEnd()
        #expect(engine.handshakeError?.kind == .truncated)
    }

    @Test(arguments: [TLSVersion.tls12, .tls13])
    func `an idle timeout sends close_notify first`(version: TLSVersion) async throws {
        let clock = RunLoop.ManualClock()
        let (client, server) = (setup.client(), try setup.server(upTo: version))
        try await withLoops(2, clock: clock) { loops in
            let (one, two) = connectedPair()
            let atClient = try ByteStream(adopting: one, on: loops[0])
            var options = ByteStream.Options()
            options.idleTimeout = .seconds(10)
            let atServer = try ByteStream(adopting: two, on: loops[1], options: options)
            async let accepted: Void = atServer.startTLS(server)
            try await atClient.startTLS(client)
            try await accepted
            async let end = atClient.read()
            clock.advance(by: .seconds(11))
            #expect(try await end == nil, "close_notify")
            #expect(atClient.tlsError == nil)
            await #expect(throws: StreamError.timedOut) { try await atServer.read() }
            #expect(atServer.end == .timedOut)
            atClient.close()
        }
    }
}
