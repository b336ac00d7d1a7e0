// Streams with handlers.

import CStreams
import EventLoop
import EventLoopStreams
import EventLoopTestSupport
import Testing

#if canImport(Glibc)
import Glibc
#else
import Darwin
#endif

@Suite(.bounded, .tags(.memory)) struct HandlerTests {
    @Test func `a handler echoes, and hears of the end when the peer has sent its last byte`() throws {
        try inManualTime { loop, _, trace in
            let pair = SocketPair()
            let stream = try ByteStream(adopting: pair.ours, on: loop)
            stream.onReceive { stream, bytes in
                trace.add("\(bytes.count)\(bytes.isLast ? " last" : "")")
                stream.send(bytes.take(bytes.count))
            }
            stream.onEnd { stream, end in trace.add("\(end)") }
            pair.send("hello")
            _ = loop.run(for: .zero)
            #expect(pair.received() == "hello")
            pair.finishPeer()
            _ = loop.run(for: .zero)
            #expect(trace.list == ["5", "0 last", "endOfStream"])
            #expect(pair.received() == nil)
            #expect(stream.end == .endOfStream && !stream.isOpen)
            #expect(stream.bytesReceived == 5 && stream.bytesSent == 5 && stream.bytesWaiting == 0)
        }
    }

    @Test func `what a handler leaves is there the next time, with more behind it`() throws {
        try inManualTime { loop, _, trace in
            let pair = SocketPair()
            let stream = try ByteStream(adopting: pair.ours, on: loop)
            stream.onReceive { _, bytes in
                while let line = bytes.takeLine() { trace.add(line) }  // ends: each turn takes a line
                trace.add("\(bytes.count)")
            }
            for piece in ["on", "e\ntw", "o\n", "three\nfour\n"] {
                pair.send(piece)
                _ = loop.run(for: .zero)
            }
            #expect(trace.list == ["2", "one", "2", "two", "0", "three", "four", "0"])
            stream.close()
        }
    }

    @Test func `a handler that leaves as much as the limit is not called again until isReading is set`() throws {
        try inManualTime { loop, _, trace in
            let pair = SocketPair()
            var options = ByteStream.Options()
            options.receiveLimit = 4
            let stream = try ByteStream(adopting: pair.ours, on: loop, options: options)
            let takes = Box(false)
            stream.onReceive { stream, bytes in
                trace.add("\(bytes.count)")
                if takes.value { bytes.consume(bytes.count) }
            }
            pair.send("abcdefgh")
            _ = loop.run(for: .zero)
            _ = loop.run(for: .zero)
            #expect(trace.list == ["4"] && !stream.isReading)
            takes.value = true
            stream.isReading = true
            _ = loop.run(for: .zero)
            #expect(trace.list == ["4", "4", "4"] && stream.isReading)
            stream.close()
        }
    }

    @Test func `handlers that are set late hear of everything before`() throws {
        try inManualTime { loop, _, trace in
            let pair = SocketPair()
            let stream = try ByteStream(adopting: pair.ours, on: loop)
            pair.send("early")
            pair.closePeer()
            _ = loop.run(for: .zero)
            _ = loop.run(for: .zero)
            stream.onEnd { _, end in trace.add("\(end)") }
            _ = loop.run(for: .zero)
            #expect(trace.list == [])
            stream.onReceive { _, bytes in trace.add("\(bytes.count)\(bytes.isLast ? " last" : "")") }
            _ = loop.run(for: .zero)
            _ = loop.run(for: .zero)
            #expect(trace.list == ["5 last", "endOfStream"])
        }
    }

    @Test func `handlers that are set after the end are called although the loop ends before another pass`() throws {
        let trace = Trace()
        try onFreshThread { loop in
            let stream = try ByteStream(adopting: SocketPair().ours, on: loop)
            stream.close()
            stream.onEnd { _, end in trace.add("\(end)") }
            #expect(trace.list.isEmpty)
        }
        #expect(trace.list == ["closed"])
        let pair = SocketPair()
        try onFreshThread { loop in
            let stream = try ByteStream(adopting: pair.ours, on: loop)
            stream.onReceive { _, _ in }
            pair.closePeer()
            while stream.isOpen { _ = loop.run(for: .zero) }
            stream.onPeerFinish { _ in trace.add("finished") }
            stream.onEnd { _, end in trace.add("\(end)") }
        }
        #expect(trace.list == ["closed", "finished", "endOfStream"])
    }

    @Test func `the failure of a stream is reported after the peer's end, whichever handler was set first`() throws {
        try inManualTime { loop, _, trace in
            let link = MemoryLink(capacity: 100, seed: nil)
            let stream = try ByteStream(over: MemoryTransport(link, end: 0), on: loop)
            link.reset()
            for _ in 0..<4 { _ = loop.run(for: .zero) }
            #expect(!stream.isOpen)
            stream.onEnd { _, _ in trace.add("end") }
            stream.onPeerFinish { _ in trace.add("finished") }
            for _ in 0..<4 { _ = loop.run(for: .zero) }
            #expect(trace.list == ["finished", "end"])
        }
    }

    @Test func `the end of a stream that lingers after a failed handshake is reported last`() throws {
        try inManualTime { loop, _, trace in
            let pair = SocketPair()
            let stream = try ByteStream(adopting: pair.ours, on: loop)
            stream.onPeerFinish { _ in trace.add("finished") }
            stream.onEnd { _, _ in trace.add("end") }
            pair.send("F")
            Task(executorPreference: loop) { try? await stream.install(ScriptedLayer(), timeout: nil) }
            for _ in 0..<8 { _ = loop.run(for: .zero) }
            #expect(!stream.isOpen)
            pair.closePeer()
            for _ in 0..<8 { _ = loop.run(for: .zero) }
            #expect(trace.list == ["finished", "end"])
        }
    }

    @Test func `finishSending tells the peer that no more comes, and reading goes on`() throws {
        try inManualTime { loop, _, trace in
            let pair = SocketPair()
            let stream = try ByteStream(adopting: pair.ours, on: loop)
            stream.onReceive { stream, bytes in trace.add("\(bytes.take(bytes.count).count)\(bytes.isLast ? " last" : "")") }
            stream.onEnd { _, end in trace.add("\(end)") }
            stream.send("question")
            stream.finishSending()
            #expect(!stream.send("more"))
            #expect(pair.received() == "question")
            #expect(pair.received() == nil)
            pair.send("answer")
            _ = loop.run(for: .zero)
            pair.finishPeer()
            _ = loop.run(for: .zero)
            #expect(trace.list == ["6", "0 last", "endOfStream"])
        }
    }

    @Test func `the end of writing ends a stream over a pipe's writing end, and the reader hears of it`() throws {
        try inManualTime { loop, _, trace in
            var ends: [Int32] = [-1, -1]
            try #require(closeOnExecPipe(&ends))
            defer { close(ends[0]) }
            let stream = try ByteStream(adopting: ends[1], on: loop)
            stream.onEnd { _, end in trace.add("\(end)") }
            stream.send("all")
            stream.finishSending()
            var buffer = [UInt8](repeating: 0, count: 10)
            #expect(read(ends[0], &buffer, 10) == 3)
            #expect(read(ends[0], &buffer, 10) == 0)
            #expect(trace.list == ["closed"])
        }
    }

    @Test func `send answers false at highWater, and onRoom is called at lowWater`() throws {
        try inManualTime { loop, _, trace in
            let pair = SocketPair()
            let stream = try ByteStream(adopting: pair.ours, on: loop)
            stream.onRoom { stream in trace.add("room \(stream.bytesWaiting <= 16_384)") }
            var isRoom = true
            while isRoom { isRoom = stream.send([UInt8](repeating: 1, count: 10_000)) }  // ends: the socket takes a finite amount
            #expect(stream.bytesWaiting >= 65_536)
            #expect(stream.send("still queued") == false)
            while trace.list.isEmpty {  // ends: each turn reads
                _ = pair.received()
                _ = loop.run(for: .zero)
            }
            #expect(trace.list == ["room true"])
            stream.close()
            #expect(stream.send("x") == false && stream.end == .closed)
        }
    }

    @Test func `onEnd is called once for each way to end`() throws {
        try inManualTime { loop, _, trace in
            func open(_ name: String) throws -> (ByteStream, SocketPair) {
                let pair = SocketPair()
                var options = ByteStream.Options()
                options.idleTimeout = .seconds(10)
                let stream = try ByteStream(adopting: pair.ours, on: loop, options: options)
                stream.onReceive { _, bytes in bytes.consume(bytes.count) }
                stream.onEnd { _, end in trace.add("\(name) \(end)") }
                return (stream, pair)
            }
            let closed = try open("close")
            closed.0.close()
            let closing = try open("after")
            closing.0.send("bye")
            closing.0.closeAfterWriting()
            #expect(closing.1.received() == "bye")
            let silent = try open("idle")
            _ = loop.run(for: .seconds(60))
            #expect(trace.list == ["close closed", "after closed", "idle timedOut"])
            withExtendedLifetime(silent) {}
        }
    }
}
