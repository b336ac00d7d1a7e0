// Streams that tasks use.

import EventLoop
import EventLoopStreams
import EventLoopTestSupport
import Testing

#if canImport(Glibc)
import Glibc
#else
import Darwin
#endif

/// So many bytes of one value.
private struct Run: Equatable {
    let byte: UInt8
    var count: Int
}

private func runs(in bytes: [UInt8]) -> [Run] {
    var runs: [Run] = []
    for byte in bytes {
        if runs.last?.byte == byte { runs[runs.count - 1].count += 1 } else { runs.append(Run(byte: byte, count: 1)) }
    }
    return runs
}

/// Reads until the stream has ended its side.
private func everything(from pair: SocketPair) async -> [UInt8] {
    var all: [UInt8] = []
    while let bytes = pair.receivedBytes() {  // ends: with the end of the stream
        all += bytes
        await Task.yield()
    }
    return all
}

@Suite(.bounded, .tags(.memory, .threads)) struct TaskTests {
    /// A stream on a loop of its own thread, and the peer's socket.
    private func withStream(
        _ options: ByteStream.Options = .init(), _ body: (ByteStream, SocketPair, RunLoop) async throws -> Void
    ) async throws {
        let (pair, thread) = (SocketPair(), RunningLoop())
        let stream = try ByteStream(adopting: pair.ours, on: thread.loop, options: options)
        try await body(stream, pair, thread.loop)
        stream.close()
        try thread.end()
    }

    @Test func `a read returns what has come, and nil at the end, again and again`() async throws {
        try await withStream { stream, pair, _ async throws in
            pair.send("hello")
            #expect(try await stream.read() == Array("hello".utf8))
            pair.send("abcdef")
            #expect(try await stream.read(upTo: 2) == Array("ab".utf8))
            #expect(try await stream.read(upTo: 100) == Array("cdef".utf8))
            #expect(stream.end == nil)
            pair.finishPeer()
            #expect(try await stream.read() == nil)
            #expect(try await stream.read() == nil)
            #expect(stream.end == .endOfStream)
        }
    }

    @Test func `a task writes after the peer has sent its last byte`() async throws {
        try await withStream { stream, pair, _ async throws in
            pair.finishPeer()
            #expect(try await stream.read() == nil)
            try await stream.write("answer")
            try await stream.finishWriting()
            #expect(pair.received() == "answer")
            #expect(pair.received() == nil)
            #expect(stream.end == .endOfStream)
            await #expect(throws: StreamError.closed) { try await stream.write("more") }
        }
    }

    @Test func `a read of exactly so many bytes gets more than receiveLimit`() async throws {
        var options = ByteStream.Options()
        options.receiveLimit = 10
        try await withStream(options) { stream, pair, _ async throws in
            let bytes = (0..<50_000).map { UInt8(truncatingIfNeeded: $0) }
            pair.send(bytes)
            #expect(try await stream.read(exactly: 40_000) == Array(bytes[..<40_000]))
            pair.finishPeer()
            await #expect(throws: StreamError.endedEarly) { try await stream.read(exactly: 10_001) }
            #expect(try await stream.read(exactly: 0) == [])
        }
    }

    @Test func `a cancelled read loses no byte`() async throws {
        try await withStream { stream, pair, _ async throws in
            let reading = Task { try await stream.read(exactly: 4) }
            pair.send("ab")
            try await suspendUntil("two bytes came") { stream.bytesReceived == 2 }
            reading.cancel()
            await #expect(throws: CancellationError.self) { try await reading.value }
            pair.send("cd")
            #expect(try await stream.read(exactly: 4) == Array("abcd".utf8))
        }
    }

    @Test func `writers wait at highWater, keep their order, and a cancelled one has queued nothing`() async throws {
        var options = ByteStream.Options()
        (options.highWater, options.lowWater) = (1_000, 100)
        try await withStream(options) { stream, pair, _ async throws in
            // The kernel takes some of it; more than highWater waits.
            try await stream.write([UInt8](repeating: 1, count: 4_000_000))
            #expect(stream.bytesWaiting >= 1_000)
            var writers: [Task<Void, any Error>] = []
            for number in 2..<6 {
                writers.append(Task { try await stream.write([UInt8](repeating: UInt8(number), count: 2_000)) })
                try await suspendUntil("the writer waits") { stream.testsOnlyWaiters.writers == number - 1 }
            }
            writers[1].cancel()
            await #expect(throws: CancellationError.self) { try await writers[1].value }
            let ended = Task { try await stream.finishWriting() }
            let runs = runs(in: await everything(from: pair))
            #expect(
                runs == [
                    Run(byte: 1, count: 4_000_000), Run(byte: 2, count: 2_000), Run(byte: 4, count: 2_000), Run(byte: 5, count: 2_000),
                ])
            for index in [0, 2, 3] { try await writers[index].value }
            try await ended.value
        }
    }

    @Test func `lines, then exactly so many bytes, then lines again`() async throws {
        try await withStream { stream, pair, _ async throws in
            pair.send("POST\r\nLength: 4\r\n\r\nbodynext\nlast")
            pair.finishPeer()
            var header: [String] = []
            for try await line in stream.lines() {
                if line.isEmpty { break }
                header.append(line)
            }
            #expect(header == ["POST", "Length: 4"])
            #expect(try await stream.read(exactly: 4) == Array("body".utf8))
            var rest: [String] = []
            for try await line in stream.lines() { rest.append(line) }
            #expect(rest == ["next", "last"])
            #expect(stream.end == .endOfStream)
        }
    }

    /// Closes its stream while it has the input.
    private struct ClosingFraming: StreamFraming {
        let stream: ByteStream
        func next(in bytes: inout ReceivedBytes, isLast: Bool) throws -> Int? {
            stream.close()
            // The loop's thread has seen the end by then.
            try stream.loop.performAndWait {}
            return bytes.take(bytes.count).count
        }
    }

    @Test func `onEnd is called although a framing has the input when the stream ends`() async throws {
        try await withStream { stream, pair, loop in
            let ends = Box<[ByteStream.End]>([])
            stream.onEnd { _, end in ends.change { $0.append(end) } }
            pair.send("x")
            try await suspendUntil("a byte came") { stream.bytesReceived == 1 }
            // The stream ends on the loop's thread while the framing runs here.
            var frames = stream.frames(ClosingFraming(stream: stream)).makeAsyncIterator()
            #expect(try await frames.next() == 1)
            try await suspendUntil("the end is reported") { ends.value == [.closed] }
        }
    }

    /// Writes to a peer that is gone while it has the input.
    private struct FailingFraming: StreamFraming {
        let stream: ByteStream
        let pair: SocketPair
        func next(in bytes: inout ReceivedBytes, isLast: Bool) throws -> Int? {
            guard bytes.count > 0 else { return nil }
            pair.closePeer()
            #expect(!stream.send("nobody reads this"))
            try stream.loop.performAndWait {}
            return bytes.take(bytes.count).count
        }
    }

    @Test func `a stream ends although a framing has the input when a write fails`() async throws {
        try await withStream { stream, pair, _ in
            pair.send("x")
            try await suspendUntil("a byte came") { stream.bytesReceived == 1 }
            var frames = stream.frames(FailingFraming(stream: stream, pair: pair)).makeAsyncIterator()
            #expect(try await frames.next() == 1)
            try await suspendUntil("the stream ends") { stream.end != nil }
            guard case .failed(.system("write", EPIPE)) = stream.end else {
                Issue.record("ended with \(String(describing: stream.end))")
                return
            }
        }
    }

    /// At the end it shows itself other bytes than those of the stream.
    private struct ReplacingFraming: StreamFraming {
        mutating func next(in bytes: inout ReceivedBytes, isLast: Bool) -> Int? {
            if isLast {
                bytes = ReceivedBytes([1, 2, 3])
                return nil
            }
            let count = bytes.count
            bytes.consume(count)
            return count > 0 ? count : nil
        }
    }

    @Test func `frames end with the stream although the framing has replaced the bytes`() async throws {
        try await withStream { stream, pair, _ async throws in
            pair.send("abc")
            var lengths: [Int] = []
            var frames = stream.frames(ReplacingFraming()).makeAsyncIterator()
            lengths.append(try await frames.next() ?? -1)
            pair.finishPeer()
            lengths.append(try await frames.next() ?? -1)
            #expect(lengths == [3, -1])
        }
    }

    @Test func `readLine reads one line, and leaves the rest`() async throws {
        try await withStream { stream, pair, _ async throws in
            pair.send("one\r\ntwo\nrest")
            #expect(try await stream.readLine() == "one")
            #expect(try await stream.readLine() == "two")
            #expect(try await stream.read(exactly: 2) == Array("re".utf8))
            pair.finishPeer()
            #expect(try await stream.readLine() == "st")
            #expect(try await stream.readLine() == nil)
        }
    }

    @Test func `a line that is too long ends the stream`() async throws {
        try await withStream { stream, pair, _ async throws in
            pair.send(String(repeating: "x", count: 100))
            await #expect(throws: StreamError.frameTooLong(limit: 10)) {
                for try await _ in stream.lines(limit: 10) {}
            }
            guard case .failed(.system("framing", _)) = stream.end else {
                Issue.record("ended with \(String(describing: stream.end))")
                return
            }
        }
    }

    @Test func `a call in progress throws what ended the stream`() async throws {
        let (pair, thread) = (SocketPair(), RunningLoop())
        let stream = try ByteStream(adopting: pair.ours, on: thread.loop)
        let reading = Task { try await stream.read() }
        try await suspendUntil("the task reads") { stream.testsOnlyWaiters.readers == 1 }
        stream.close()
        await #expect(throws: StreamError.closed) { try await reading.value }
        let other = SocketPair()
        let left = try ByteStream(adopting: other.ours, on: thread.loop)
        let waiting = Task { try await left.read() }
        try await suspendUntil("the task reads") { left.testsOnlyWaiters.readers == 1 }
        try thread.end()
        await #expect(throws: RunLoopEnded.self) { try await waiting.value }
        #expect(left.end == .loopEnded)
        await #expect(throws: RunLoopEnded.self) { try await left.write("x") }
        #expect(throws: RunLoop.SourceError.loopEnded) { try ByteStream(adopting: SocketPair().ours, on: thread.loop) }
    }

    @Test func `the last release of a stream sends what was written`() async throws {
        let (pair, thread) = (SocketPair(), RunningLoop())
        var stream: ByteStream? = try ByteStream(adopting: pair.ours, on: thread.loop)
        try await stream?.write("goodbye")
        weak let released = stream
        stream = nil
        #expect(released == nil)
        #expect(pair.received() == "goodbye")
        try await suspendUntil("the peer has the end") { pair.received() == nil }
        try thread.end()
    }
}
