// The rules of byte streams (numbered as in the contract), over every kind of connection:
// 1. Half-close: a task may write after `read` has returned nil; what a handler sends when it hears of the last byte arrives before its end.
// 2. `receiveLimit` bounds reading ahead, but not a frame that needs more.
// 4. `closeAfterWriting` sends everything, even if the peer still sends.
// 5. Handlers that are set late hear of everything before.
// 6. A stream that ends inside a frame throws `.endedEarly`; a frame beyond its limit ends the stream.
// 7. A cancelled write has queued nothing, or all; a cancelled read loses nothing.
// 8. Waiting writers go on in order.

import EventLoop
import EventLoopStreams
import EventLoopTestSupport
import Testing

/// Two connected streams on the loop of a thread of their own.
private func withStreams(
    _ kind: ConnectionKind, options: ByteStream.Options = .init(), _ body: (ByteStream, ByteStream) async throws -> Void
) async throws {
    let running = RunningLoop()
    let (first, second) = try kind.connect(on: running.loop, options: options)
    let result: (any Error)?
    do {
        try await body(first, second)
        result = nil
    } catch { result = error }
    first.close()
    second.close()
    try running.end()
    if let result { throw result }
}

private func small(receiveLimit: Int = 65_536, highWater: Int = 65_536, lowWater: Int = 16_384) -> ByteStream.Options {
    var options = ByteStream.Options()
    (options.receiveLimit, options.highWater, options.lowWater) = (receiveLimit, highWater, lowWater)
    return options
}

/// A value that one task after the other uses.
private final class Lent<Value>: @unchecked Sendable {
    // SAFETY: each task uses it after the one before has ended.
    var value: Value
    init(_ value: Value) { self.value = value }
}

private func readAll(_ stream: ByteStream) async throws -> [UInt8] {
    var bytes: [UInt8] = []
    while let piece = try await stream.read() { bytes += piece }
    return bytes
}

/// The kernel's buffers hold at most about 10 MiB of a TCP connection.
private let moreThanBuffers = [UInt8](repeating: 0, count: 16 << 20)

@Suite(.bounded, .tags(.memory, .threads)) struct RuleTests {
    @Test(arguments: ConnectionKind.allCases) func `a task may write after the end of the stream`(kind: ConnectionKind) async throws {
        try await withStreams(kind) { first, second in
            try await first.write("question")
            try await first.finishWriting()
            #expect(try await readAll(second) == Array("question".utf8))
            #expect(second.end == .endOfStream)
            try await second.write("answer")
            try await second.finishWriting()
            #expect(try await readAll(first) == Array("answer".utf8))
            #expect(first.end == .endOfStream)
        }
    }

    @Test(arguments: ConnectionKind.allCases)
    func `what a handler sends at the last byte arrives before its end is reported`(kind: ConnectionKind) async throws {
        try await withStreams(kind) { first, second in
            let ends = Box<[ByteStream.End]>([])
            let answer = [UInt8](repeating: 3, count: 500_000)
            second.onReceive { stream, bytes in
                bytes.consume(bytes.count)
                if bytes.isLast { stream.send(answer) }
            }
            second.onEnd { _, end in ends.change { $0.append(end) } }
            try await first.write("question")
            try await first.finishWriting()
            #expect(try await readAll(first) == answer)
            try await suspendUntil("the end is reported") { !ends.value.isEmpty }
            #expect(ends.value == [.endOfStream] && second.bytesSent == 500_000)
        }
    }

    @Test(arguments: ConnectionKind.allCases)
    func `a reader that takes nothing stops its peer, and no byte is lost`(kind: ConnectionKind) async throws {
        try await withStreams(kind, options: small(receiveLimit: 1_000, highWater: 2_000, lowWater: 500)) { first, second in
            async let written: Void = {
                for number in 0..<160 { try await first.write([UInt8](repeating: UInt8(number), count: 100_000)) }
                try await first.finishWriting()
            }()
            let one = try await second.read(exactly: 1)
            // When the kernel's buffers are full.
            try await suspendUntil("the writer waits") { first.testsOnlyWaiters.writers == 1 }
            #expect(first.bytesWaiting < 102_000 && second.testsOnlyBytesHeld <= 1_000)
            var start = one
            while start.count < 100_000 {
                let piece = try await second.read(upTo: 100_000 - start.count) ?? []
                #expect((1...1_000).contains(piece.count))
                start += piece
            }
            #expect(start == [UInt8](repeating: 0, count: 100_000))
            for number in 1..<160 {
                let piece = try await second.read(exactly: 100_000)
                if piece != [UInt8](repeating: UInt8(number), count: 100_000) { Issue.record("piece \(number) is wrong") }
            }
            try await written
            let end = try await second.read()
            #expect(end == nil && second.bytesReceived == 16_000_000)
        }
    }

    @Test(arguments: ConnectionKind.allCases) func `a frame may be longer than receiveLimit`(kind: ConnectionKind) async throws {
        try await withStreams(kind, options: small(receiveLimit: 100)) { first, second in
            let body = [UInt8](repeating: 8, count: 300_000)
            async let written: Void = {
                try await first.write([0, 4, 147, 224] + body)
                try await first.write("a line of forty bytes, which is too long\n")
                try await first.finishWriting()
            }()
            var frames = second.frames(LengthPrefixFraming()).makeAsyncIterator()
            let frame = try await frames.next()
            #expect(frame == body)
            var lines = second.lines(limit: 10).makeAsyncIterator()
            await #expect(throws: StreamError.frameTooLong(limit: 10)) { _ = try await lines.next() }
            #expect(second.end.map { if case .failed = $0 { true } else { false } } == true)
            try? await written
        }
    }

    @Test(arguments: ConnectionKind.allCases) func `a stream that ends inside a frame throws endedEarly`(kind: ConnectionKind) async throws
    {
        try await withStreams(kind) { first, second in
            try await first.write([0, 2, 1, 2, 0, 2, 1])
            try await first.finishWriting()
            var frames = second.frames(LengthPrefixFraming(lengthBytes: 2)).makeAsyncIterator()
            let frame = try await frames.next()
            #expect(frame == [1, 2])
            await #expect(throws: StreamError.endedEarly) { _ = try await frames.next() }
            // The writing side is untouched.
            try await second.write("still here")
            #expect(try await first.read(exactly: 10) == Array("still here".utf8))
        }
        try await withStreams(kind) { first, second in
            try await first.write("abc")
            try await first.finishWriting()
            await #expect(throws: StreamError.endedEarly) { try await second.read(exactly: 4) }
        }
    }

    @Test(arguments: ConnectionKind.allCases)
    func `closeAfterWriting sends everything although the peer sends too`(kind: ConnectionKind) async throws {
        try await withStreams(kind) { first, second in
            let bytes = [UInt8](repeating: 5, count: 1_000_000)
            async let received = readAll(second)
            // Nobody reads these. They must not destroy what is on its way.
            for _ in 0..<10 { second.send([UInt8](repeating: 6, count: 1_000)) }
            first.send(bytes)
            first.closeAfterWriting()
            #expect(try await received == bytes)
            second.close()
            try await suspendUntil("the stream has ended") { !first.isOpen }
            #expect(first.end == .closed && first.bytesSent == 1_000_000)
        }
    }

    @Test(arguments: ConnectionKind.allCases)
    func `handlers that are set after everything hear of everything`(kind: ConnectionKind) async throws {
        try await withStreams(kind) { first, second in
            try await first.write("early")
            try await first.finishWriting()
            first.closeAfterWriting()
            let trace = Trace()
            second.onEnd { _, end in trace.add("\(end)") }
            second.onReceive { _, bytes in
                trace.add(String(decoding: bytes.take(bytes.count), as: UTF8.self) + (bytes.isLast ? " last" : ""))
            }
            try await suspendUntil("the end is reported") { trace.list.contains("endOfStream") }
            let text = trace.list.dropLast().joined()
            #expect(text == "early last" && trace.list.last == "endOfStream")
            second.onEnd { _, _ in trace.add("again") }
        }
    }

    @Test(arguments: ConnectionKind.allCases) func `a cancelled read loses nothing`(kind: ConnectionKind) async throws {
        try await withStreams(kind) { first, second in
            for round in 0..<50 {
                async let piece = second.read(upTo: 10)
                let exact = Task { try await first.read(exactly: 6) }
                second.send("abc")
                if round % 3 == 0 { await Task.yield() }
                if round % 2 == 0 { exact.cancel() }
                second.send("def")
                let result = await exact.result
                let bytes: [UInt8]
                switch result {
                case .success(let read): bytes = read
                case .failure(let error):
                    #expect(error is CancellationError)
                    bytes = try await first.read(exactly: 6)
                }
                first.send("x")
                let other = try await piece
                #expect(bytes == Array("abcdef".utf8) && other == [120])
            }
        }
    }

    @Test(arguments: ConnectionKind.allCases)
    func `writers go on in order, and a cancelled one in the middle has written nothing`(kind: ConnectionKind) async throws {
        try await withStreams(kind, options: small(receiveLimit: 100, highWater: 100, lowWater: 10)) { first, second in
            first.send(moreThanBuffers)
            var tasks: [Task<Void, any Error>] = []
            for number in 1...9 {
                tasks.append(Task { try await first.write([UInt8(number), UInt8(number)]) })
                try await suspendUntil("writer \(number) waits") { first.testsOnlyWaiters.writers == number }
            }
            for number in [3, 7, 9] { tasks[number - 1].cancel() }
            for number in [3, 7, 9] { await #expect(throws: CancellationError.self) { try await tasks[number - 1].value } }
            let zeros = try await second.read(exactly: moreThanBuffers.count)
            #expect(zeros == moreThanBuffers)
            let rest = try await second.read(exactly: 12)
            #expect(rest == [1, 2, 4, 5, 6, 8].flatMap { [$0, $0] })
            for number in [1, 2, 4, 5, 6, 8] { try await tasks[number - 1].value }
            // The stream is usable.
            try await first.write("end")
            #expect(try await second.read(exactly: 3) == Array("end".utf8))
        }
    }

    @Test(arguments: ConnectionKind.allCases)
    func `calls in progress throw what ended the stream, and later ones the same`(kind: ConnectionKind) async throws {
        try await withStreams(kind, options: small(highWater: 100, lowWater: 10)) { first, _ in
            first.send(moreThanBuffers)
            let reader = Task { try await first.read() }
            let writer = Task { try await first.write("x") }
            try await suspendUntil("the writer waits") { first.testsOnlyWaiters.writers == 1 }
            let finisher = Task { try await first.finishWriting() }
            try await suspendUntil("all of them wait") { first.testsOnlyWaiters == (1, 1, 1) }
            first.close()
            await #expect(throws: StreamError.closed) { try await reader.value }
            await #expect(throws: StreamError.closed) { try await writer.value }
            await #expect(throws: StreamError.closed) { try await finisher.value }
            await #expect(throws: StreamError.closed) { try await first.read() }
            await #expect(throws: StreamError.closed) { try await first.write("x") }
            await #expect(throws: StreamError.closed) { try await first.finishWriting() }
            #expect(!first.send("x") && first.bytesWaiting == 0)
        }
    }

    @Test func `a framing notices that read has taken bytes in between`() async throws {
        try await withStreams(.memory) { first, second in
            let lines = Lent(second.lines().makeAsyncIterator())
            try await first.write("abcdef")
            let next = Task { try await lines.value.next() }
            try await suspendUntil("the task waits for the end of the line") {
                second.testsOnlyWaiters.readers == 1 && second.bytesReceived == 6
            }
            next.cancel()
            await #expect(throws: CancellationError.self) { try await next.value }
            #expect(try await second.read(upTo: 4) == Array("abcd".utf8))
            try await first.write("\ng\nhij\n")
            for expected in ["ef", "g", "hij"] {
                let line = try await lines.value.next()
                #expect(line == expected)
            }
        }
    }
}
