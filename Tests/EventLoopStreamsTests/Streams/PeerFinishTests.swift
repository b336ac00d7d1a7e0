// Rules proved here (StreamCore+PeerFinish.swift, StreamCore+Timeouts.swift):
// - The peer's end is known while reading is paused, with unread bytes, on every transport; a handler is called once, and a task cancelled.
// - Without descriptors it is reported later, after a pause.
// - It is not reported after this side has ended the stream, nor after the stream's end, and never inside the call that asks.
// - `receiveTimeout` counts only while the stream reads.

import EventLoop
import EventLoopStreams
import EventLoopTestSupport
import Testing

#if canImport(Glibc)
import Glibc
#endif

#if os(Linux)
/// Calls `body` while the process gets no new descriptor.
private func withoutDescriptors(_ body: () -> Void) {
    var limit = rlimit()
    getrlimit(__rlimit_resource_t(RLIMIT_NOFILE.rawValue), &limit)
    let former = limit.rlim_cur
    limit.rlim_cur = 3
    setrlimit(__rlimit_resource_t(RLIMIT_NOFILE.rawValue), &limit)
    body()
    limit.rlim_cur = former
    setrlimit(__rlimit_resource_t(RLIMIT_NOFILE.rawValue), &limit)
}

private func pausedStream(over pair: SocketPair, on loop: RunLoop, _ trace: Trace) throws -> ByteStream {
    let stream = try ByteStream(adopting: pair.ours, on: loop)
    stream.onReceive { _, _ in trace.add("received") }
    _ = loop.run(for: .zero)
    stream.isReading = false
    return stream
}
#endif

/// A stream that reads everything, and whose loop stops at its end: when nothing has been received for ten seconds.
private func impatientStream(over pair: SocketPair, on loop: RunLoop, _ clock: RunLoop.ManualClock, _ trace: Trace) throws -> ByteStream {
    var options = ByteStream.Options()
    options.receiveTimeout = .seconds(10)
    let stream = try ByteStream(adopting: pair.ours, on: loop, options: options)
    stream.onReceive { _, bytes in bytes.consume(bytes.count) }
    stream.onEnd { _, end in
        trace.add("\(end) \(clock.ms)")
        loop.stop()
    }
    return stream
}

/// Has nothing to read, and fails or comes to its end when the test says so.
private final class FailingTransport: StreamTransport, @unchecked Sendable {
    // SAFETY: used on one thread.
    private var events: TransportEvents?
    private var isAtEnd = false

    func open(
        on loop: RunLoop, mode: RunLoop.Mode, label: String?, file: StaticString, line: UInt, _ events: TransportEvents
    ) throws(RunLoop.SourceError) {
        self.events = events
    }

    func fail() {
        let taken = events
        events = nil
        taken?.transportWillClose(.system(operation: "test", errno: 1))
        taken?.transportDidClose()
    }

    func finishReading() {
        isAtEnd = true
        events?.ready(read: true, write: false)
    }

    func read(into space: UnsafeMutableRawBufferPointer) -> TransferResult { isAtEnd ? .end : .wouldBlock }
    func write(_ parts: UnsafeBufferPointer<UnsafeRawBufferPointer>) -> TransferResult { .wouldBlock }
    func finishWriting() {}
    func didFinishWriting() {}
    func setInterest(read: Bool, write: Bool) {}
    func close() { fail() }
    let losesBytesOnClose = false
    let isWriteOnly = false
    let localAddress: RunLoop.SocketAddress? = nil
    let peerAddress: RunLoop.SocketAddress? = nil
}

@Suite(.bounded) struct PeerFinishTests {
    @Test(arguments: ConnectionKind.allCases) func `a paused stream with unread bytes learns that its peer has finished`(
        _ kind: ConnectionKind
    ) throws {
        try inManualTime { loop, _, trace in
            let (ours, peer) = try kind.connect(on: loop)
            ours.onReceive { _, _ in trace.add("received") }
            ours.isReading = false
            ours.onPeerFinish { _ in trace.add("replaced") }
            ours.onPeerFinish { stream in trace.add("finished \(stream === ours)") }
            peer.send("unread")
            for _ in 0..<4 { _ = loop.run(for: .zero) }
            #expect(!ours.peerHasFinished && trace.list.isEmpty)
            peer.closeAfterWriting()
            for _ in 0..<8 { _ = loop.run(for: .zero) }
            #expect(ours.peerHasFinished && trace.list == ["finished true"])
            ours.onPeerFinish { _ in trace.add("again") }
            for _ in 0..<4 { _ = loop.run(for: .zero) }
            #expect(trace.list == ["finished true"])
            ours.close()
        }
    }

    @Test(arguments: ConnectionKind.allCases) func `a late asker is called from the loop, and nobody after this side's close`(
        _ kind: ConnectionKind
    ) throws {
        try inManualTime { loop, _, trace in
            let (ours, peer) = try kind.connect(on: loop)
            peer.close()
            _ = loop.run(for: .zero)
            ours.onPeerFinish { _ in trace.add("late") }
            #expect(trace.list.isEmpty)
            for _ in 0..<4 { _ = loop.run(for: .zero) }
            #expect(trace.list == ["late"])
            ours.close()
            let (other, otherPeer) = try kind.connect(on: loop)
            other.onPeerFinish { _ in trace.add("after close") }
            other.close()
            otherPeer.close()
            for _ in 0..<4 { _ = loop.run(for: .zero) }
            #expect(trace.list == ["late"])
        }
    }

    @Test func `nobody is called for the end of a peer whose last bytes are dropped after this side's end`() throws {
        try inManualTime { loop, _, trace in
            let pair = SocketPair()
            let stream = try ByteStream(adopting: pair.ours, on: loop)
            stream.onPeerFinish { _ in trace.add("finished") }
            stream.onEnd { _, end in trace.add("\(end)") }
            stream.closeAfterWriting()
            _ = loop.run(for: .zero)
            #expect(trace.list == ["closed"])
            // More than one read, so the peer's end is known before it is read.
            _ = pair.sendUntilFull()
            pair.closePeer()
            for _ in 0..<8 { _ = loop.run(for: .zero) }
            #expect(trace.list == ["closed"])
        }
    }

    @Test func `a stream's end is reported after its peer's, although a task has read that`() throws {
        try inManualTime { loop, _, trace in
            let alive = loop.keepAlive()
            let transport = FailingTransport()
            let stream = try ByteStream(over: transport, on: loop)
            Task(executorPreference: loop) { trace.add(try await stream.read() == nil ? "read" : "bytes") }
            stream.onPeerFinish { _ in trace.add("finished") }
            stream.onEnd { _, end in trace.add("\(end)") }
            for _ in 0..<8 { _ = loop.run(for: .zero) }
            #expect(stream.testsOnlyWaiters.readers == 1 && trace.list.isEmpty)
            transport.finishReading()
            for _ in 0..<8 { _ = loop.run(for: .zero) }
            #expect(trace.list.filter { $0 != "read" } == ["finished", "endOfStream"])
            stream.close()
            alive.cancel()
        }
    }

    @Test(arguments: ConnectionKind.allCases) func `a task is cancelled when its peer finishes, and returns what it has`(
        _ kind: ConnectionKind
    ) async throws {
        try await withTestLoop { loop in
            let (ours, peer) = try kind.connect(on: loop)
            let hasBegun = Box(false)
            let result = Task {
                try await ours.withCancellationOnPeerFinish {
                    hasBegun.value = true
                    await suspendUntilCancelled()
                    return 7
                }
            }
            try await suspendUntil("the body runs") { hasBegun.value }
            peer.close()
            #expect(try await result.value == 7)
            ours.close()
        }
    }

    @Test func `a body that returns or throws first is not cancelled, and one whose stream ends goes on`() async throws {
        try await withTestLoop { loop in
            let (ours, peer) = try ConnectionKind.unixSocket.connect(on: loop)
            #expect(try await ours.withCancellationOnPeerFinish { Task.isCancelled } == false)
            await #expect(throws: StreamError.timedOut) {
                try await ours.withCancellationOnPeerFinish { throw StreamError.timedOut }
            }
            let isCancelled = try await ours.withCancellationOnPeerFinish {
                ours.close()
                try await suspendUntil("the end") { ours.end != nil }
                return Task.isCancelled
            }
            #expect(!isCancelled)
            peer.close()
        }
    }

    @Test func `a half-closing peer has finished, and still gets its answer`() throws {
        try inManualTime { loop, _, trace in
            let pair = SocketPair()
            let stream = try ByteStream(adopting: pair.ours, on: loop)
            stream.onPeerFinish { stream in
                trace.add("finished")
                stream.send("answer")
            }
            pair.finishPeer()
            for _ in 0..<4 { _ = loop.run(for: .zero) }
            #expect(trace.list == ["finished"] && pair.received() == "answer")
            stream.close()
        }
    }

    #if os(Linux)
    @Test func `a stream that was asked while there were no descriptors learns of its peer's end after all`() async {
        await #expect(processExitsWith: .success) {
            try inManualTime { loop, _, trace in
                let pair = SocketPair()
                let stream = try pausedStream(over: pair, on: loop, trace)
                withoutDescriptors {
                    stream.onPeerFinish { _ in trace.add("finished") }
                    _ = loop.run(for: .zero)
                }
                pair.send("unread")
                for _ in 0..<4 { _ = loop.run(for: .zero) }
                #expect(trace.list.isEmpty)
                pair.finishPeer()
                for _ in 0..<4 { _ = loop.run(for: .zero) }
                #expect(trace.list == ["finished"])
                stream.close()
            }
        }
    }

    /// Reading had stopped before, and does not stop again.
    @Test func `a stream that had stopped to read is watched after a pause, when there are descriptors again`() async {
        await #expect(processExitsWith: .success) {
            try inManualTime { loop, clock, trace in
                let pair = SocketPair()
                let stream = try pausedStream(over: pair, on: loop, trace)
                pair.send("unread")
                for _ in 0..<4 { _ = loop.run(for: .zero) }
                withoutDescriptors {
                    stream.onPeerFinish { _ in trace.add("finished") }
                    for _ in 0..<20 {
                        _ = loop.run(for: .zero)
                        clock.advance(by: .seconds(1))
                    }
                }
                pair.finishPeer()
                for _ in 0..<4 {
                    clock.advance(by: .seconds(1))
                    _ = loop.run(for: .zero)
                }
                #expect(trace.list == ["finished"])
                stream.close()
                // The pause leaves nothing in the mode.
                for _ in 0..<4 { _ = loop.run(for: .zero) }
                #expect(loop.run(for: .zero) == .finished)
            }
        }
    }

    @Test func `a stream that ends in the pause leaves no timer`() async {
        await #expect(processExitsWith: .success) {
            try inManualTime { loop, _, trace in
                let pair = SocketPair()
                let stream = try ByteStream(adopting: pair.ours, on: loop)
                _ = loop.run(for: .zero)
                withoutDescriptors {
                    stream.onPeerFinish { _ in trace.add("finished") }
                    for _ in 0..<4 { _ = loop.run(for: .zero) }
                }
                stream.close()
                for _ in 0..<4 { _ = loop.run(for: .zero) }
                #expect(trace.list.isEmpty && loop.run(for: .zero) == .finished)
            }
        }
    }
    #endif

    @Test func `nothing received for receiveTimeout ends the stream, whatever is sent`() throws {
        try inManualTime { loop, clock, trace in
            let pair = SocketPair()
            let stream = try impatientStream(over: pair, on: loop, clock, trace)
            let sending = RunLoop.Timer(fireAt: .ms(4_000), interval: .seconds(4)) { _ in stream.send("x") }
            loop.add(sending)
            loop.add(RunLoop.Timer(fireAt: .ms(5_000)) { _ in pair.send("y") })
            _ = loop.run(for: .seconds(100))
            sending.invalidate()
            #expect(trace.list == ["timedOut 15000"])
        }
    }

    @Test func `a paused stream does not time out, and counts anew when it reads again`() throws {
        try inManualTime { loop, clock, trace in
            let pair = SocketPair()
            let stream = try impatientStream(over: pair, on: loop, clock, trace)
            stream.isReading = false
            loop.add(RunLoop.Timer(fireAt: .ms(50_000)) { _ in stream.isReading = true })
            _ = loop.run(for: .seconds(200))
            #expect(trace.list == ["timedOut 60000"])
        }
    }

    // MARK: Reading stops for less than receiveTimeout, or for so long that its timer fires

    /// A stream that has four bytes, and a silent peer. It can hold `limit` bytes.
    private func withSilentPeer(
        limit: Int, _ body: @escaping @Sendable (ByteStream, SocketPair, RunLoop, RunLoop.ManualClock) throws -> Void
    ) throws -> [String] {
        try inManualTime { loop, clock, trace in
            var options = ByteStream.Options()
            (options.receiveTimeout, options.receiveLimit) = (.seconds(10), limit)
            let pair = SocketPair()
            let stream = try ByteStream(adopting: pair.ours, on: loop, options: options)
            stream.onEnd { _, end in trace.add("\(end) \(clock.ms)") }
            pair.send("abcd")
            try body(stream, pair, loop, clock)
            _ = loop.run(for: .seconds(200))
            return trace.list
        }
    }

    @Test(arguments: [6, 30]) func `receiveTimeout starts again when a handler returns that ran its loop`(seconds: Int) throws {
        let ends = try withSilentPeer(limit: 65_536) { stream, _, loop, _ in
            stream.onReceive { _, bytes in
                bytes.consume(bytes.count)
                _ = loop.run(for: .seconds(seconds))
            }
        }
        #expect(ends == ["timedOut \(1_000 * (seconds + 10))"])
    }

    @Test(arguments: [6, 30], [true, false])
    func `receiveTimeout starts again when somebody reads a stream that was full`(seconds: Int, isTask: Bool) throws {
        let ends = try withSilentPeer(limit: 4) { stream, _, loop, _ in
            _ = loop.run(for: .seconds(seconds))
            if isTask {
                Task(executorPreference: loop) { try await stream.read() }
            } else {
                stream.onReceive { _, bytes in bytes.consume(bytes.count) }
            }
        }
        #expect(ends == ["timedOut \(1_000 * (seconds + 10))"])
    }

    /// Returns everything that has come as one message, some time later.
    private struct SlowFraming: StreamFraming {
        let clock: RunLoop.ManualClock
        let time: Duration
        func next(in bytes: inout ReceivedBytes, isLast: Bool) throws -> [UInt8]? {
            if bytes.count == 0 { return nil }
            clock.advance(by: time)
            return bytes.take(bytes.count)
        }
    }

    @Test(arguments: [6, 30]) func `receiveTimeout starts again when a framing returns that took long`(seconds: Int) throws {
        let ends = try withSilentPeer(limit: 65_536) { stream, _, loop, clock in
            Task(executorPreference: loop) {
                for try await _ in stream.frames(SlowFraming(clock: clock, time: .seconds(seconds))) {}
            }
        }
        #expect(ends == ["timedOut \(1_000 * (seconds + 10))"])
    }

    @Test func `a task that takes what has come gives a silent peer no more time`() throws {
        let ends = try withSilentPeer(limit: 65_536) { stream, _, loop, _ in
            _ = loop.run(for: .seconds(6))
            Task(executorPreference: loop) { try await stream.read(upTo: 1) }
        }
        #expect(ends == ["timedOut 10000"])
    }

    @Test func `tasks learn of a failure before a handler is called, which may wait for them`() throws {
        try inManualTime { loop, _, trace in
            let alive = loop.keepAlive()
            let transport = FailingTransport()
            let stream = try ByteStream(over: transport, on: loop)
            Task(executorPreference: loop) {
                do { _ = try await stream.read() } catch { trace.add("thrown") }
            }
            stream.onPeerFinish { stream in
                for _ in 0..<8 { _ = stream.loop.run(for: .zero) }
                trace.add("called")
            }
            for _ in 0..<8 { _ = loop.run(for: .zero) }
            #expect(stream.testsOnlyWaiters.readers == 1 && trace.list.isEmpty)
            transport.fail()
            #expect(trace.list == ["thrown", "called"])
            alive.cancel()
        }
    }
}
