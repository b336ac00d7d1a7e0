// Rules proved here:
// - What one stream of a pair sends, the other receives, on one loop or two, with handlers or tasks.
// - A seed splits the bytes, at the same places each time.
// - A direction holds as many bytes as its capacity, and writers wait for the rest.
// - Closing, half-closing, resetting at any byte, ending at any byte and holding do what a connection does.

import EventLoop
import EventLoopStreams
import EventLoopTestSupport
import EventLoopTesting
import Testing

#if canImport(Glibc)
import Glibc
#else
import Darwin
#endif

private let isReset = ByteStream.End.failed(.system(operation: "read", errno: ECONNRESET))

/// Records what a stream receives, in pieces, and its end.
private func record(_ stream: ByteStream, _ trace: Trace, _ name: String = "") {
    stream.onReceive { _, bytes in
        trace.add("\(name)\(bytes.count)\(bytes.isLast ? " last" : "")")
        bytes.consume(bytes.count)
    }
    stream.onEnd { _, end in trace.add("\(name)\(end)") }
}

/// Passes until nothing more happens at once.
private func settle(_ loop: RunLoop) { for _ in 0..<20 { _ = loop.run(for: .zero) } }

private func closeBoth(_ pair: ByteStream.Pair) {
    pair.first.close()
    pair.second.close()
}

@Suite struct StreamPairTests {
    @Test func `a stream receives what the other one sends, and its end`() throws {
        try inManualTime { loop, _, trace in
            let pair = try ByteStream.pair(on: loop)
            record(pair.first, trace, "first ")
            record(pair.second, trace, "second ")
            pair.first.send("hello")
            pair.second.send("good day")
            settle(loop)
            #expect(trace.list.sorted() == ["first 8", "second 5"])
            pair.first.closeAfterWriting()
            settle(loop)
            #expect(trace.list.dropFirst(2).sorted() == ["first closed", "second 0 last", "second endOfStream"])
            #expect(pair.first.bytesSent == 5 && pair.second.bytesReceived == 5 && pair.second.bytesSent == 8)
            #expect(pair.first.peerAddress == nil && pair.first.localAddress == nil)
            #expect(loop.run(for: .zero) == .finished)
        }
    }

    @Test func `without a seed nothing is split, and with one the pieces are the same each time`() throws {
        func pieces(seed: UInt64?) throws -> [String] {
            try inManualTime { loop, _, trace in
                let pair = try ByteStream.pair(on: loop, seed: seed)
                record(pair.second, trace)
                pair.first.send([UInt8](repeating: 1, count: 10_000))
                pair.first.closeAfterWriting()
                _ = loop.run(for: .seconds(1))
                return trace.list
            }
        }
        #expect(try pieces(seed: nil) == ["10000", "0 last", "endOfStream"])
        let first = try pieces(seed: 1)
        #expect(try first.count > 10 && pieces(seed: 1) == first && pieces(seed: 2) != first)
        #expect(first.prefix { Int($0) != nil }.compactMap { Int($0) }.reduce(0, +) == 10_000)
    }

    @Test(arguments: 0..<10 as Range<UInt64>) func `every seed delivers every byte in order`(seed: UInt64) throws {
        try inManualTime { loop, _, _ in
            var random = SplitMix64(seed: seed)
            let sent = (0..<50_000).map { _ in UInt8(truncatingIfNeeded: random.next()) }
            let pair = try ByteStream.pair(on: loop, capacity: 1 + random.below(9_000), seed: seed)
            let received = Box<[UInt8]>([])
            pair.second.onReceive { _, bytes in
                let taken = bytes.take(bytes.count)
                received.change { $0 += taken }
            }
            var rest = sent[...]
            while !rest.isEmpty {
                let count = 1 + random.below(5_000)
                pair.first.send(Array(rest.prefix(count)))
                rest = rest.dropFirst(count)
            }
            pair.first.closeAfterWriting()
            _ = loop.run(for: .seconds(1))
            #expect(received.value == sent && pair.second.end == .endOfStream)
        }
    }

    @Test func `a direction holds its capacity, and the writing end waits`() throws {
        try inManualTime { loop, _, trace in
            var options = ByteStream.Options()
            (options.highWater, options.lowWater, options.receiveLimit) = (100, 10, 50)
            let pair = try ByteStream.pair(on: loop, options: options, capacity: 200)
            pair.first.onRoom { _ in trace.add("room") }
            pair.second.isReading = false
            #expect(pair.first.send([UInt8](repeating: 1, count: 299)))
            #expect(!pair.first.send([1]))
            settle(loop)
            #expect(pair.bytesOnTheirWay(.firstToSecond) == 200 && pair.first.bytesWaiting == 100 && trace.list == [])
            record(pair.second, trace)
            pair.second.isReading = true
            _ = loop.run(for: .seconds(1))
            #expect(pair.bytesOnTheirWay(.firstToSecond) == 0 && pair.first.bytesWaiting == 0)
            #expect(trace.list.contains("room") && pair.second.bytesReceived == 300)
            closeBoth(pair)
        }
    }

    @Test(arguments: [nil, 3] as [UInt64?]) func `a reset at every byte delivers what came before`(seed: UInt64?) throws {
        for count in 0...12 {
            try inManualTime { loop, _, trace in
                let pair = try ByteStream.pair(on: loop, seed: seed)
                record(pair.first, trace)
                record(pair.second, trace)
                pair.reset(after: count, .firstToSecond)
                pair.first.send("hello ")
                settle(loop)
                pair.first.send("world!")
                settle(loop)
                #expect(pair.second.bytesReceived == UInt64(count))
                #expect(pair.second.end == isReset && pair.first.end != nil)
                #expect(loop.run(for: .zero) == .finished)
            }
        }
    }

    @Test func `a direction that ends at a byte ends the receiving stream only`() throws {
        for count in 0...6 {
            try inManualTime { loop, _, trace in
                let pair = try ByteStream.pair(on: loop)
                record(pair.second, trace)
                pair.endOfStream(after: count, .firstToSecond)
                pair.first.send("hello")
                settle(loop)
                #expect(pair.second.bytesReceived == UInt64(min(count, 5)) && pair.first.isOpen)
                #expect(pair.second.end == (count <= 5 ? .endOfStream : nil))
                closeBoth(pair)
            }
        }
    }

    @Test func `held bytes arrive after resume, and a write timeout ends the stream meanwhile`() throws {
        try inManualTime { loop, clock, trace in
            var options = ByteStream.Options()
            options.writeTimeout = .seconds(5)
            let pair = try ByteStream.pair(on: loop, options: options, capacity: 10)
            record(pair.second, trace, "second ")
            record(pair.first, trace, "first ")
            pair.hold(.firstToSecond)
            pair.first.send("hello")
            settle(loop)
            #expect(trace.list == [] && pair.bytesOnTheirWay(.firstToSecond) == 5)
            pair.resume(.firstToSecond)
            settle(loop)
            #expect(trace.list == ["second 5"])
            pair.hold(.firstToSecond)
            pair.first.send("more than ten bytes")
            _ = loop.run(for: .seconds(6))
            #expect(trace.list == ["second 5", "first timedOut"] && clock.ms == 6_000)
            pair.second.close()
        }
    }

    @Test func `writing to a stream that was closed fails with EPIPE`() throws {
        try inManualTime { loop, _, _ in
            let pair = try ByteStream.pair(on: loop)
            pair.second.close()
            #expect(pair.first.isOpen)
            pair.first.onEnd { _, _ in }
            pair.first.send("x")
            settle(loop)
            #expect(pair.first.end == .failed(.system(operation: "write", errno: EPIPE)))
        }
    }

    @Test func `streams of a loop that has ended cannot be made, and those of one that ends do end`() throws {
        let kept = Box<ByteStream.Pair?>(nil)
        let ended = Box<[ByteStream.End]>([])
        let loop = try onFreshThread { loop in
            let pair = try ByteStream.pair(on: loop)
            for stream in [pair.first, pair.second] { stream.onEnd { _, end in ended.change { $0.append(end) } } }
            kept.value = pair
            return loop
        }
        #expect(ended.value.contains(.loopEnded) && ended.value.count == 2)
        #expect(kept.value?.first.isOpen == false && kept.value?.second.isOpen == false)
        do {
            _ = try ByteStream.pair(on: loop)
            Issue.record("the pair was made")
        } catch { #expect(error == .loopEnded) }
    }

    @Test func `a pair that nobody refers to any more is released`() throws {
        try inManualTime { loop, _, _ in
            let first = WeakReference<ByteStream>()
            try {
                let pair = try ByteStream.pair(on: loop)
                first.value = pair.first
                pair.first.send("x")
            }()
            settle(loop)
            #expect(first.value == nil && loop.run(for: .zero) == .finished)
        }
    }

    @Test(arguments: [0, -1]) func `a capacity below one byte is a precondition failure`(capacity: Int) async {
        await #expect(processExitsWith: .failure) { [capacity] in _ = try ByteStream.pair(on: .main, capacity: capacity) }
    }
}

@Suite(.bounded) struct StreamPairTaskTests {
    @Test(.runLoop(.manualTime(autoAdvance: true)), arguments: [nil, 1, 2] as [UInt64?])
    func `tasks talk over a pair`(seed: UInt64?) async throws {
        let pair = try ByteStream.pair(on: .ofTest, capacity: 100, seed: seed)
        async let echo: Void = {
            for try await line in pair.second.lines() { try await pair.second.write(line.uppercased() + "\n") }
            try await pair.second.finishWriting()
        }()
        async let sent: Void = {
            for number in 0..<200 { try await pair.first.write("line \(number)\r\n") }
            try await pair.first.finishWriting()
        }()
        var lines: [String] = []
        for try await line in pair.first.lines() { lines.append(line) }
        try await sent
        try await echo
        #expect(lines == (0..<200).map { "LINE \($0)" })
    }

    @Test(.runLoop(.manualTime(autoAdvance: true))) func `a stream that ends inside a message is noticed`() async throws {
        let pair = try ByteStream.pair(on: .ofTest)
        pair.endOfStream(after: 6, .firstToSecond)
        try await pair.first.write([0, 0, 0, 5, 1, 2, 3, 4, 5])
        await #expect(throws: StreamError.endedEarly) {
            for try await _ in pair.second.frames(LengthPrefixFraming()) { Issue.record("there is no whole message") }
        }
    }

    @Test(.runLoop(.manualTime(autoAdvance: true))) func `a peer that says nothing is left after the idle timeout`() async throws {
        var options = ByteStream.Options()
        options.idleTimeout = .seconds(60)
        let pair = try ByteStream.pair(on: .ofTest, options: options)
        let clock = RunLoop.ManualClock.ofTest
        await #expect(throws: StreamError.timedOut) { try await pair.first.read() }
        #expect(clock.now == RunLoop.Instant(nanoseconds: 60_000_000_000))
    }

    @Test func `the two streams of a pair may be on two loops`() async throws {
        let clock = RunLoop.ManualClock(autoAdvance: true)
        let threads = try (1...2).map { try RunLoopThread(name: "loop \($0)", setup: { $0.use(clock) }) }
        let pair = try ByteStream.pair(on: threads[0].runLoop, and: threads[1].runLoop, capacity: 1_000, seed: 9)
        async let received = {
            var bytes: [UInt8] = []
            while let piece = try await pair.second.read() { bytes += piece }
            return bytes
        }()
        for number in 0..<100 { try await pair.first.write([UInt8](repeating: UInt8(number), count: 997)) }
        try await pair.first.finishWriting()
        let bytes = try await received
        #expect(bytes == (0..<100).flatMap { [UInt8](repeating: UInt8($0), count: 997) })
        pair.first.close()
        pair.second.close()
        for thread in threads {
            thread.stop()
            await thread.join()
        }
    }
}
