// Rules proved here, with OpenSSL at both ends, one of which does what no honest program does:
// - Nothing is lost if a program writes between the two records of a session ticket.
// - The answers to key updates that a peer does not read are limited, and count for the write timeout.
// - Key updates that ask for no answer are limited, too.
// - After startTLS was refused, nothing is read in the clear. Bytes that come during startTLS never trap.

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

/// A server that the test drives by hand, at the other end of a connection in memory. It belongs to the test's thread.
private final class HandDrivenServer {
    let engine: TLSEngine
    let link: MemoryLink
    private(set) var plain: [UInt8] = []
    private(set) var stop = LayerRead.nothing
    private var waiting: [UInt8] = []

    init(_ server: TLSServer, _ link: MemoryLink) throws {
        (engine, self.link) = (try server.makeEngine(), link)
        engine.begin()
    }

    /// What does not fit is sent by the next call.
    func send(_ bytes: [UInt8] = []) {
        waiting += bytes
        while !waiting.isEmpty {  // ends: nothing is left, or nothing more fits
            let result = waiting.withUnsafeBytes { bytes in
                withUnsafePointer(to: UnsafeRawBufferPointer(bytes)) { link.write(at: 1, UnsafeBufferPointer(start: $0, count: 1)) }
            }
            guard case .bytes(let count) = result else { return }
            waiting.removeFirst(count)
        }
    }

    /// Takes what has come, and sends what OpenSSL answers.
    func exchange() {
        var space = [UInt8](repeating: 0, count: 8_192)
        while case .bytes(let count) = space.withUnsafeMutableBytes({ link.read(at: 1, into: $0) }) {
            engine.receive(space[..<count])
            let (bytes, stop) = engine.readAll()
            plain += bytes
            self.stop = stop
        }
        send(engine.takeOutput())
    }
}

/// A client's stream in manual time, and its server, after the handshake.
private func withHandDrivenServer(
    _ setup: Setup, capacity: Int, _ options: ByteStream.Options = .init(),
    _ body: @escaping @Sendable (ByteStream, HandDrivenServer, RunLoop, RunLoop.ManualClock) throws -> Void
) throws {
    try onFreshThread { loop in
        let clock = RunLoop.ManualClock(autoAdvance: true)
        loop.use(clock)
        let link = MemoryLink(capacity: capacity, seed: nil)
        let client = try ByteStream(over: MemoryTransport(link, end: 0), on: loop, options: options)
        let server = try HandDrivenServer(setup.server(), link)
        let isDone = Box(false)
        Task(executorPreference: loop) {
            try await client.startTLS(setup.client())
            isDone.value = true
        }
        for _ in 0..<10 {
            passes(loop)
            server.exchange()
        }
        #expect(isDone.value && server.engine.isDone)
        try body(client, server, loop, clock)
        client.close()
        passes(loop)
        #expect(loop.run(for: .zero) == .finished)
    }
}

private func passes(_ loop: RunLoop) { for _ in 0..<10 { _ = loop.run(for: .zero) } }

@Suite(.bounded, .tags(.memory)) struct HostilePeerTests {
    private let setup = Setup()

    @Test func `what is written between the two records of a ticket is sent`() throws {
        try withHandDrivenServer(setup, capacity: 65_536) { client, server, loop, _ in
            let (first, second) = server.engine.ticketInTwoRecords()
            server.send(first)
            passes(loop)
            let bytes = (0..<1_000).map { UInt8(truncatingIfNeeded: $0) }
            client.send(bytes)
            let isFinished = Box(false)
            Task(executorPreference: loop) {
                try await client.finishWriting()
                isFinished.value = true
            }
            passes(loop)
            server.exchange()
            #expect(
                server.plain == [] && !isFinished.value && client.end == nil, "OpenSSL writes nothing inside a message of the handshake")
            server.send(second)
            passes(loop)
            server.exchange()
            #expect(isFinished.value && server.plain == bytes && server.stop == .end)
        }
    }

    @Test func `the answers to key updates that nobody reads are limited`() throws {
        try withHandDrivenServer(setup, capacity: 4_096) { client, server, loop, _ in
            client.onReceive { _, bytes in bytes.consume(bytes.count) }
            // OpenSSL's side allows more answers to a peer that has sent much.
            for _ in 0..<100 {
                server.engine.write([UInt8](repeating: 1, count: 10_000))
                server.send(server.engine.takeOutput())
                for _ in 0..<10 {
                    passes(loop)
                    server.send()
                }
            }
            var largest = 0
            for _ in 0..<3_000 where client.end == nil {
                server.engine.updateKeys(requestsPeer: true)
                server.engine.write("x")
                server.send(server.engine.takeOutput())
                _ = loop.run(for: .zero)
                largest = max(largest, client.bytesWaiting)
            }
            passes(loop)
            #expect(largest > 0 && largest < 20_000)
            guard case .failed(.system(_, ENOBUFS)) = client.end else {
                Issue.record("the end is \(client.end as Any), with \(largest) bytes waiting")
                return
            }
        }
    }

    @Test func `answers that nobody reads count for the write timeout`() throws {
        var options = ByteStream.Options()
        options.writeTimeout = .seconds(10)
        try withHandDrivenServer(setup, capacity: 1_024, options) { client, server, loop, clock in
            client.onReceive { _, bytes in bytes.consume(bytes.count) }
            for _ in 0..<60 {
                server.engine.updateKeys(requestsPeer: true)
                server.engine.write("x")
                server.send(server.engine.takeOutput())
                passes(loop)
            }
            #expect(client.bytesWaiting > 0 && client.end == nil)
            clock.advance(by: .seconds(11))
            passes(loop)
            #expect(client.end == .timedOut)
        }
    }

    @Test func `a stream ends when its peer sends key updates without data, although it asks for no answer`() throws {
        try withHandDrivenServer(setup, capacity: 65_536) { client, server, loop, _ in
            client.onReceive { _, bytes in bytes.consume(bytes.count) }
            for _ in 0..<1_000 { server.engine.updateKeys(requestsPeer: false) }
            server.send(server.engine.takeOutput())
            passes(loop)
            #expect(!client.isOpen && client.tlsError?.kind == .protocolError)
        }
    }

    @Test func `nothing is read in the clear after a refused startTLS`() async throws {
        try await withStreams(setup.client(), setup.server(), startsTLS: false) { client, server in
            try await client.finishWriting()
            await #expect(throws: StreamError.closed) { try await client.startTLS(setup.client()) }
            server.send("in the clear")
            await #expect(throws: StreamError.closed) { try await client.read() }
            #expect(client.end == .closed)
        }
    }

    @Test func `bytes that come while startTLS begins never trap`() async throws {
        try await withLoops(1) { loops in
            for _ in 0..<10 {
                let (one, two) = connectedPair()
                let client = try ByteStream(adopting: one, on: loops[0])
                // The first call lasts until startTLS has begun.
                let isInCall = Gate()
                client.onReceive { stream, bytes in
                    bytes.consume(bytes.count)
                    isInCall.open()
                    try? waitUntil("startTLS begins") { stream.layer != nil || stream.end != nil }
                }
                let isOver = Box(false)
                let flood = plainThread {
                    let bytes = [UInt8](repeating: 0x41, count: 512)
                    // Ends: the stream does when its handshake has failed.
                    while !isOver.value, bytes.withUnsafeBytes({ send(two, $0.baseAddress, $0.count, Int32(MSG_NOSIGNAL)) }) > 0 {}
                }
                try await isInCall.waitInTask()
                await #expect(throws: (any Error).self) { try await client.startTLS(setup.client()) }
                isOver.value = true
                shutdown(two, Int32(SHUT_RDWR))
                try flood.join()
                close(two)
                #expect(client.end != nil)
            }
        }
    }
}
