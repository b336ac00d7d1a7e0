// Rules proved here, on engines in memory, after the handshake:
// - Bytes arrive whole and in order, in both directions, however they are split.
// - `.end` comes only after close_notify; other ends are failures. One direction can end before the other.
// - Key updates and tickets work, renegotiation is refused, and a peer that floods one side with them is stopped.
// - A connection that failed does nothing more.

import COpenSSL
import EventLoop
import TestSupport
import Testing

@testable import EventLoopStreams
@testable import EventLoopTLS

#if canImport(Glibc)
import Glibc
#else
import Darwin
#endif

@Suite struct ConnectionTests {
    private let files = Certificates()

    private func connected(_ version: TLSVersion) throws -> EnginePair {
        let root = files.makeIssuer("Root")
        let identity = files.makeIdentity("server", by: root)
        var pair = try EnginePair(
            TLSClient(serverName: "localhost", trustedCertificates: root.file),
            TLSServer(
                certificateChain: identity.certificate, privateKey: identity.key, minimumVersion: version, maximumVersion: version))
        pair.exchange()
        try #require(pair.isDone)
        return pair
    }

    @Test(arguments: [TLSVersion.tls12, .tls13], [1, 7, 4_096, 100_000])
    func `bytes arrive whole and in order, both ways at once`(version: TLSVersion, piece: Int) throws {
        let pair = try connected(version)
        let toServer = (0..<100_000).map { UInt8(truncatingIfNeeded: $0 &* 31 ^ $0 >> 8) }
        let toClient = Array(toServer.reversed())
        var (atServer, atClient): ([UInt8], [UInt8]) = ([], [])
        for start in stride(from: 0, to: toServer.count, by: 33_333) {
            let part = start..<min(start + 33_333, toServer.count)
            pair.client.write(Array(toServer[part]))
            pair.server.write(Array(toClient[part]))
            for piece in inPieces(of: piece)(0, pair.client.takeOutput()) {
                pair.server.receive(piece)
                atServer += pair.server.readAll(1_000).bytes
            }
            for piece in inPieces(of: piece)(0, pair.server.takeOutput()) {
                pair.client.receive(piece)
                atClient += pair.client.readAll(1_000).bytes
            }
        }
        #expect(atServer == toServer)
        #expect(atClient == toClient)
    }

    @Test(arguments: [TLSVersion.tls12, .tls13])
    func `each direction ends with its own close_notify`(version: TLSVersion) throws {
        var pair = try connected(version)
        pair.client.write("last")
        pair.client.finishWriting()
        pair.client.finishWriting()
        pair.client.write("too late")
        pair.exchange()
        let atServer = pair.server.readAll()
        #expect(atServer.bytes == Array("last".utf8) && atServer.stop == .end)
        pair.server.write("answer")
        pair.exchange()
        #expect(pair.client.readText() == "answer")
        pair.server.finishWriting()
        pair.exchange()
        for side in [pair.client, pair.server] {
            side.receiveEnd()
            #expect(side.readAll().stop == .end)
            #expect(side.readAll().stop == .end, "and again")
        }
    }

    @Test(arguments: [TLSVersion.tls12, .tls13])
    func `a connection that is cut is a failure, at whatever byte`(version: TLSVersion) throws {
        let probe = try connected(version)
        probe.server.write("message")
        probe.server.finishWriting()
        let total = probe.server.takeOutput().count
        for count in 0..<total {
            let pair = try connected(version)
            pair.server.write("message")
            pair.server.finishWriting()
            pair.client.receive(pair.server.takeOutput().prefix(count))
            pair.client.receiveEnd()
            let read = pair.client.readAll()
            // TLS delivers whole records.
            #expect(read.bytes.isEmpty || read.bytes == Array("message".utf8))
            guard case .failed(.system(let operation, let code)) = read.stop else {
                Issue.record("\(read.stop) after \(count) bytes")
                continue
            }
            #expect(operation.hasPrefix("TLS with localhost: truncated") && code == ECONNRESET)
            #expect(pair.client.failure?.kind == .truncated)
        }
    }

    @Test(arguments: [TLSVersion.tls12, .tls13])
    func `finishing during the handshake ends the direction behind it`(version: TLSVersion) throws {
        let root = files.makeIssuer("Root")
        let identity = files.makeIdentity("server", by: root)
        var pair = try EnginePair(
            TLSClient(serverName: "localhost", trustedCertificates: root.file),
            TLSServer(certificateChain: identity.certificate, privateKey: identity.key, maximumVersion: version))
        pair.client.begin()
        pair.client.finishWriting()
        pair.exchange()
        #expect(pair.isDone && pair.server.readAll().stop == .end)
    }

    @Test(arguments: 0..<100)
    func `a changed byte is a failure, and changes no plain byte`(place: Int) throws {
        let pair = try connected(place % 2 == 0 ? .tls12 : .tls13)
        pair.server.write("a message of some length, which makes one record of TLS")
        var bytes = pair.server.takeOutput()
        bytes[place % bytes.count] ^= UInt8(1 << (place % 8))
        pair.client.receive(bytes)
        pair.client.receiveEnd()
        let read = pair.client.readAll()
        #expect(read.bytes.isEmpty)
        guard case .failed(.system) = read.stop else {
            Issue.record("\(read.stop)")
            return
        }
        // Nothing more comes out of it.
        pair.client.write("after")
        pair.client.finishWriting()
        _ = pair.client.takeOutput()
        pair.client.receive("more".utf8)
        #expect(pair.client.readAll().stop == read.stop && pair.client.takeOutput().isEmpty)
    }

    // MARK: Messages between

    @Test func `keys change in both directions, also while bytes are on their way`() throws {
        var pair = try connected(.tls13)
        for round in 0..<20 {
            let (from, to) = round % 2 == 0 ? (pair.client, pair.server) : (pair.server, pair.client)
            to.write("crossing \(round)")
            from.updateKeys(requestsPeer: round % 4 < 2)
            from.write("after \(round)")
            pair.exchange()
            #expect(to.readText() == "after \(round)")
            // Reading has made the answer.
            pair.exchange()
            #expect(from.readText() == "crossing \(round)")
            to.write("end \(round)")
            pair.exchange()
            #expect(from.readText() == "end \(round)")
        }
        #expect(pair.client.failure == nil && pair.server.failure == nil)
    }

    @Test func `a peer that asks for new keys without end is stopped`() throws {
        let pair = try connected(.tls13)
        var answers = 0
        var stop = LayerRead.nothing
        for _ in 0..<10_000 where stop == .nothing {
            pair.client.updateKeys(requestsPeer: true)
            pair.client.write("x")
            pair.server.receive(pair.client.takeOutput())
            stop = pair.server.readAll().stop
            answers += pair.server.takeOutput().count
        }
        #expect(pair.server.failure?.kind == .protocolError)
        #expect(answers < 10_000)
    }

    enum MessageWithoutData: CaseIterable { case keyUpdate, ticket }

    @Test(arguments: MessageWithoutData.allCases)
    func `a peer may send 32 messages without data in a row, and no more`(_ kind: MessageWithoutData) throws {
        let pair = try connected(.tls13)
        /// Returns how the client's reading stops.
        func send(_ count: Int, then text: String) -> LayerRead {
            for _ in 0..<count {
                switch kind {
                case .keyUpdate: pair.server.updateKeys(requestsPeer: false)
                case .ticket:
                    precondition(SSL_new_session_ticket(pair.server.connection) == 1)
                    SSL_do_handshake(pair.server.connection)
                }
            }
            pair.server.write(text)
            pair.client.receive(pair.server.takeOutput())
            return pair.client.readAll().stop
        }
        // Behind the server's first tickets.
        #expect(send(0, then: "x") == .nothing)
        for _ in 0..<3 { #expect(send(32, then: "x") == .nothing) }
        #expect(send(32, then: "") == .nothing && pair.client.failure == nil)
        let stop = send(1, then: "x")
        #expect(stop != .nothing && pair.client.failure?.kind == .protocolError)
        #expect(send(0, then: "x") == stop)
    }

    @Test func `of a flood of messages that has come at once, no more is processed than is allowed`() throws {
        let pair = try connected(.tls13)
        for _ in 0..<1_000 { pair.server.updateKeys(requestsPeer: false) }
        pair.server.write("x")
        pair.client.receive(pair.server.takeOutput())
        let count = pair.client.encrypted.unreadCount
        #expect(pair.client.readAll().stop != .nothing && pair.client.failure?.kind == .protocolError)
        #expect(pair.client.encrypted.unreadCount > count * 9 / 10)
    }

    @Test func `renegotiation is refused`() throws {
        let pair = try connected(.tls12)
        #expect(SSL_renegotiate(pair.client.connection) == 0, "OpenSSL does not begin one")
        // A peer that begins one nevertheless gets a warning, and the connection goes on.
        SSL_clear_options(pair.client.connection, UInt64(1) << 30)
        #expect(SSL_renegotiate(pair.client.connection) == 1)
        SSL_do_handshake(pair.client.connection)
        pair.server.receive(pair.client.takeOutput())
        #expect(pair.server.readAll().stop == .nothing)
        pair.client.receive(pair.server.takeOutput())
        #expect(pair.client.readAll().stop != .nothing)
    }

    @Test func `the errors of one connection do not reach another on the same thread`() throws {
        var good = try connected(.tls13)
        let bad = try connected(.tls13)
        bad.client.receive("garbage that is no record".utf8)
        leaveErrorInQueue()
        good.server.write("fine")
        good.exchange()
        #expect(good.client.readText() == "fine")
        #expect(bad.client.readAll().stop != .nothing)
        leaveErrorInQueue()
        good.client.receiveEnd()
        #expect(good.client.failure == nil)
    }
}

/// Leaves an error in the thread's queue, as other code in the process may.
private func leaveErrorInQueue() { #expect(BIO_new_file("/nonexistent/file", "r") == nil) }
