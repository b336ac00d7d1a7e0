// Two things at once, in manual time: whatever coincides, a stream reports its end once, calls no handler after it, and loses nothing that was
// promised.

import EventLoop
import EventLoopStreams
import EventLoopTestSupport
import Testing

#if canImport(Glibc)
import Glibc
#else
import Darwin
#endif

/// Records every call of a stream's handlers.
private func record(_ stream: ByteStream, _ trace: Trace, _ name: String = "") {
    stream.onReceive { _, bytes in
        trace.add("\(name)\(bytes.count)\(bytes.isLast ? " last" : "")")
        bytes.consume(bytes.count)
    }
    stream.onRoom { _ in trace.add("\(name)room") }
    stream.onEnd { _, end in trace.add("\(name)\(end)") }
}

private func idle(_ limit: Duration) -> ByteStream.Options {
    var options = ByteStream.Options()
    options.idleTimeout = limit
    return options
}

@Suite(.tags(.memory)) struct CoincidenceTests {
    @Test(arguments: ConnectionKind.allCases) func `a stream that is closed while bytes wait calls only onEnd`(kind: ConnectionKind) throws
    {
        try inManualTime { loop, _, trace in
            let (first, second) = try kind.connect(on: loop)
            record(first, trace)
            second.send("bytes")
            second.close()
            first.close()
            settle(loop)
            #expect(trace.list == ["closed"])
            #expect(loop.run(for: .zero) == .finished)
        }
    }

    @Test(arguments: ConnectionKind.allCases) func `a handler closes its stream, and is not called again`(kind: ConnectionKind) throws {
        for takes in [true, false] {
            for peerCloses in [true, false] {
                try inManualTime { loop, _, trace in
                    let (first, second) = try kind.connect(on: loop)
                    first.onReceive { stream, bytes in
                        trace.add("bytes")
                        if takes { bytes.consume(1) }
                        stream.close()
                        stream.send("nothing")
                        trace.add("closed it")
                    }
                    first.onEnd { stream, end in
                        trace.add("\(end)")
                        #expect(!stream.send("after the end"))
                        stream.close()
                        stream.closeAfterWriting()
                        stream.onEnd { _, _ in trace.add("again") }
                        stream.onReceive { _, _ in trace.add("again") }
                    }
                    second.send("bytes")
                    if peerCloses { second.closeAfterWriting() }
                    settle(loop)
                    #expect(trace.list == ["bytes", "closed it", "closed"])
                    #expect(first.bytesSent == 0)
                    second.close()
                    settle(loop)
                    #expect(loop.run(for: .zero) == .finished)
                }
            }
        }
    }

    @Test(arguments: ConnectionKind.allCases)
    func `a handler that runs its loop is not called meanwhile, and nothing is lost`(kind: ConnectionKind) throws {
        try inManualTime { loop, _, trace in
            let (first, second) = try kind.connect(on: loop)
            let received = Box("")
            let depth = Box(0)
            first.onReceive { stream, bytes in
                #expect(depth.increment() == 1)
                let text = String(decoding: bytes.take(bytes.count), as: UTF8.self)
                received.change { $0 += text }
                stream.send("<\(text)>")
                stream.send("!")
                second.send(received.value.utf8.count < 20 ? "more." : "")
                settle(loop, passes: 5)
                stream.send("?")
                depth.value = 0
            }
            first.onEnd { _, end in trace.add("\(end)") }
            let echoed = Box("")
            second.onReceive { _, bytes in
                let text = String(decoding: bytes.take(bytes.count), as: UTF8.self)
                echoed.change { $0 += text }
            }
            second.send("begin")
            settle(loop, passes: 60)
            #expect(received.value == "beginmore.more.more.")
            first.close()
            second.close()
            settle(loop)
            #expect(trace.list == ["closed"])
            #expect(echoed.value.filter { $0 != "!" && $0 != "?" && $0 != "<" && $0 != ">" } == "beginmore.more.more.")
        }
    }

    @Test(arguments: ConnectionKind.allCases) func `a handler closes its stream inside a nested run`(kind: ConnectionKind) throws {
        try inManualTime { loop, _, trace in
            let (first, second) = try kind.connect(on: loop)
            first.onReceive { stream, bytes in
                trace.add("in")
                loop.perform { stream.close() }
                settle(loop, passes: 5)
                trace.add("out \(bytes.count)")
            }
            first.onEnd { _, end in trace.add("\(end)") }
            second.send("bytes")
            settle(loop)
            #expect(trace.list == ["in", "out 5", "closed"])
            second.close()
            settle(loop)
            #expect(loop.run(for: .zero) == .finished)
        }
    }

    @Test(arguments: ConnectionKind.allCases)
    func `bytes that came while the loop was busy keep a stream from being idle`(kind: ConnectionKind) throws {
        try inManualTime { loop, clock, trace in
            let (first, second) = try kind.connect(on: loop, options: idle(.seconds(5)), others: .init())
            record(first, trace)
            _ = loop.run(for: .seconds(1))
            // The loop does something else for ten seconds, and the peer sends meanwhile.
            second.send("hello")
            clock.advance(by: .seconds(10))
            _ = loop.run(for: .seconds(1))
            #expect(trace.list == ["5"] && first.isOpen)
            _ = loop.run(for: .seconds(10))
            #expect(trace.list == ["5", "timedOut"])
            second.close()
        }
    }

    @Test(arguments: ConnectionKind.allCases) func `both sides close at once`(kind: ConnectionKind) throws {
        for order in 0..<4 {
            try inManualTime { loop, _, trace in
                let (first, second) = try kind.connect(on: loop)
                record(first, trace, "first ")
                record(second, trace, "second ")
                first.send([UInt8](repeating: 1, count: 10_000))
                second.send([UInt8](repeating: 2, count: 10_000))
                if order & 1 == 0 { first.closeAfterWriting() } else { first.close() }
                if order & 2 == 0 { second.closeAfterWriting() } else { second.close() }
                _ = loop.run(for: .seconds(60))
                #expect(first.end == .closed && second.end == .closed)
                #expect(trace.list.filter { $0.hasSuffix("closed") }.sorted() == ["first closed", "second closed"])
                #expect(loop.run(for: .zero) == .finished)
            }
        }
    }

    @Test(arguments: ConnectionKind.allCases) func `closing in the middle of closeAfterWriting ends once`(kind: ConnectionKind) throws {
        try inManualTime { loop, _, trace in
            let (first, second) = try kind.connect(on: loop)
            record(first, trace)
            second.isReading = false
            first.send([UInt8](repeating: 1, count: 16 << 20))
            first.closeAfterWriting()
            first.closeAfterWriting()
            settle(loop)
            #expect(trace.list == [] && first.isOpen)
            #expect(!first.send("more"))
            first.close()
            settle(loop)
            #expect(trace.list == ["closed"] && first.bytesWaiting == 0)
            second.close()
            settle(loop)
            #expect(loop.run(for: .zero) == .finished)
        }
    }

    @Test(arguments: ConnectionKind.allCases) func `sending in onRoom goes on, and closing there ends`(kind: ConnectionKind) throws {
        try inManualTime { loop, _, trace in
            var options = ByteStream.Options()
            (options.highWater, options.lowWater) = (1_000, 100)
            let (first, second) = try kind.connect(on: loop, options: options, others: .init())
            second.onReceive { _, bytes in bytes.consume(bytes.count) }
            let piece = [UInt8](repeating: 1, count: kind == .splitMemory ? 100_000 : 4 << 20)
            let rounds = Counter()
            first.onRoom { stream in
                if rounds.increment() < 5 { return _ = stream.send(piece) }
                stream.close()
                trace.add("closing")
            }
            first.onEnd { _, end in trace.add("\(end)") }
            first.send(piece)
            // TCP on the loopback interface may need a moment of real time to open its window.
            try waitUntil("the stream has ended") {
                settle(loop)
                return !first.isOpen
            }
            settle(loop)
            #expect(rounds.value == 5 && trace.list == ["closing", "closed"])
            second.close()
        }
    }

    @Test func `a stream that is released by its own handlers ends properly`() throws {
        try inManualTime { loop, _, trace in
            let kept = Box<ByteStream?>(nil)
            let weak = WeakReference<ByteStream>()
            let (first, second) = try ConnectionKind.unixSocket.connect(on: loop)
            record(second, trace, "second ")
            (kept.value, weak.value) = (first, first)
            first.onReceive { _, bytes in
                bytes.consume(bytes.count)
                kept.value = nil
            }
            first.onEnd { _, end in trace.add("\(end)") }
            second.send("x")
            second.closeAfterWriting()
            settle(loop)
            #expect(trace.list.contains("endOfStream") && trace.list.contains("second closed"))
        }
    }

    @Test(arguments: ConnectionKind.allCases)
    func `isReading false holds back the last byte, and true delivers it`(kind: ConnectionKind) throws {
        try inManualTime { loop, _, trace in
            let (first, second) = try kind.connect(on: loop)
            record(first, trace)
            first.isReading = false
            second.send("late")
            second.closeAfterWriting()
            settle(loop)
            #expect(trace.list == [])
            first.isReading = true
            settle(loop)
            #expect(trace.list.last == "endOfStream" && first.bytesReceived == 4)
            settle(loop)
            #expect(loop.run(for: .zero) == .finished)
        }
    }

    @Test func `a terminal's controlling side sees the end when the program is gone`() throws {
        try inManualTime { loop, _, trace in
            let (controlling, program) = makeTerminal()
            var settings = termios()
            precondition(tcgetattr(program, &settings) == 0)
            cfmakeraw(&settings)
            precondition(tcsetattr(program, TCSANOW, &settings) == 0)
            let stream = try ByteStream(adopting: controlling, on: loop)
            stream.onReceive { stream, bytes in
                trace.add(String(decoding: bytes.take(bytes.count), as: UTF8.self) + (bytes.isLast ? " last" : ""))
            }
            stream.onEnd { _, end in trace.add("\(end)") }
            precondition(write(program, "hello", 5) == 5)
            settle(loop)
            stream.send("typed")
            var bytes = [UInt8](repeating: 0, count: 10)
            #expect(read(program, &bytes, 10) == 5)
            close(program)
            // A process that another test starts has a copy of the program's side until it executes its program.
            try waitUntil("the end of the terminal") {
                settle(loop)
                return trace.list.count > 1
            }
            #expect(trace.list == ["hello", " last", "endOfStream"])
        }
    }

    @Test func `writing to a pipe without a reader raises no signal`() async {
        await #expect(processExitsWith: .success) {
            let done = try? onFreshThread { loop -> Bool in
                let ends = Box<[ByteStream.End]>([])
                let (forth, back) = (openPipe(), openPipe())
                let stream = try ByteStream(reading: back.0, writing: forth.1, on: loop)
                stream.onEnd { _, end in ends.change { $0.append(end) } }
                close(forth.0)
                stream.send("x")
                settle(loop)
                close(back.1)
                return ends.value == [.failed(.system(operation: "write", errno: EPIPE))]
            }
            _exit(done == true ? 0 : 1)
        }
    }

    @Test func `a stream works when the process has no descriptor left`() async {
        await #expect(processExitsWith: .success) {
            let done = try? onFreshThread { loop -> Bool in
                let (ours, peer) = connectedSockets()
                let trace = Trace()
                _ = loop.run(for: .zero)
                while dup(peer) >= 0 {}  // ends: at the process's limit
                let stream = try ByteStream(adopting: ours, on: loop)
                stream.onReceive { stream, bytes in stream.send(bytes.take(bytes.count)) }
                stream.onEnd { _, end in trace.add("\(end)") }
                precondition(write(peer, "hello", 5) == 5)
                settle(loop)
                var bytes = [UInt8](repeating: 0, count: 10)
                guard read(peer, &bytes, 10) == 5 else { return false }
                stream.closeAfterWriting()
                _ = shutdown(peer, Int32(SHUT_WR))
                settle(loop)
                return trace.list == ["closed"]
            }
            _exit(done == true ? 0 : 1)
        }
    }
}
