// Hostile peers, in manual time: those that are slow, silent, greedy or deaf. Each costs a bounded amount of memory, and the timeouts end it.

import EventLoop
import EventLoopStreams
import EventLoopTestSupport
import Testing

#if canImport(Glibc)
import Glibc
#else
import Darwin
#endif

private func limited(idle: Duration? = nil, write: Duration? = nil) -> ByteStream.Options {
    var options = ByteStream.Options()
    (options.receiveLimit, options.highWater, options.lowWater) = (1_000, 1_000, 100)
    (options.idleTimeout, options.writeTimeout) = (idle, write)
    return options
}

@Suite(.bounded, .tags(.memory, .threads)) struct SlowPeerTests {
    @Test(arguments: ConnectionKind.allCases)
    func `a peer that sends a byte a second is heard, and is not idle`(kind: ConnectionKind) throws {
        try inManualTime { loop, clock, trace in
            let (first, second) = try kind.connect(on: loop, options: limited(idle: .seconds(2)), others: limited())
            first.onReceive { _, bytes in
                while let line = bytes.takeLine() { trace.add("\(line)@\(clock.ms)") }  // ends: each turn takes a line
            }
            first.onEnd { _, end in trace.add("\(end)@\(clock.ms)") }
            let text = Array("slow\n".utf8)
            let next = Counter()
            let timer = RunLoop.Timer(fireAt: .ms(1_000), interval: .seconds(1)) { timer in
                let index = next.increment() - 1
                if index < text.count { second.send([text[index]]) } else { timer.invalidate() }
            }
            loop.add(timer)
            _ = loop.run(for: .seconds(20))
            #expect(trace.list == ["slow@5000", "timedOut@7000"])
            second.close()
        }
    }

    @Test(arguments: ConnectionKind.allCases)
    func `a stream that waits for its peer's end has one limit for that, and does not keep the loop busy`(kind: ConnectionKind) throws {
        try inManualTime { loop, clock, trace in
            var options = limited()
            options.receiveTimeout = .seconds(1)
            let (first, second) = try kind.connect(on: loop, options: options, others: limited())
            first.onEnd { _, end in trace.add("\(end)") }
            first.send("bye")
            first.closeAfterWriting()
            let passes = Counter()
            let observer = RunLoop.Observer(activities: .beforeTimers) { _, _ in passes.increment() }
            loop.add(observer)
            // The peer keeps its socket open, and is silent.
            _ = loop.run(for: .seconds(60))
            #expect(clock.ms == 60_000 && passes.value < 100)
            #expect(trace.list == ["closed"])
            second.close()
        }
    }

    @Test(arguments: ConnectionKind.allCases) func `a half-open connection ends after the idle timeout`(kind: ConnectionKind) throws {
        try inManualTime { loop, clock, trace in
            let (first, second) = try kind.connect(on: loop, options: limited(idle: .seconds(30)), others: limited())
            first.onEnd { _, end in trace.add("\(end)@\(clock.ms)") }
            loop.perform(after: .seconds(10)) { first.send("are you there?\n") }
            _ = loop.run(for: .seconds(100))
            #expect(trace.list == ["timedOut@40000"] && !first.isOpen)
            second.close()
        }
    }

    @Test(arguments: ConnectionKind.allCases)
    func `a peer that reads nothing ends after the write timeout, and costs what was written`(kind: ConnectionKind) throws {
        try inManualTime { loop, clock, trace in
            let (first, second) = try kind.connect(on: loop, options: limited(write: .seconds(5)), others: limited())
            second.isReading = false
            first.onEnd { _, end in trace.add("\(end)@\(clock.ms)") }
            let piece = [UInt8](repeating: 1, count: 100_000)
            // A well-behaved program stops when `send` answers false.
            var count = 0
            while first.send(piece) { count += 1 }
            #expect(first.bytesWaiting < 1_000 + piece.count)
            _ = loop.run(for: .seconds(4))
            #expect(trace.list == [])
            _ = loop.run(for: .seconds(100))
            // TCP moves bytes from one buffer to the other in real time, while manual time jumps: each of them is progress.
            if kind == .tcp {
                #expect(trace.list.count == 1 && trace.list.first?.hasPrefix("timedOut@") == true, "\(trace)")
            } else {
                #expect(trace.list == ["timedOut@5000"], "\(trace)")
            }
            #expect(first.bytesWaiting == 0)
            second.close()
        }
    }

    // Not TCP: the kernel acknowledges after 40 ms of real time, and manual time jumps.
    @Test(arguments: ConnectionKind.allCases.filter { $0 != .tcp }) func `a peer that reads slowly is not timed out while it reads`(
        kind: ConnectionKind
    ) throws {
        try inManualTime { loop, clock, trace in
            let (first, second) = try kind.connect(on: loop, options: limited(write: .seconds(5)), others: .init())
            let total = 4 << 20
            let (received, goal) = (Box(0), Box(0))
            second.onReceive { stream, bytes in
                received.value += bytes.count
                bytes.consume(bytes.count)
                if received.value >= goal.value { stream.isReading = false }
            }
            second.isReading = false
            // A MiB every three seconds.
            let timer = RunLoop.Timer(fireAt: .ms(3_000), interval: .seconds(3)) { _ in
                goal.value += 1 << 20
                second.isReading = true
            }
            loop.add(timer)
            first.onEnd { _, end in trace.add("\(end)@\(clock.ms)") }
            first.send([UInt8](repeating: 1, count: total))
            first.closeAfterWriting()
            _ = loop.run(for: .seconds(100))
            #expect(first.end == .closed && received.value == total, "\(trace), \(received.value) of \(total), \(first.bytesWaiting) wait")
            timer.invalidate()
            second.close()
        }
    }

    /// A Unix socket reports room when three quarters of its buffer are free, but takes bytes before.
    @Test func `a peer that makes less room than the kernel reports is not timed out`() throws {
        try inManualTime { loop, clock, trace in
            let (ours, peer) = connectedSockets()
            let stream = try ByteStream(adopting: ours, on: loop, options: limited(write: .seconds(5)))
            stream.onEnd { _, end in trace.add("\(end)") }
            let total = 1_000_000
            let count = Box(0)
            let timer = RunLoop.Timer(fireAt: .ms(3_000), interval: .seconds(3)) { timer in
                var bytes = [UInt8](repeating: 0, count: 40_000)
                let read = recv(peer, &bytes, bytes.count, Int32(MSG_DONTWAIT))
                count.value += max(read, 0)
                if count.value == total { timer.invalidate() }
            }
            loop.add(timer)
            stream.send([UInt8](repeating: 1, count: total))
            stream.closeAfterWriting()
            _ = loop.run(for: .seconds(80))
            #expect(count.value == total, "\(trace)@\(clock.ms)")
            close(peer)
            _ = loop.run(for: .seconds(10))
            #expect(trace.list == ["closed"])
            timer.invalidate()
        }
    }

    @Test(arguments: ConnectionKind.allCases)
    func `a flood of small messages to a stream that does not read stays in the kernel`(kind: ConnectionKind) throws {
        try inManualTime { loop, _, _ in
            let (first, second) = try kind.connect(on: loop, options: limited())
            first.onReceive { _, _ in }
            for _ in 0..<20_000 {
                second.send([1, 2, 3])
                if second.bytesWaiting > 100_000 { break }
                _ = loop.run(for: .zero)
            }
            settle(loop)
            #expect(first.testsOnlyBytesHeld <= 1_000 && !first.isReading)
            #expect(first.bytesReceived <= 1_000)
            first.close()
            second.close()
        }
    }

    @Test func `a peer that announces a lot gets no memory for it`() async throws {
        let running = RunningLoop()
        let (first, second) = try ConnectionKind.unixSocket.connect(on: running.loop)
        async let read = first.read(exactly: 1 << 50)
        for _ in 0..<40 { try await second.write([UInt8](repeating: 1, count: 100_000)) }
        try await second.finishWriting()
        do {
            _ = try await read
            Issue.record("there are not so many bytes")
        } catch { #expect(error as? StreamError == .endedEarly) }
        #expect(first.bytesReceived == 4_000_000)
        second.close()
        try running.end()
    }

    @Test func `a peer that never takes the last bytes is left when closeAfterWriting has a write timeout`() throws {
        try inManualTime { loop, clock, trace in
            let (first, second) = try ConnectionKind.unixSocket.connect(on: loop, options: limited(write: .seconds(5)), others: limited())
            second.isReading = false
            first.onEnd { _, end in trace.add("\(end)@\(clock.ms)") }
            first.send([UInt8](repeating: 1, count: 1_000_000))
            first.closeAfterWriting()
            _ = loop.run(for: .seconds(60))
            #expect(trace.list == ["timedOut@5000"])
            second.close()
        }
    }

    @Test func `a peer that sends forever while a stream lingers is cut off`() throws {
        try inManualTime { loop, clock, trace in
            let (first, second) = try ConnectionKind.unixSocket.connect(on: loop)
            first.onEnd { _, end in trace.add("\(end)") }
            first.send("bye")
            first.closeAfterWriting()
            let timer = RunLoop.Timer(fireAt: .ms(1), interval: .milliseconds(100)) { _ in second.send([1, 2, 3]) }
            loop.add(timer)
            second.onEnd { _, _ in timer.invalidate() }
            _ = loop.run(for: .seconds(60))
            #expect(trace.list == ["closed"] && !second.isOpen)
            #expect(loop.run(for: .zero) == .finished && clock.ms <= 60_000)
        }
    }
}
