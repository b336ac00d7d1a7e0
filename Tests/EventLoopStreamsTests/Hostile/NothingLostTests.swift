// Rules 27.9, 27.15 and 27.16, where two things meet: a handler that is being called and a thread that resumes it, a write that waits and
// one that does not, our failing write and the peer's answer.

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

private func pair(
    _ capacity: Int = 65_536, on loop: RunLoop, _ options: ByteStream.Options = .init(), receiveLimit: Int = 65_536
) throws -> (MemoryLink, ByteStream, ByteStream) {
    var others = ByteStream.Options()
    others.receiveLimit = receiveLimit
    let link = MemoryLink(capacity: capacity, seed: nil)
    let ours = try ByteStream(over: MemoryTransport(link, end: 0), on: loop, options: options)
    return (link, ours, try ByteStream(over: MemoryTransport(link, end: 1), on: loop, options: others))
}

/// Sets a handler that does what `body` does, and sets itself again in each of its calls; not for ever, so that the test ends in any case.
private func receiveAgain(
    _ stream: ByteStream, _ calls: Counter, _ body: @escaping @Sendable (ByteStream, inout ReceivedBytes) -> Void
) {
    stream.onReceive { stream, bytes in
        body(stream, &bytes)
        if calls.increment() < 1_000 { receiveAgain(stream, calls, body) }
    }
}

@Suite(.bounded, .tags(.memory, .threads)) struct NothingLostTests {
    // MARK: Call again

    @Test(arguments: [100, 70_000])
    func `a thread that resumes reading before the handler returns has the handler called again`(count: Int) throws {
        try inManualTime { loop, _, trace in
            let (_, ours, peer) = try pair(on: loop)
            let calls = Counter()
            ours.onReceive { stream, bytes in
                if calls.increment() == 1 {
                    // The work is given to a thread, which is done before the call is.
                    stream.isReading = false
                    try! plainThread { stream.isReading = true }.join()
                    return
                }
                bytes.consume(bytes.count)
            }
            peer.send([UInt8](repeating: 1, count: count))
            settle(loop)
            #expect(calls.value >= 2 && ours.testsOnlyBytesHeld == 0 && ours.bytesReceived == UInt64(count))
            ours.close()
            peer.close()
        }
    }

    @Test(arguments: [true, false])
    func `a handler that is replaced in its own call hears of what is left`(isLast: Bool) throws {
        try inManualTime { loop, _, trace in
            let (_, ours, peer) = try pair(on: loop)
            ours.isReading = false
            ours.onReceive { stream, bytes in
                trace.add("header \(String(decoding: bytes.take(6), as: UTF8.self))")
                stream.onReceive { _, bytes in
                    trace.add("body \(String(decoding: bytes.take(bytes.count), as: UTF8.self))\(bytes.isLast ? " last" : "")")
                }
            }
            ours.onEnd { _, end in trace.add("\(end)") }
            peer.send("headerbody")
            if isLast {
                // The end comes together with the bytes: a paused stream takes both in when it goes on.
                peer.finishSending()
            }
            ours.isReading = true
            settle(loop)
            #expect(trace.list.joined(separator: ", ").hasPrefix("header header, body body"))
            #expect(!isLast || trace.list.last == "endOfStream" && trace.list.filter { $0.hasSuffix("last") }.count == 1)
            ours.close()
            peer.close()
        }
    }

    @Test(arguments: [0, 5])
    func `a handler that takes nothing and sets itself again in each last call is called a hundred times at most`(count: Int) throws {
        try inManualTime { loop, _, trace in
            let (_, ours, peer) = try pair(on: loop)
            // Nobody has a handler yet, so the bytes and the end come together.
            if count > 0 { peer.send([UInt8](repeating: 1, count: count)) }
            peer.finishSending()
            settle(loop)
            receiveAgain(ours, Counter()) { _, bytes in trace.add("\(bytes.count)\(bytes.isLast ? " last" : "")") }
            ours.onEnd { _, end in trace.add("\(end)") }
            settle(loop)
            #expect(trace.list.last == "endOfStream" && trace.list.count <= 102)
            #expect(Set(trace.list) == ["\(count) last", "endOfStream"])
            peer.close()
        }
    }

    @Test func `a handler that takes nothing and sets itself again in each call does not keep the loop, and hears of what comes later`()
        throws
    {
        try inManualTime { loop, _, trace in
            let (_, ours, peer) = try pair(on: loop)
            peer.send("bytes")
            receiveAgain(ours, Counter()) { _, bytes in trace.add("\(bytes.count)") }
            settle(loop)
            #expect(Set(trace.list) == ["5"] && trace.list.count <= 101)
            peer.send("!")
            settle(loop)
            #expect(trace.list.last == "6" && trace.list.count <= 202)
            peer.close()
            ours.close()
        }
    }

    @Test func `handlers that set each other and take nothing are all called, also at the end`() throws {
        try inManualTime { loop, _, trace in
            let (_, ours, peer) = try pair(on: loop)
            peer.send("bytes")
            peer.finishSending()
            settle(loop)
            @Sendable func set(_ stream: ByteStream, _ number: Int) {
                stream.onReceive { stream, bytes in
                    if number < 10 { return set(stream, number + 1) }
                    trace.add(String(decoding: bytes.take(bytes.count), as: UTF8.self))
                }
            }
            set(ours, 0)
            ours.onEnd { _, end in trace.add("\(end)") }
            settle(loop)
            #expect(trace.list == ["bytes", "endOfStream"])
            peer.close()
        }
    }

    @Test func `a handler that pauses and sets itself again in each last call is called whenever it is resumed`() throws {
        try inManualTime { loop, _, trace in
            let (_, ours, peer) = try pair(on: loop)
            peer.send("bytes")
            peer.finishSending()
            settle(loop)
            let takes = Box(false)
            receiveAgain(ours, Counter()) { stream, bytes in
                trace.add("\(bytes.count)")
                if takes.value { bytes.consume(bytes.count) } else { stream.isReading = false }
            }
            ours.onEnd { _, end in trace.add("\(end)") }
            settle(loop)
            for count in 1...3 {
                #expect(trace.list == Array(repeating: "5", count: count))
                takes.value = count == 3
                ours.isReading = true
                settle(loop)
            }
            #expect(trace.list.filter { $0 != "0" } == ["5", "5", "5", "5", "endOfStream"] && trace.list.count < 110)
            peer.close()
        }
    }

    @Test func `a handler that pauses and sets itself again in each last call does not keep a stream whose time is over`() throws {
        try inManualTime { loop, _, trace in
            var options = ByteStream.Options()
            options.writeTimeout = .seconds(5)
            let (_, ours, peer) = try pair(100, on: loop, options)
            peer.isReading = false
            peer.send("bytes")
            peer.finishSending()
            settle(loop)
            receiveAgain(ours, Counter()) { stream, bytes in
                trace.add("\(bytes.count)")
                stream.isReading = false
            }
            ours.onEnd { _, end in trace.add("\(end)") }
            ours.send([UInt8](repeating: 1, count: 10_000))
            settle(loop)
            #expect(trace.list == ["5"])
            _ = loop.run(for: .seconds(60))
            #expect(trace.list.last == "timedOut" && trace.list.count <= 102)
            peer.close()
        }
    }

    // MARK: send and write

    @Test func `send does not overtake a write that waits`() async throws {
        try await withTestLoop { loop in
            var options = ByteStream.Options()
            (options.highWater, options.lowWater) = (100, 10)
            let (link, ours, peer) = try pair(100, on: loop, options)
            link.hold(from: 0, true)
            ours.send([UInt8](repeating: 1, count: 300))
            async let written: Void = ours.write([UInt8](repeating: 2, count: 5))
            try await suspendUntil("the write waits") { ours.testsOnlyWaiters.writers == 1 }
            #expect(!ours.send([3, 3]))
            #expect(ours.testsOnlyWaiters.writers == 1)
            link.hold(from: 0, false)
            let received = try await peer.read(exactly: 307)
            try await written
            #expect(Array(received.suffix(7)) == [2, 2, 2, 2, 2, 3, 3])
        }
    }

    @Test func `steady sends do not starve a write that waits`() async throws {
        try await withTestLoop { loop in
            var options = ByteStream.Options()
            (options.highWater, options.lowWater) = (100, 10)
            let (_, ours, peer) = try pair(50, on: loop, options, receiveLimit: 50)
            ours.send([UInt8](repeating: 1, count: 300))
            let isWritten = Box(false)
            let task = Task {
                try await ours.write([2])
                isWritten.value = true
            }
            try await suspendUntil("the write waits") { ours.testsOnlyWaiters.writers == 1 }
            for _ in 0..<50 {
                ours.send([UInt8](repeating: 3, count: 60))
                _ = try await peer.read(exactly: 50)
            }
            try await suspendUntil("the write has returned") { isWritten.value }
            try await task.value
        }
    }

    // MARK: Answers

    /// The peer has sent an answer and closed, and our write fails before the answer is read.
    private func failedWrite(_ loop: RunLoop, _ answer: Int) throws -> ByteStream {
        let (one, two) = connectedSockets()
        var size: Int32 = 1 << 20
        for end in [one, two] { setsockopt(end, SOL_SOCKET, SO_SNDBUF, &size, 4) }
        let ours = try ByteStream(adopting: one, on: loop)
        let bytes = (0..<answer).map { UInt8(truncatingIfNeeded: $0 / 7) }
        precondition(bytes.withUnsafeBytes { write(two, $0.baseAddress, $0.count) } == answer)
        // Another test's child may hold it, so closing it is not enough for our write to fail.
        shutdown(two, CInt(SHUT_RDWR))
        close(two)
        return ours
    }

    @Test func `an answer before our failing write waits for a paused handler`() throws {
        try inManualTime { loop, _, trace in
            let ours = try failedWrite(loop, 150_000)
            let received = Box<[UInt8]>([])
            ours.isReading = false
            ours.onReceive { _, bytes in
                let piece = bytes.take(bytes.count)
                received.change { $0 += piece }
            }
            ours.onEnd { _, end in trace.add("\(end)") }
            ours.send("x")
            settle(loop)
            #expect(received.value.isEmpty && trace.list == [], "a paused handler is not called")
            ours.isReading = true
            settle(loop)
            #expect(received.value == (0..<150_000).map { UInt8(truncatingIfNeeded: $0 / 7) })
            #expect(trace.list == ["endOfStream"], "the peer has ended properly")
        }
    }

    @Test func `an answer that fits waits for a paused handler as well`() throws {
        try inManualTime { loop, _, trace in
            let ours = try failedWrite(loop, 100)
            ours.isReading = false
            ours.onReceive { _, bytes in
                trace.add("\(bytes.count)")
                bytes.consume(bytes.count)
            }
            ours.onEnd { _, end in trace.add("\(end)") }
            ours.send("x")
            settle(loop)
            #expect(trace.list == [])
            ours.isReading = true
            settle(loop)
            #expect(trace.list == ["100", "endOfStream"])
        }
    }

    @Test func `an answer before our failing write waits for a handler that is set late`() throws {
        try inManualTime { loop, _, trace in
            let ours = try failedWrite(loop, 150_000)
            ours.send("x")
            settle(loop)
            let count = Counter()
            ours.onReceive { _, bytes in
                for _ in 0..<bytes.count { _ = count.increment() }
                bytes.consume(bytes.count)
            }
            ours.onEnd { _, end in trace.add("\(end)") }
            settle(loop)
            #expect(count.value == 150_000 && trace.list == ["endOfStream"])
        }
    }

    @Test func `an answer before our failing write waits for a task that has not read yet`() async throws {
        try await withTestLoop { loop in
            let ours = try failedWrite(loop, 150_000)
            ours.send("x")
            await #expect(throws: (any Error).self) { try await ours.write("y") }
            try await suspendUntil("the failure is handled") { ours.testsOnlyBytesHeld > 0 }
            var count = 0
            while let piece = try await ours.read() { count += piece.count }
            #expect(count == 150_000)
        }
    }

    @Test func `an answer before our failing write is there after the end that only a handler of the end has learned`() async throws {
        try await withTestLoop { loop in
            let ours = try failedWrite(loop, 150_000)
            let ended = Box<ByteStream.End?>(nil)
            ours.onEnd { _, end in ended.value = end }
            ours.send("x")
            // Nobody reads: the stream ends all the same, or it would live for ever.
            try await suspendUntil("the end is reported") { ended.value != nil }
            guard case .failed = ended.value else { throw StreamError.closed }
            #expect(try await ours.read(exactly: 150_000) == (0..<150_000).map { UInt8(truncatingIfNeeded: $0 / 7) })
            #expect(try await ours.read() == nil, "the peer has ended properly")
        }
    }

    @Test(arguments: [true, false])
    func `a stream whose peer has ended and then takes nothing ends`(isLate: Bool) throws {
        try inManualTime { loop, _, trace in
            let (_, ours, peer) = try pair(100, on: loop, receiveLimit: 100)
            peer.isReading = false
            ours.onReceive { stream, bytes in
                bytes.consume(bytes.count)
                trace.add(bytes.isLast ? "last" : "bytes")
            }
            ours.onEnd { _, end in trace.add(end == .endOfStream ? "end" : "failed") }
            ours.send([UInt8](repeating: 1, count: 10_000))
            if isLate { settle(loop) }
            peer.finishSending()
            settle(loop)
            #expect(trace.list == ["last"])
            peer.close()
            settle(loop)
            #expect(trace.list == ["last", "failed"])
            #expect(loop.run(for: .zero) == .finished)
        }
    }

    @Test(arguments: [true, false])
    func `a stream that is closing, with unread bytes, ends when its peer takes nothing`(isReleased: Bool) throws {
        try inManualTime { loop, _, trace in
            var options = ByteStream.Options()
            options.receiveLimit = 100
            let link = MemoryLink(capacity: 1_000, seed: nil)
            var ours: ByteStream? = try ByteStream(over: MemoryTransport(link, end: 0), on: loop, options: options)
            let peer = try ByteStream(over: MemoryTransport(link, end: 1), on: loop, options: options)
            peer.isReading = false
            peer.send([UInt8](repeating: 2, count: 800))
            if !isReleased {
                ours?.isReading = false
                ours?.onReceive { _, _ in trace.add("bytes") }
                ours?.onEnd { _, _ in trace.add("end") }
            }
            ours?.send([UInt8](repeating: 1, count: 10_000))
            settle(loop)
            if !isReleased { ours?.closeAfterWriting() }
            ours = nil
            settle(loop)
            peer.close()
            settle(loop)
            #expect(isReleased || trace.list.last == "end")
            #expect(loop.run(for: .zero) == .finished)
        }
    }

    @Test func `closing drops an answer that waits, and ends`() throws {
        try inManualTime { loop, _, trace in
            let ours = try failedWrite(loop, 150_000)
            ours.isReading = false
            ours.onReceive { _, _ in trace.add("bytes") }
            ours.onEnd { _, end in trace.add("\(end)") }
            ours.send("x")
            settle(loop)
            ours.close()
            settle(loop)
            #expect(trace.list == ["closed"])
            #expect(loop.run(for: .zero) == .finished)
        }
    }

    // MARK: Time

    @Test func `timeouts go on in a nested run inside a handler that the idle timer called`() throws {
        try inManualTime { loop, clock, trace in
            var options = ByteStream.Options()
            options.idleTimeout = .seconds(5)
            let (ours, peer) = try ConnectionKind.unixSocket.connect(on: loop, options: options, others: .init())
            ours.onReceive { stream, bytes in
                bytes.consume(bytes.count)
                trace.add("in")
                _ = loop.run(for: .seconds(60))
                trace.add("out \(stream.end.map { "\($0)" } ?? "open")")
            }
            ours.onEnd { _, end in trace.add("\(end)") }
            _ = loop.run(for: .seconds(1))
            peer.send("hello")
            clock.advance(by: .seconds(10))
            _ = loop.run(for: .seconds(100))
            #expect(trace.list == ["in", "out timedOut", "timedOut"])
            peer.close()
        }
    }

    // Not over TCP: its kernel takes more bytes some real time later, which restarts the limit.
    @Test(arguments: ConnectionKind.allCases.filter { $0 != .tcp }, [true, false])
    func `a second closeAfterWriting tightens the limit`(kind: ConnectionKind, isFirstCalled: Bool) throws {
        try inManualTime { loop, clock, trace in
            let (ours, peer) = try kind.connect(on: loop)
            peer.isReading = false
            ours.send([UInt8](repeating: 1, count: 16 << 20))
            ours.onEnd { _, end in trace.add("\(end)") }
            if isFirstCalled { ours.closeAfterWriting() }
            settle(loop)
            let start = clock.ms
            ours.closeAfterWriting(writeTimeout: .seconds(30))
            _ = loop.run(for: .seconds(34))
            #expect(trace.list == ["timedOut"], "after \(clock.ms - start) ms")
            peer.close()
        }
    }

    // MARK: Read in vain

    @Test func `bytes that come between a read in vain and a look into the error queue are not lost`() throws {
        // Unix sockets ignore MSG_ERRQUEUE, so looking there took the bytes.
        let pair = SocketPair()
        pair.send("hello")
        cstreams_drop_error_messages(pair.ours)
        try inManualTime { loop, _, trace in
            let stream = try ByteStream(adopting: pair.ours, on: loop)
            stream.onReceive { _, bytes in trace.add(String(decoding: bytes.take(bytes.count), as: UTF8.self)) }
            _ = loop.run(for: .seconds(1))
            #expect(trace.description == "hello")
            stream.close()
        }
    }
}
