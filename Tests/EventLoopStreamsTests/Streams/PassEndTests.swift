// Rules proved here (StreamCore+Sending.swift): what tasks of the loop write in one pass leaves together at its end, or before the loop
// sleeps. A full `highWater`, `finishWriting` and `closeAfterWriting` send at once, and so does a task of another thread; `close` sends it first.

import EventLoop
import EventLoopStreams
import EventLoopTestSupport
import Testing

#if canImport(Glibc)
import Glibc
#else
import Darwin
#endif

@Suite(.bounded, .tags(.threads)) struct PassEndTests {
    @Test func `what several tasks write in one pass leaves together at its end`() throws {
        try onFreshThread { loop in
            let pair = SocketPair()
            let stream = try ByteStream(adopting: pair.ours, on: loop)
            let early = Box<[String]>([])
            for name in ["a", "b"] {
                Task(executorPreference: loop) {
                    for _ in 0..<8 { try await stream.write(name) }
                    early.change { $0.append(pair.received() ?? "end") }
                }
            }
            #expect(loop.run(for: .zero) == .timedOut)
            #expect(early.value == ["", ""])
            #expect(pair.received() == "aaaaaaaabbbbbbbb")
            stream.close()
        }
    }

    @Test func `what a task writes in the first step of a pass does not wait while the loop sleeps`() throws {
        try onFreshThread { loop in
            let pair = SocketPair()
            let stream = try ByteStream(adopting: pair.ours, on: loop)
            // Nobody wakes the loop but the bytes.
            let arrival = try RunLoop.DescriptorSource(descriptor: pair.peer, events: .read) { source, _ in
                source.invalidate()
                loop.stop()
            }
            loop.add(arrival)
            Task(executorPreference: loop) { try await stream.write("hello") }
            #expect(loop.run(for: .seconds(60)) == .stopped)
            #expect(pair.received() == "hello")
            stream.close()
        }
    }

    @Test func `a nested run sends what was written before it`() throws {
        try onFreshThread { loop in
            let pair = SocketPair()
            let stream = try ByteStream(adopting: pair.ours, on: loop)
            let seen = Box<[String]>([])
            Task(executorPreference: loop) {
                try await stream.write("hello")
                @Sendable func nest() { _ = RunLoop.current.run(for: .zero) }
                nest()
                seen.change { $0.append(pair.received() ?? "end") }
                loop.stop()
            }
            #expect(loop.run(for: .seconds(60)) == .stopped)
            #expect(seen.value == ["hello"])
            stream.close()
        }
    }

    @Test func `a full stream, its end and its close send at once`() throws {
        try onFreshThread { loop in
            var options = ByteStream.Options()
            (options.highWater, options.lowWater) = (100, 10)
            let pairs = (SocketPair(), SocketPair(), SocketPair())
            let full = try ByteStream(adopting: pairs.0.ours, on: loop, options: options)
            let finished = try ByteStream(adopting: pairs.1.ours, on: loop)
            let closed = try ByteStream(adopting: pairs.2.ours, on: loop)
            let seen = Box<[String]>([])
            try loop.runTask {
                try await full.write("not yet")
                seen.change { $0.append(pairs.0.received() ?? "end") }
                try await full.write(Array(repeating: 7, count: 200))
                seen.change { $0.append("\(pairs.0.receivedBytes()?.count ?? -1)") }
                try await closed.write("closed")
                closed.closeAfterWriting()
                seen.change { $0.append(pairs.2.received() ?? "end") }
                try await finished.write("finished")
                try await finished.finishWriting()
                seen.change { $0.append(pairs.1.received() ?? "end") }
            }
            #expect(seen.value == ["", "207", "closed", "finished"])
            full.close()
            finished.close()
        }
    }

    @Test func `a task of another thread sends at once`() async throws {
        try await withTestLoop { loop in
            let pair = SocketPair()
            let stream = try ByteStream(adopting: pair.ours, on: loop)
            try await stream.write("hello")
            #expect(pair.received() == "hello")
            stream.close()
        }
    }

    @Test func `what a task wrote is sent when the run ends with the task`() throws {
        try onFreshThread { loop in
            let pair = SocketPair()
            let stream = try ByteStream(adopting: pair.ours, on: loop)
            try loop.runTask { try await stream.write("hello") }
            #expect(pair.received() == "hello")
            stream.close()
        }
    }

    @Test(.enabled(if: !isUnderAddressSanitizer && !isUnderThreadSanitizer, "neither follows a thread that unwinds"))
    func `what a task wrote is sent when it ends the loop's thread`() throws {
        let pair = SocketPair()
        let thread = try RunLoopThread(name: "ends")
        let stream = try ByteStream(adopting: pair.ours, on: thread.runLoop)
        Task(executorPreference: thread.runLoop) {
            try await stream.write("hello")
            @Sendable func endThread() { pthread_exit(nil) }
            endThread()
        }
        #expect(thread.join(timeout: .seconds(60)))
        #expect(pair.received() == "hello")
        stream.close()
    }

    /// Commands of one byte; `!` is none.
    private struct Commands: StreamFraming {
        mutating func next(in bytes: inout ReceivedBytes, isLast: Bool) throws -> UInt8? {
            guard bytes.count > 0 else { return nil }
            let byte = bytes.take(1)[0]
            if byte == UInt8(ascii: "!") { throw StreamError.frameTooLong(limit: 0) }
            return byte
        }
    }

    @Test func `answers to the messages before one that is wrong are sent`() throws {
        try onFreshThread { loop in
            let pair = SocketPair()
            let stream = try ByteStream(adopting: pair.ours, on: loop)
            pair.send("abc!")
            try loop.runTask {
                await #expect(throws: StreamError.frameTooLong(limit: 0)) {
                    for try await byte in stream.frames(Commands()) { try await stream.write([byte]) }
                }
            }
            #expect(pair.received() == "abc")
        }
    }

    @Test func `a stream that is closed in the pass sends what was gathered, and one whose peer has left ends`() throws {
        try onFreshThread { loop in
            let pairs = (SocketPair(), SocketPair())
            let closed = try ByteStream(adopting: pairs.0.ours, on: loop)
            let left = try ByteStream(adopting: pairs.1.ours, on: loop)
            pairs.1.closePeer()
            try loop.runTask {
                try await closed.write("bye")
                closed.close()
                try await left.write("lost")
                await #expect(throws: (any Error).self) {
                    while true {  // ends: when the peer's end is noticed
                        try await left.write("more")
                        await Task.yield()
                    }
                }
            }
            #expect(pairs.0.received() == "bye")
        }
    }
}
