// Rules proved here, on streams over sockets:
// - A handshake that is closed, cancelled, timed out or cut ends with an error, and ends the stream.
// - A certificate that is refused is an error on both sides.
// - A client's files that cannot be used end the stream before a byte is sent.

import EventLoop
import EventLoopStreams
import EventLoopTLS
import TestSupport
import Testing

#if canImport(Glibc)
import Glibc
#else
import Darwin
#endif

@Suite(.bounded) struct FailingHandshakeTests {
    private let setup = Setup()

    /// A stream whose peer is a silent descriptor.
    private func withSilentPeer(
        clock: RunLoop.ManualClock? = nil, options: ByteStream.Options = .init(), _ body: (ByteStream, Int32) async throws -> Void
    ) async throws {
        try await withLoops(1, clock: clock) { loops in
            let (ours, peer) = connectedPair()
            defer { close(peer) }
            let stream = try ByteStream(adopting: ours, on: loops[0], options: options)
            try await body(stream, peer)
            #expect(!stream.isOpen)
        }
    }

    /// Returns when the handshake of a client has begun.
    private func waitForHello(_ stream: ByteStream) async throws {
        try await suspendUntil("the client has sent its first message") { stream.bytesSent > 100 }
    }

    @Test func `closing ends it`() async throws {
        try await withSilentPeer { stream, _ in
            async let failure = stream.failure { try await $0.startTLS(setup.client()) }
            try await waitForHello(stream)
            stream.close()
            #expect(await failure == "the stream is closed")
            #expect(stream.end == .closed)
        }
    }

    @Test func `cancelling ends it, and the stream`() async throws {
        let client = setup.client()
        try await withSilentPeer { stream, _ in
            let task = Task { try await stream.startTLS(client) }
            try await waitForHello(stream)
            task.cancel()
            let result = await task.result
            #expect(throws: CancellationError.self) { try result.get() }
            #expect(stream.end == .closed)
        }
    }

    @Test func `a task that was cancelled before begins none, and the stream ends`() async throws {
        let client = setup.client()
        try await withLoops(1) { loops in
            let (ours, peer) = connectedPair()
            defer { close(peer) }
            let stream = try ByteStream(adopting: ours, on: loops[0])
            let task = Task {
                await suspendUntilCancelled()
                try await stream.startTLS(client)
            }
            task.cancel()
            let result = await task.result
            #expect(throws: CancellationError.self) { try result.get() }
            #expect(stream.bytesSent == 0 && stream.end == .closed)
        }
    }

    @Test func `a peer that says nothing is given up after the timeout`() async throws {
        let clock = RunLoop.ManualClock()
        try await withSilentPeer(clock: clock) { stream, _ in
            async let failure = stream.failure { try await $0.startTLS(setup.client(), timeout: .seconds(10)) }
            try await waitForHello(stream)
            clock.advance(by: .seconds(9))
            #expect(stream.isOpen)
            clock.advance(by: .seconds(2))
            #expect(await failure == "the time limit has passed")
            #expect(stream.end == .timedOut)
        }
    }

    @Test func `a peer that sends a byte now and then is given up after the timeout`() async throws {
        let clock = RunLoop.ManualClock()
        var options = ByteStream.Options()
        options.idleTimeout = .seconds(5)
        let server = try setup.server()
        try await withSilentPeer(clock: clock, options: options) { stream, peer in
            async let failure = stream.failure { try await $0.startTLS(server) }
            // The beginning of a client's first message. The idle timeout is longer than the pauses between the bytes.
            let hello: [UInt8] = [22, 3, 1, 1, 0, 1, 0, 0] + [UInt8](repeating: 3, count: 240)
            for (count, byte) in hello.enumerated() where stream.isOpen {
                _ = withUnsafeBytes(of: byte) { write(peer, $0.baseAddress, 1) }
                try await suspendUntil("the byte is read, or too late") { stream.bytesReceived > count || !stream.isOpen }
                clock.advance(by: .seconds(4))
            }
            #expect(await failure == "the time limit has passed")
        }
    }

    @Test func `the idle timeout applies`() async throws {
        let clock = RunLoop.ManualClock()
        var options = ByteStream.Options()
        options.idleTimeout = .seconds(3)
        try await withSilentPeer(clock: clock, options: options) { stream, _ in
            async let failure = stream.failure { try await $0.startTLS(setup.client()) }
            try await waitForHello(stream)
            clock.advance(by: .seconds(4))
            #expect(await failure == "the time limit has passed")
        }
    }

    @Test func `the timeout of the handshake ends with the handshake`() async throws {
        let clock = RunLoop.ManualClock()
        let (client, server) = (setup.client(), try setup.server())
        try await withLoops(1, clock: clock) { loops in
            let (one, two) = connectedPair()
            let (atClient, atServer) = (try ByteStream(adopting: one, on: loops[0]), try ByteStream(adopting: two, on: loops[0]))
            async let accepted: Void = atServer.startTLS(server)
            try await atClient.startTLS(client)
            try await accepted
            clock.advance(by: .seconds(100))
            try await atClient.write("late")
            #expect(try await atServer.read() == Array("late".utf8))
            atClient.close()
            atServer.close()
        }
    }

    @Test(arguments: [0, 1, 4, 5, 6, 50])
    func `a peer that goes away in it is a truncation`(count: Int) async throws {
        let server = try setup.server()
        try await withSilentPeer { stream, peer in
            async let failure = stream.failure { try await $0.startTLS(server) }
            let bytes: [UInt8] = [22, 3, 1, 1, 0, 1, 0, 0, 252, 3, 3] + [UInt8](repeating: 1, count: 39)
            _ = write(peer, bytes, count)
            shutdown(peer, Int32(SHUT_WR))
            #expect(await failure == "TLS: truncated: the peer has ended the connection before its TLS end")
            #expect(stream.tlsError?.kind == .truncated)
        }
    }

    @Test func `a stream whose end was read takes no TLS, and ends`() async throws {
        let server = try setup.server()
        try await withSilentPeer { stream, peer in
            shutdown(peer, Int32(SHUT_WR))
            let end = try await stream.read()
            #expect(end == nil)
            #expect(await stream.failure { try await $0.startTLS(server) } == "the stream ended inside a frame")
            #expect(await stream.failure { try await $0.write("in the clear") } != "none")
        }
    }

    @Test func `a peer with another protocol is refused`() async throws {
        let server = try setup.server()
        try await withSilentPeer { stream, peer in
            async let failure = stream.failure { try await $0.startTLS(server) }
            let request = Array("GET / HTTP/1.1\r\n\r\n".utf8)
            _ = write(peer, request, request.count)
            #expect(await failure == "TLS: http request")
            #expect(stream.end == .failed(.system(operation: "TLS: http request", errno: EPROTO)))
        }
    }

    @Test func `a refused certificate is an error on both sides`() async throws {
        let (files, root) = (setup.files, setup.root)
        let other = files.makeIssuer("Other")
        let cases: [(Identity, String, TLSError.Kind, UInt8)] = [
            (files.makeIdentity("expired", by: root, .past), "localhost", .certificateExpired, 45),
            (files.makeIdentity("self"), "localhost", .selfSignedCertificate, 48),
            (files.makeIdentity("below", by: other), "localhost", .unknownIssuer, 48),
            (files.makeIdentity("name", names: ["DNS:example.com"], by: root), "localhost", .hostNameMismatch, 42),
            (files.makeIdentity("address", by: root), "127.0.0.2", .hostNameMismatch, 42),
        ]
        for (identity, name, kind, alert) in cases {
            let server = try TLSServer(certificateChain: identity.certificate, privateKey: identity.key)
            try await withStreams(setup.client(), server, startsTLS: false) { atClient, atServer in
                async let accepted = atServer.failure {
                    try await $0.startTLS(server)
                    // In TLS 1.3 the server's handshake may end before the client's answer.
                    _ = try await $0.read()
                }
                await #expect(throws: TLSError.self) { try await atClient.startTLS(setup.client([], name)) }
                #expect(atClient.tlsError?.kind == kind)
                #expect(atClient.tlsError?.serverName == name)
                #expect(await accepted.hasPrefix("TLS: the peer sent the alert \(alert), "))
                #expect(atServer.tlsError?.kind == .alert(alert))
                #expect(atClient.tlsVersion == nil && atClient.peerCertificate == nil)
            }
        }
    }

    @Test func `a server refuses a client without a certificate, and the client hears why`() async throws {
        let server = try TLSServer(
            certificateChain: setup.identity.certificate, privateKey: setup.identity.key, clientCertificates: setup.root.file)
        try await withStreams(setup.client(), server, startsTLS: false) { atClient, atServer in
            async let accepted = atServer.failure { try await $0.startTLS(server) }
            // In TLS 1.3 the client's part is over when the server looks at its certificate.
            let failure = await atClient.failure {
                try await $0.startTLS(setup.client())
                _ = try await $0.read()
            }
            #expect(await accepted == "TLS: peer did not return a certificate")
            #expect(atServer.tlsError?.kind == .certificateMissing)
            #expect(failure.contains("the peer sent the alert 116"))
            #expect(atClient.tlsError?.kind == .alert(116))
        }
    }

    @Test func `files that cannot be used end the stream before a byte is sent`() async throws {
        try await withSilentPeer { stream, peer in
            let failure = await stream.failure { try await $0.startTLS(TLSClient(trustedCertificates: "/nonexistent")) }
            #expect(failure.hasPrefix("TLS: the trusted certificates in /nonexistent"))
            #expect(stream.end == .closed && stream.bytesSent == 0)
        }
        try await withSilentPeer { stream, peer in
            let failure = await stream.failure { try await $0.startTLS(TLSClient()) }
            #expect(failure.hasPrefix("TLS: there is no name to check"))
        }
    }
}
