// The border between a stream and its transport, with a transport that records what it is asked for.

import EventLoop
import EventLoopTestSupport
import Testing

@testable import EventLoopStreams

#if canImport(Glibc)
import Glibc
#else
import Darwin
#endif

/// Takes what is written, has nothing to read, and leaves the loop when the test says so.
private final class RecordingTransport: StreamTransport, @unchecked Sendable {
    // SAFETY: used on one thread.
    let trace: Trace
    var events: TransportEvents?
    var room = Int.max
    var taken: [UInt8] = []

    init(_ trace: Trace) { self.trace = trace }

    func open(
        on loop: RunLoop, mode: RunLoop.Mode, label: String?, file: StaticString, line: UInt, _ events: TransportEvents
    ) throws(RunLoop.SourceError) {
        self.events = events
    }

    func read(into space: UnsafeMutableRawBufferPointer) -> TransferResult {
        trace.add("read")
        return .wouldBlock
    }

    func write(_ parts: UnsafeBufferPointer<UnsafeRawBufferPointer>) -> TransferResult {
        let count = min(room, parts.reduce(0) { $0 + $1.count })
        room -= count
        taken += parts.joined().prefix(count)
        trace.add("write \(count) of \(parts.count)")
        return count == 0 ? .wouldBlock : .bytes(count)
    }

    func finishWriting() { trace.add("finish") }
    func didFinishWriting() {}
    func setInterest(read: Bool, write: Bool) { trace.add("interest \(read ? "r" : "")\(write ? "w" : "")") }
    let losesBytesOnClose = false
    let isWriteOnly = false
    func close() {
        trace.add("close")
        leave(nil)
    }

    func leave(_ failure: RunLoop.SourceError?) {
        let taken = events
        events = nil
        taken?.transportWillClose(failure)
        trace.add("gone")
        taken?.transportDidClose()
    }

    let localAddress: RunLoop.SocketAddress? = nil
    let peerAddress: RunLoop.SocketAddress? = nil
}

private func text(of count: Int, from pair: SocketPair) throws -> String {
    var all = ""
    try waitUntil("the bytes are there") {
        all += pair.received() ?? ""
        return all.utf8.count >= count
    }
    return all
}

@Suite(.bounded, .tags(.memory, .threads)) struct TransportTests {
    @Test func `a transport that is leaving is not used, even before it says that it has left`() throws {
        try inManualTime { loop, _, trace in
            let transport = RecordingTransport(trace)
            let stream = try ByteStream(over: transport, on: loop)
            let events = try #require(transport.events)
            transport.events = nil
            events.transportWillClose(.system(operation: "test", errno: 1))
            #expect(!stream.send("x") && !stream.isOpen)
            events.ready(read: true, write: true)
            stream.isReading = false
            stream.close()
            #expect(trace.list == [])
            events.transportDidClose()
            #expect(stream.end == .failed(.system(operation: "test", errno: 1)))
        }
    }

    // Each call returned at once, so that timers and other streams waited until the task had written everything.
    @Test func `a task that writes without end leaves the loop to others, also if the transport takes everything`() throws {
        try inManualTime { loop, _, trace in
            let stream = try ByteStream(over: RecordingTransport(Trace()), on: loop)
            let hasFired = Box(false)
            loop.add(RunLoop.Timer(after: .zero) { _ in hasFired.value = true })
            Task(executorPreference: loop) {
                var count = 0
                while !hasFired.value && count < 1_000 {
                    try await stream.write([UInt8](repeating: 0, count: 4_096))
                    count += 1
                }
                trace.add("\(count * 4_096)")
                loop.stop()
            }
            _ = loop.run()
            #expect(trace.list == ["524288"])
            stream.close()
        }
    }

    @Test func `a cancelled task may say goodbye, and cannot write without end`() throws {
        try inManualTime { loop, _, trace in
            let transport = RecordingTransport(Trace())
            let stream = try ByteStream(over: transport, on: loop)
            Task(executorPreference: loop) {
                do {
                    try await stream.write([UInt8](repeating: 0, count: 524_272))
                    withUnsafeCurrentTask { $0?.cancel() }
                    try await stream.write("goodbye!")
                    for _ in 0..<1_000 { try await stream.write([UInt8](repeating: 0, count: 4_096)) }
                } catch { trace.add("\(error is CancellationError)") }
                loop.stop()
            }
            _ = loop.run()
            #expect(trace.list == ["true"])
            #expect(transport.taken[524_272...].starts(with: Array("goodbye!".utf8)) && transport.taken.count == 524_280 + 127 * 4_096)
            stream.close()
        }
    }

    @Test func `what a handler sends after its first bytes goes out in one call`() throws {
        try inManualTime { loop, _, trace in
            let pair = SocketPair()
            let stream = try ByteStream(adopting: pair.ours, on: loop)
            stream.onReceive { stream, bytes in
                bytes.consume(bytes.count)
                for word in ["a", "b", "c", "d"] { stream.send(word) }
                trace.add("\(stream.bytesWaiting)")
            }
            pair.send("go")
            _ = loop.run(for: .zero)
            #expect(trace.list == ["3"] && stream.bytesWaiting == 0)
            #expect(pair.received() == "abcd")
            stream.close()
        }
    }

    @Test func `a stream that closes when everything is sent has no receive timeout`() throws {
        try inManualTime { loop, clock, _ in
            let transport = RecordingTransport(Trace())
            transport.room = 10
            var options = ByteStream.Options()
            options.receiveTimeout = .seconds(1)
            let stream = try ByteStream(over: transport, on: loop, options: options)
            stream.send(String(repeating: "x", count: 100))
            stream.closeAfterWriting()
            _ = loop.run(for: .seconds(5))
            #expect(stream.end == nil && stream.bytesWaiting == 90)
            transport.room = 90
            transport.events?.ready(read: false, write: true)
            #expect(stream.end == .closed && transport.taken.count == 100)
        }
    }

    @Test func `what is sent while the loop prepares to sleep in a handler goes out before it sleeps`() throws {
        try inManualTime { loop, _, trace in
            let (pair, pipe) = (SocketPair(), Pipe())
            let stream = try ByteStream(adopting: pair.ours, on: loop)
            stream.onReceive { stream, bytes in
                bytes.consume(bytes.count)
                stream.send("first ")
                stream.send("second ")
                // The loop begins to watch it before it sleeps, and finds that it stands for nothing any more.
                let copy = dup(pipe.readEnd)
                guard let source = try? RunLoop.DescriptorSource(descriptor: copy, events: .read, handler: { _, _ in }) else { return }
                source.onInvalidation { stream.send("last") }
                loop.add(source, forMode: "nested")
                close(copy)
                loop.addIdleSource(forMode: "nested")
                let waker = plainThread {
                    trace.add((try? text(of: 17, from: pair)) ?? "nothing came")
                    loop.stop()
                }
                trace.add("\(loop.run(mode: "nested", until: .distantFuture))")
                try? waker.join()
            }
            pair.send("go")
            _ = loop.run(for: .zero)
            #expect(trace.list == ["first second last", "stopped"])
            stream.close()
        }
    }

    @Test func `after a call that sent more than once, what a handler sends goes out when it returns, except many bytes in place`() throws {
        try inManualTime { loop, _, trace in
            let pair = SocketPair()
            let stream = try ByteStream(adopting: pair.ours, on: loop)
            stream.onReceive { stream, bytes in
                let request = bytes.take(bytes.count)
                for byte in request.dropLast(1) {
                    let piece = [UInt8](repeating: byte, count: byte == UInt8(ascii: "L") ? 5_000 : 1)
                    piece.withUnsafeBytes { _ = stream.send($0) }
                }
                trace.add("\(stream.bytesWaiting), \(pair.receivedBytes()?.count ?? -1)")
            }
            for request in ["a.", "ab.", "a.", "a.", "ab.", "Lab.", "abc."] {
                pair.send(request)
                _ = loop.run(for: .zero)
                trace.add("\(pair.receivedBytes()?.count ?? -1)")
            }
            // What waits in the handler and what has come; then what comes after it.
            #expect(
                trace.list == [
                    "0, 1", "0", "1, 1", "1", "1, 0", "1", "0, 1", "0", "1, 1", "1", "2, 5000", "2", "3, 0", "3",
                ])
            stream.close()
        }
    }

    @Test func `a stream that the kernel blocks makes no callout under its lock`() throws {
        try inManualTime { loop, _, trace in
            let (pair, pipe) = (SocketPair(), Pipe())
            let stream = try ByteStream(adopting: pair.ours, on: loop)
            let other = try RunLoop.DescriptorSource(descriptor: pipe.readEnd, events: .read) { _, _ in }
            other.onInvalidation { trace.add("invalid \(stream.isOpen)") }
            loop.add(other)
            stream.onReceive { stream, bytes in
                bytes.consume(bytes.count)
                _ = try? plainThread { other.invalidate() }.join()
                while stream.send([UInt8](repeating: 7, count: 65_536)) {}  // ends: nobody reads
                trace.add("blocked")
            }
            _ = loop.run(for: .zero)
            pair.send("go")
            _ = loop.run(for: .zero)
            #expect(trace.list == ["blocked", "invalid true"])
            stream.close()
        }
    }

    @Test func `what waits for a handler's return goes out when the stream is full, is closed, or is sent to by another thread`() throws {
        try inManualTime { loop, _, trace in
            var options = ByteStream.Options()
            (options.highWater, options.lowWater) = (100, 10)
            let pair = SocketPair()
            let stream = try ByteStream(adopting: pair.ours, on: loop, options: options)
            @Sendable func received() -> String { "\(pair.receivedBytes()?.count ?? -1)" }
            stream.onReceive { stream, bytes in
                bytes.consume(bytes.count)
                for _ in 1...2 { stream.send("ab") }
                // The next bytes wait: this call has sent before.
                trace.add("full \(stream.send([UInt8](repeating: 7, count: 100))) \(received())")
                stream.send("ab")
                _ = try? plainThread { stream.send("c") }.join()
                trace.add("thread \(received())")
                stream.send("bye")
                stream.close()
                trace.add("closed \(received())")
            }
            pair.send("go")
            _ = loop.run(for: .zero)
            #expect(trace.list == ["full true 104", "thread 3", "closed 3"])
        }
    }

    @Test(arguments: [RunLoop.Mode.default, "without the stream"])
    func `what a handler has gathered is sent when it runs the loop`(mode: RunLoop.Mode) throws {
        try inManualTime { loop, _, trace in
            let pair = SocketPair()
            let stream = try ByteStream(adopting: pair.ours, on: loop, mode: .default)
            let alive = loop.keepAlive(forMode: mode)
            stream.onReceive { stream, bytes in
                bytes.consume(bytes.count)
                for _ in 1...2 {
                    for word in ["a", "b", "c"] { stream.send(word) }
                    _ = loop.run(mode: mode, for: .zero)
                    trace.add(pair.received() ?? "end")
                }
            }
            pair.send("go")
            _ = loop.run(for: .zero)
            #expect(trace.list == ["abc", "abc"])
            alive.cancel()
            stream.close()
        }
    }

    /// Calls a closure when it is released.
    private final class LastRelease: @unchecked Sendable {
        // SAFETY: a constant.
        let body: () -> Void
        init(_ body: @escaping () -> Void) { self.body = body }
        deinit { body() }
    }

    private func setReplacedHandler(of stream: ByteStream) {
        let last = LastRelease { stream.close() }
        stream.onReceive { _, _ in withExtendedLifetime(last) {} }
    }

    @Test func `a handler that is replaced is released outside the lock`() throws {
        try inManualTime { loop, _, trace in
            let pair = SocketPair()
            let stream = try ByteStream(adopting: pair.ours, on: loop)
            setReplacedHandler(of: stream)
            stream.onReceive { _, bytes in bytes.consume(bytes.count) }
            #expect(stream.end == .closed)
        }
    }

    private func setHandlerThatReplacesItself(of stream: ByteStream) {
        let last = LastRelease { stream.close() }
        stream.onReceive { stream, bytes in
            bytes.consume(bytes.count)
            stream.onReceive { _, bytes in bytes.consume(bytes.count) }
            withExtendedLifetime(last) {}
        }
    }

    @Test func `a handler that replaces itself is released outside the lock`() throws {
        try inManualTime { loop, _, trace in
            let pair = SocketPair()
            let stream = try ByteStream(adopting: pair.ours, on: loop)
            setHandlerThatReplacesItself(of: stream)
            stream.onEnd { _, end in trace.add("\(end)") }
            pair.send("x")
            _ = loop.run(for: .zero)
            #expect(trace.list == ["closed"])
        }
    }

    private func setPeerFinish(of stream: ByteStream, _ trace: Trace) {
        let last = LastRelease { trace.add("released, \(stream.end == .closed)") }
        stream.onPeerFinish { _ in withExtendedLifetime(last) {} }
    }

    @Test func `a closure that waits for the peer's end in vain is released outside the lock`() throws {
        try inManualTime { loop, _, trace in
            let pair = SocketPair()
            let stream = try ByteStream(adopting: pair.ours, on: loop)
            setPeerFinish(of: stream, trace)
            stream.onReceive { [loop] stream, bytes in
                bytes.consume(bytes.count)
                pair.closePeer()
                stream.close()
                _ = loop.run(for: .zero)
            }
            pair.send("x")
            for _ in 0..<4 { _ = loop.run(for: .zero) }
            #expect(trace.list == ["released, true"])
        }
    }

    @Test func `a handler of the end that is set after the loop's end is called, although a call was queued`() throws {
        let stream = try onFreshThread { loop -> ByteStream in
            let pair = SocketPair()
            let stream = try ByteStream(adopting: pair.ours, on: loop)
            // The write fails, and the loop, which never runs, is to call the handlers.
            pair.closePeer()
            stream.send("x")
            return stream
        }
        let ended = Box(0)
        stream.onEnd { _, _ in ended.increment() }
        #expect(ended.value == 1)
    }

    @Test func `bytes that are sent in place are sent once, whatever the transport takes, and behind what waits`() throws {
        for room in [0, 1, 3, 5, 100] {
            try inManualTime { loop, _, _ in
                let transport = RecordingTransport(Trace())
                transport.room = room
                let stream = try ByteStream(over: transport, on: loop)
                let isFull = Array("abcde".utf8).withUnsafeBytes { !stream.send($0) }
                #expect(!isFull && stream.bytesWaiting == max(0, 5 - room) && stream.bytesSent == UInt64(min(5, room)))
                Array("fg".utf8).withUnsafeBytes { _ = stream.send($0) }
                transport.room = 100
                transport.events?.ready(read: false, write: true)
                #expect(String(decoding: transport.taken, as: UTF8.self) == "abcdefg")
                #expect(stream.send(UnsafeRawBufferPointer(start: nil, count: 0)))
                stream.close()
                #expect(Array("h".utf8).withUnsafeBytes { !stream.send($0) })
            }
        }
    }

    @Test func `a stream ends when bytes in place fail, although no handler runs`() throws {
        try inManualTime { loop, _, trace in
            let pair = SocketPair()
            let stream = try ByteStream(adopting: pair.ours, on: loop)
            stream.onEnd { _, end in trace.add("\(end == .failed(.system(operation: "write", errno: EPIPE)))") }
            pair.closePeer()
            #expect(Array("nobody reads this".utf8).withUnsafeBytes { !stream.send($0) })
            _ = loop.run(for: .zero)
            #expect(trace.list == ["true"])
        }
    }

    #if os(Linux)
    @Test func `bytes in place of which a file takes only a part end the stream with the file's error`() async {
        await #expect(processExitsWith: .success) {
            let directory = makeTemporaryDirectory()
            defer { removeFlatDirectory(directory) }
            // At its limit, the kernel would end the process.
            signal(SIGXFSZ, SIG_IGN)
            try inManualTime { loop, _, trace in
                let (file, pipe) = (open(directory + "/file", O_CREAT | O_WRONLY | O_CLOEXEC, 0o600), Pipe())
                let stream = try ByteStream(reading: fcntl(pipe.readEnd, F_DUPFD_CLOEXEC, 0), writing: file, on: loop)
                stream.onEnd { _, end in trace.add("\(end == .failed(.system(operation: "write", errno: EFBIG)))") }
                var limit = rlimit()
                getrlimit(__rlimit_resource_t(RLIMIT_FSIZE.rawValue), &limit)
                let old = limit.rlim_cur
                limit.rlim_cur = 3
                setrlimit(__rlimit_resource_t(RLIMIT_FSIZE.rawValue), &limit)
                let isQueued = Array("abcde".utf8).withUnsafeBytes { stream.send($0) }
                limit.rlim_cur = old
                setrlimit(__rlimit_resource_t(RLIMIT_FSIZE.rawValue), &limit)
                #expect(!isQueued && stream.bytesSent == 3)
                _ = loop.run(for: .seconds(60))
                #expect(trace.list == ["true"])
                withExtendedLifetime(pipe) {}
            }
        }
    }
    #endif

    /// A handshake that fails with the peer's first byte.
    private final class FailingLayer: StreamLayer, @unchecked Sendable {
        // SAFETY: the stream calls it under its lock.
        var handshake = LayerHandshake.inProgress
        func begin() {}
        func receive(_ bytes: UnsafeRawBufferPointer) { handshake = .failed(StreamError.closed, .system(operation: "test", errno: EPROTO)) }
        func receiveEnd() {}
        func read(into space: UnsafeMutableRawBufferPointer) -> LayerRead { .nothing }
        let mayHaveMore = false
        let hasUnreadInput = false
        func write(_ bytes: UnsafeRawBufferPointer) -> LayerWrite { .wrote }
        func finishWriting() -> LayerWrite { .wrote }
        func takeOutput() -> [UInt8] { [] }
    }

    @Test func `after a failed handshake the descriptor is closed in time, although the limit of the handshake passes meanwhile`() throws {
        try inManualTime { loop, _, _ in
            let pair = SocketPair()
            let stream = try ByteStream(adopting: pair.ours, on: loop)
            Task { try? await stream.install(FailingLayer(), timeout: .seconds(30)) }
            // Until its limit has a timer: manual time may be faster than the task's thread.
            try waitUntil("the handshake begins") {
                let timer = stream.core.withLock { stream.core.locked.timeouts?.timer }
                return timer.map { $0.nextFire != .distantFuture } ?? false
            }
            loop.addIdleSource()
            _ = loop.run(for: .seconds(29))
            pair.send("x")
            _ = loop.run(for: .seconds(2))
            func phase() -> StreamPhase { stream.core.withLock { stream.core.locked.phase } }
            #expect(stream.end == .failed(.system(operation: "test", errno: EPROTO)) && phase() == .lingering)
            _ = loop.run(for: .seconds(10))
            #expect(phase() == .closed)
        }
    }

    @Test func `a peer that takes a byte now and then gets everything, one that takes none for writeTimeout does not`() throws {
        try inManualTime { loop, clock, trace in
            let transport = RecordingTransport(Trace())
            transport.room = 0
            let stream = try ByteStream(over: transport, on: loop)
            stream.onEnd { _, end in trace.add("\(end)@\(clock.ms)") }
            stream.send("abc")
            stream.closeAfterWriting(writeTimeout: .seconds(30))
            loop.addIdleSource()
            for _ in 0..<2 {
                _ = loop.run(for: .seconds(20))
                transport.room = 1
                transport.events?.ready(read: false, write: true)
            }
            #expect(trace.list == [] && stream.bytesWaiting == 1)
            _ = loop.run(for: .seconds(60))
            #expect(trace.list == ["timedOut@70000"])
        }
    }
}
