// Rules proved here, on streams over sockets:
// - After startTLS, bytes, ends and errors are those of TLS, in tasks and in handlers.
// - startTLS in mid-stream encrypts what comes behind it; plain bytes that are inserted before the handshake make it fail.
// - Big transfers in both directions at once arrive, within the limits of the options.
// - A handshake that is closed, cancelled, timed out or cut ends with an error, and ends the stream.

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

/// A server of TLS 1.3 sends session tickets after the handshake. A socket that is closed while they wait in it resets the connection.
private func readTickets(of server: ByteStream, _ client: ByteStream) async throws {
    try await server.write(".")
    #expect(try await client.read() == Array(".".utf8))
}

@Suite(.bounded) struct StreamTests {
    private let setup = Setup()

    @Test(arguments: [TLSVersion.tls12, .tls13])
    func `a stream speaks TLS after startTLS`(version: TLSVersion) async throws {
        try await withStreams(setup.client(["x", "h2"]), setup.server(["h2"], upTo: version)) { client, server in
            for stream in [client, server] {
                #expect(stream.applicationProtocol == "h2")
                #expect(stream.tlsVersion == (version == .tls12 ? "TLSv1.2" : "TLSv1.3"))
            }
            #expect(client.peerCertificateSubject == "CN=server" && server.peerCertificateSubject == nil)
            #expect(client.peerCertificate?.isEmpty == false && server.peerCertificate == nil)
            try await client.write("question\n")
            var lines = server.lines().makeAsyncIterator()
            #expect(try await lines.next() == "question")
            try await server.write("answer")
            try await server.finishWriting()
            #expect(try await client.readText() == "answer")
            // The other direction is still open.
            try await client.write("thanks\n")
            #expect(try await lines.next() == "thanks")
            try await client.finishWriting()
            #expect(try await lines.next() == nil)
            #expect(client.tlsError == nil && server.tlsError == nil)
            #expect(client.bytesSent > 100 && client.bytesSent == server.bytesReceived, "the handshake is counted")
        }
    }

    @Test(arguments: [TLSVersion.tls12, .tls13])
    func `handlers work on an encrypted stream`(version: TLSVersion) async throws {
        try await withStreams(setup.client(), setup.server(upTo: version)) { client, server in
            let ended = Box<ByteStream.End?>(nil)
            server.onReceive { stream, bytes in stream.send(bytes.take(bytes.count)) }
            server.onEnd { _, end in ended.value = end }
            for size in [1, 1_000, 16_384, 16_385, 100_000] {
                let bytes = (0..<size).map { UInt8(truncatingIfNeeded: $0 &* 7) }
                async let echo = client.read(exactly: size)
                try await client.write(bytes)
                #expect(try await echo == bytes)
            }
            try await client.finishWriting()
            #expect(try await client.read() == nil)
            try await suspendUntil("the handler has heard of the end") { ended.value != nil }
            #expect(ended.value == .endOfStream)
        }
    }

    @Test func `a handler hears of a cut connection`() async throws {
        try await withStreams(setup.client(), setup.server()) { client, server in
            let trace = Box("")
            server.onReceive { _, bytes in
                let text = String(decoding: bytes.take(bytes.count), as: UTF8.self)
                trace.change { [isLast = bytes.isLast] in $0 += "\(text), last \(isLast); " }
            }
            let ended = Box<ByteStream.End?>(nil)
            server.onEnd { _, end in ended.value = end }
            try await readTickets(of: server, client)
            try await client.write("half a mess")
            try await suspendUntil("it arrives") { !trace.value.isEmpty }
            client.close()
            try await suspendUntil("the end arrives") { ended.value != nil }
            #expect(trace.value == "half a mess, last false; ")
            guard case .failed(.system(let operation, ECONNRESET)) = ended.value else {
                Issue.record("\(ended.value as Any)")
                return
            }
            #expect(operation.hasPrefix("TLS: truncated"))
            #expect(server.tlsError?.kind == .truncated)
        }
    }

    // Some programs end their output so, and wait for the answer. OpenSSL takes nothing any more when it has heard of such an end.
    @Test(arguments: [TLSVersion.tls12, .tls13], [true, false])
    func `a peer that half-closes without an end of TLS gets what is written`(version: TLSVersion, closes: Bool) async throws {
        try await withStreams(setup.client(), setup.server(upTo: version)) { client, server in
            try await readTickets(of: server, client)
            let answer = (0..<8_000_000).map { UInt8(truncatingIfNeeded: $0 &* 7) }
            client.isReading = false
            let (last, ended) = (Box(false), Box<ByteStream.End?>(nil))
            server.onReceive { _, bytes in last.value = last.value || bytes.isLast }
            server.onEnd { _, end in ended.value = end }
            server.send(answer)
            if closes { server.closeAfterWriting() }
            client.withDescriptor { _ = shutdown($0, Int32(SHUT_WR)) }
            try await suspendUntil("the end is there") {
                var byte: UInt8 = 0
                return server.withDescriptor { recv($0, &byte, 1, Int32(MSG_PEEK) | Int32(MSG_DONTWAIT)) } == 0
            }
            for _ in 0..<2 { try await server.loop.performAsync {} }
            client.isReading = true
            #expect(try await client.read(exactly: answer.count) == answer)
            try await suspendUntil("the server's stream ends") { ended.value != nil }
            #expect(ended.value == .closed || server.tlsError?.kind == .truncated, "\(ended.value as Any)")
            #expect(!last.value)
        }
    }

    @Test func `an end without an end of TLS that the client allows is read at once, also while bytes wait to be sent`() async throws {
        var client = setup.client()
        client.requiresCloseNotify = false
        try await withStreams(client, setup.server()) { client, server in
            try await readTickets(of: server, client)
            server.isReading = false
            client.send([UInt8](repeating: 1, count: 8_000_000))
            server.withDescriptor { _ = shutdown($0, Int32(SHUT_WR)) }
            #expect(try await client.read() == nil)
            #expect(client.bytesWaiting > 0)
        }
    }

    @Test(arguments: [TLSVersion.tls12, .tls13])
    func `a task hears of a cut connection behind the bytes before`(version: TLSVersion) async throws {
        try await withStreams(setup.client(), setup.server(upTo: version)) { client, server in
            try await readTickets(of: server, client)
            try await client.write("half a mess")
            try await suspendUntil("it is sent") { client.bytesWaiting == 0 }
            client.close()
            #expect(try await server.read() == Array("half a mess".utf8))
            let failure = await server.failure { _ = try await $0.read() }
            #expect(failure.hasPrefix("TLS: truncated"))
            #expect(server.tlsError?.kind == .truncated)
            #expect(await client.failure { try await $0.write("") } == "the stream is closed")
        }
    }

    // MARK: In mid-stream

    @Test func `startTLS encrypts what comes behind it`() async throws {
        try await withStreams(setup.client(), setup.server(), startsTLS: false) { client, server in
            let tls = try setup.server()
            async let served: [String] = {
                var lines = server.lines().makeAsyncIterator()
                var heard = [try await lines.next() ?? "", try await lines.next() ?? ""]
                try await server.write("220 ready\r\n")
                try await server.startTLS(tls)
                // The same iterator goes on.
                heard.append(try await lines.next() ?? "")
                try await server.write("250 encrypted\r\n")
                try await server.finishWriting()
                return heard
            }()
            try await client.write("EHLO a\r\n")
            try await client.write("STARTTLS\r\n")
            var lines = client.lines().makeAsyncIterator()
            #expect(try await lines.next() == "220 ready")
            #expect(client.tlsVersion == nil)
            try await client.startTLS(setup.client())
            try await client.write("EHLO b\r\n")
            #expect(try await lines.next() == "250 encrypted")
            #expect(try await lines.next() == nil)
            #expect(try await served == ["EHLO a", "STARTTLS", "EHLO b"])
        }
    }

    @Test func `plain commands that are inserted before the handshake make it fail`() async throws {
        try await withStreams(setup.client(), setup.server(), startsTLS: false) { client, server in
            try await client.write("STARTTLS\r\nRCPT TO:<evil@example.com>\r\n")
            var lines = server.lines().makeAsyncIterator()
            #expect(try await lines.next() == "STARTTLS")
            try await server.write("220 ready\r\n250 inserted\r\n")
            var answers = client.lines().makeAsyncIterator()
            #expect(try await answers.next() == "220 ready")
            let tls = try setup.server()
            async let atServer = server.failure { try await $0.startTLS(tls) }
            let atClient = await client.failure { try await $0.startTLS(setup.client()) }
            #expect(atClient.hasPrefix("TLS with localhost: "))
            #expect(await atServer.hasPrefix("TLS: "))
            for stream in [client, server] {
                guard case .failed(.system) = stream.end else {
                    Issue.record("\(stream.end as Any)")
                    continue
                }
                #expect(stream.tlsError != nil && stream.tlsVersion == nil)
            }
            // What was inserted counts for nothing.
            await #expect(throws: RunLoop.SourceError.self) { try await server.read() }
        }
    }

    @Test func `bytes written before startTLS are sent in the clear, those written meanwhile are encrypted`() async throws {
        try await withStreams(setup.client(), setup.server(), startsTLS: false) { client, server in
            try await client.write("plain")
            async let connected: Void = client.startTLS(setup.client())
            try await suspendUntil("the handshake has begun") { client.bytesSent > 100 }
            client.send("early")
            #expect(try await server.read(exactly: 5) == Array("plain".utf8))
            try await server.startTLS(setup.server())
            try await connected
            #expect(try await server.read(exactly: 5) == Array("early".utf8))
        }
    }

    // MARK: Transfers

    @Test(arguments: [TLSVersion.tls12, .tls13])
    func `big transfers in both directions at once arrive, within the limits`(version: TLSVersion) async throws {
        var options = ByteStream.Options()
        (options.receiveLimit, options.highWater, options.lowWater) = (20_000, 30_000, 10_000)
        let (size, most) = (3_000_000, Box(0))
        try await withStreams(setup.client(), setup.server(upTo: version), options: options) { client, server in
            try await withThrowingTaskGroup(of: Void.self) { group in
                for (from, to, factor) in [(client, server, 31), (server, client, 17)] {
                    group.addTask {
                        for start in stride(from: 0, to: size, by: 10_000) {
                            try await from.write((start..<(start + 10_000)).map { UInt8(truncatingIfNeeded: $0 &* factor >> 3) })
                            most.change { [waiting = from.bytesWaiting] in $0 = max($0, waiting) }
                        }
                        try await from.finishWriting()
                    }
                    group.addTask {
                        var position = 0
                        while let bytes = try await to.read(upTo: 7_777) {  // ends: with the stream
                            let isGood = bytes.enumerated().allSatisfy { $1 == UInt8(truncatingIfNeeded: (position + $0) &* factor >> 3) }
                            try #require(isGood)
                            position += bytes.count
                        }
                        #expect(position == size)
                    }
                }
                try await group.waitForAll()
            }
        }
        // The last write that does not wait has 10,000 bytes, and a record adds a few.
        #expect(most.value < 30_000 + 10_000 + 1_000)
    }

    @Test(arguments: [TLSVersion.tls12, .tls13], [1, 3, 5_000])
    func `bytes that come in small pieces are read as soon as they are complete`(version: TLSVersion, size: Int) async throws {
        ignoreBrokenPipes()
        let (client, server) = (setup.client(), try setup.server(upTo: version))
        try await withLoops(2) { loops in
            let (one, two) = (connectedPair(), connectedPair())
            let carriers = [carry(size, from: one.1, to: two.1), carry(size, from: two.1, to: one.1)]
            let atClient = try ByteStream(adopting: one.0, on: loops[0])
            let atServer = try ByteStream(adopting: two.0, on: loops[1])
            async let accepted: Void = atServer.startTLS(server)
            try await atClient.startTLS(client)
            try await accepted
            for round in 1...20 {
                // Each message is awaited: nothing behind it makes the stream look again.
                let message = [UInt8](repeating: UInt8(round), count: round * 37)
                try await atClient.write(message)
                #expect(try await atServer.read(exactly: message.count) == message)
                try await atServer.write(message)
                #expect(try await atClient.read(exactly: message.count) == message)
            }
            try await atClient.finishWriting()
            let end = try await atServer.read()
            #expect(end == nil)
            atClient.closeAfterWriting()
            atServer.closeAfterWriting()
            for carrier in carriers { try carrier.join() }
            for descriptor in [one.1, two.1] { close(descriptor) }
        }
    }

    /// Carries bytes in pieces, until there are no more.
    private func carry(_ size: Int, from source: Int32, to target: Int32) -> JoinableThread<Void> {
        joinableThread { _ in
            var piece = [UInt8](repeating: 0, count: size)
            while true {  // ends: with the connection
                let count = read(source, &piece, size)
                guard count > 0 else { break }
                guard write(target, piece, count) == count else { break }
            }
            shutdown(target, Int32(SHUT_WR))
        }
    }

    @Test func `a writer waits for a reader that does not read`() async throws {
        try await withStreams(setup.client(), setup.server()) { client, server in
            let written = Box(0)
            let writer = Task {
                while true {  // ends: the task is cancelled
                    try await client.write([UInt8](repeating: 9, count: 50_000))
                    written.increment()
                }
            }
            // Nobody reads: the server's stream takes its limit, and the kernel what it takes.
            try await suspendUntil("the writer waits") { client.bytesWaiting >= 65_536 }
            writer.cancel()
            let failure = await writer.result
            #expect(throws: CancellationError.self) { try failure.get() }
            // A cancelled write has queued nothing, and the stream is as good as before.
            async let bytes = server.readToEnd()
            try await client.write("end")
            try await client.finishWriting()
            let count = try await bytes.count
            #expect(count == written.value * 50_000 + 3)
        }
    }

    @Test func `threads write, read and ask at the same time`() async throws {
        try await withStreams(setup.client(), setup.server()) { client, server in
            try await withThrowingTaskGroup(of: Int.self) { group in
                for stream in [client, server] {
                    for _ in 0..<2 {
                        group.addTask {
                            for _ in 0..<200 { try await stream.write([UInt8](repeating: 1, count: 333)) }
                            return 0
                        }
                    }
                    group.addTask {
                        for _ in 0..<200 {
                            #expect(stream.tlsVersion != nil && stream.tlsError == nil && stream.applicationProtocol == nil)
                        }
                        return 0
                    }
                    group.addTask { try await stream.read(exactly: 2 * 200 * 333).count }
                }
                var total = 0
                for try await count in group { total += count }
                #expect(total == 2 * 2 * 200 * 333)
            }
        }
    }

    @Test func `many handshakes on several loops do not disturb each other`() async throws {
        let (client, server) = (setup.client(["b"]), try setup.server(["a", "b"]))
        try await withLoops(3) { loops in
            try await withThrowingTaskGroup(of: Void.self) { group in
                for number in 0..<120 {
                    group.addTask {
                        let (one, two) = connectedPair()
                        let atClient = try ByteStream(adopting: one, on: loops[number % 3])
                        let atServer = try ByteStream(adopting: two, on: loops[(number + number / 3) % 3])
                        async let accepted: Void = atServer.startTLS(server)
                        try await atClient.startTLS(client)
                        try await accepted
                        #expect(atServer.applicationProtocol == "b")
                        try await atClient.write("\(number)")
                        atClient.closeAfterWriting()
                        #expect(try await atServer.readText() == "\(number)")
                        atServer.closeAfterWriting()
                    }
                }
                try await group.waitForAll()
            }
        }
    }

    @Test(arguments: [TLSVersion.tls12, .tls13])
    func `closeAfterWriting ends TLS properly`(version: TLSVersion) async throws {
        try await withStreams(setup.client(), setup.server(upTo: version)) { client, server in
            let bytes = [UInt8](repeating: 5, count: 300_000)
            server.send(bytes)
            server.closeAfterWriting()
            let received = try await client.readToEnd()
            #expect(received == bytes && client.tlsError == nil)
        }
    }
}
