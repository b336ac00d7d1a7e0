// A connection that is reset at every byte of a conversation, over TCP and in memory: each side ends once, with a typed error or the end of the
// stream, and has received a beginning of what was sent. However a connection fails, what came before is received, and no end of the peer behind it.

import EventLoop
import EventLoopStreams
import EventLoopTestSupport
import Testing

#if canImport(Glibc)
import Glibc
#else
import Darwin
#endif

/// An echo with handlers; records how its stream ends.
private func echo(_ stream: ByteStream, _ trace: Trace) {
    stream.onReceive { stream, bytes in stream.send(bytes.take(bytes.count)) }
    stream.onEnd { _, end in
        switch end {
        case .endOfStream: trace.add("end")
        case .failed(.system(_, let errno)) where [ECONNRESET, EPIPE].contains(errno): trace.add("reset")
        default: trace.add("\(end)")
        }
    }
}

/// A connection that has failed while bytes waited to be sent, as Linux shows it: the first call gets the error, and the next ones what has come, and
/// then an end.
private final class FailedConnection: StreamTransport, @unchecked Sendable {
    // SAFETY: used on one thread.
    private let code: Int32
    private var received = Array("half an answer".utf8)
    private var events: TransportEvents?

    init(_ code: Int32) { self.code = code }

    func open(
        on loop: RunLoop, mode: RunLoop.Mode, label: String?, file: StaticString, line: UInt, _ events: TransportEvents
    ) throws(RunLoop.SourceError) {
        self.events = events
    }

    func read(into space: UnsafeMutableRawBufferPointer) -> TransferResult {
        if received.isEmpty { return .end }
        space.copyBytes(from: received)
        defer { received = [] }
        return .bytes(received.count)
    }

    func write(_ parts: UnsafeBufferPointer<UnsafeRawBufferPointer>) -> TransferResult {
        .failed(.system(operation: "write", errno: code))
    }

    func finishWriting() {}
    func didFinishWriting() {}
    func setInterest(read: Bool, write: Bool) {}
    func close() {
        let taken = events
        events = nil
        taken?.transportWillClose(nil)
        taken?.transportDidClose()
    }
    let losesBytesOnClose = true
    let isWriteOnly = false
    let localAddress: RunLoop.SocketAddress? = nil
    let peerAddress: RunLoop.SocketAddress? = nil
}

@Suite(.bounded, .tags(.memory, .threads)) struct ResetTests {
    @Test func `a TCP peer resets after each byte that it sends`() throws {
        for count in 0...40 {
            try inManualTime { loop, _, trace in
                let (ours, peer) = tcpPair()
                let stream = try ByteStream(adopting: ours, on: loop)
                echo(stream, trace)
                for index in 0..<count {
                    var byte = UInt8(index)
                    precondition(write(peer, &byte, 1) == 1)
                    if index % 3 == 0 { _ = loop.run(for: .zero) }
                }
                closeWithReset(peer)
                try waitUntilHungUp(ours, "the reset")
                settle(loop)
                #expect(trace.list == ["reset"])
                #expect(stream.bytesReceived <= UInt64(count) && stream.bytesWaiting == 0)
                #expect(loop.run(for: .zero) == .finished)
            }
        }
    }

    @Test func `a TCP peer resets after each byte that it reads`() throws {
        for count in 0...40 {
            try inManualTime { loop, _, trace in
                let (ours, peer) = tcpPair()
                let stream = try ByteStream(adopting: ours, on: loop)
                echo(stream, trace)
                let sent = [UInt8](repeating: 7, count: 40)
                precondition(write(peer, sent, 40) == 40)
                try waitUntilReadable(ours, "the question")
                _ = loop.run(for: .zero)
                try waitUntilReadable(peer, "the answer")
                var bytes = [UInt8](repeating: 0, count: 40)
                if count > 0 { precondition(read(peer, &bytes, count) == count) }
                // Closing with unread bytes resets; so does this.
                closeWithReset(peer)
                try waitUntilHungUp(ours, "the reset")
                settle(loop)
                #expect(trace.list == ["reset"])
                #expect(loop.run(for: .zero) == .finished)
            }
        }
    }

    @Test func `a connection in memory is reset after each byte, whatever the splits`() throws {
        for seed in [nil, 1, 2, 3] as [UInt64?] {
            for (end, count) in (0..<2).flatMap({ end in (0...20).map { (end, $0) } }) {
                try inManualTime { loop, _, trace in
                    let link = MemoryLink(capacity: 7, seed: seed)
                    let stream = try ByteStream(over: MemoryTransport(link, end: 0), on: loop)
                    let peer = try ByteStream(over: MemoryTransport(link, end: 1), on: loop)
                    echo(stream, trace)
                    let received = Box<[UInt8]>([])
                    peer.onReceive { _, bytes in
                        let taken = bytes.take(bytes.count)
                        received.change { $0 += taken }
                    }
                    peer.onEnd { _, _ in trace.add("peer") }
                    link.reset(from: end, after: count)
                    peer.send((0..<20).map { UInt8($0) })
                    settle(loop, passes: 100)
                    #expect(trace.list.sorted() == ["peer", "reset"])
                    #expect(received.value == (0..<received.value.count).map { UInt8($0) })
                    if end == 0 { #expect(received.value.count == count) }
                    #expect(loop.run(for: .zero) == .finished)
                }
            }
        }
    }

    /// The loop serves a socket's room before its bytes: when the kernel gives the connection up, writing gets the error.
    @Test(arguments: [ECONNRESET, ETIMEDOUT, EHOSTUNREACH, ENETUNREACH, EPROTO, EPIPE], [true, false])
    func `an end behind the failure of a connection is not the peer's`(code: Int32, hasReader: Bool) throws {
        try inManualTime { loop, _, trace in
            let stream = try ByteStream(over: FailedConnection(code), on: loop)
            let ended = Box<ByteStream.End?>(nil)
            stream.onEnd { _, end in ended.value = end }
            if hasReader {
                stream.onReceive { _, bytes in
                    let text = String(decoding: bytes.take(bytes.count), as: UTF8.self)
                    trace.add(bytes.isLast ? text + ", the end" : text)
                }
            }
            stream.send("a question")
            settle(loop)
            // The kernel answers EPIPE also if the peer has ended properly.
            let isPeers = code == EPIPE && hasReader
            let end: ByteStream.End = isPeers ? .endOfStream : .failed(.system(operation: "write", errno: code))
            let text = isPeers ? "half an answer, the end" : "half an answer"
            #expect(ended.value == end)
            #expect(trace.list == (hasReader ? [text] : []))
        }
    }

    @Test func `tasks on both sides of a reset connection get the error, and bytes before it`() async throws {
        let running = RunningLoop()
        for count in 0...12 {
            let (ours, peer) = tcpPair()
            let stream = try ByteStream(adopting: ours, on: running.loop)
            let sent = [UInt8](repeating: 1, count: count)
            if count > 0 { precondition(write(peer, sent, count) == count) }
            let reader = Task {
                var bytes = 0
                do {
                    while let piece = try await stream.read() { bytes += piece.count }
                    return (bytes, nil as (any Error)?)
                } catch { return (bytes, error) }
            }
            if count % 2 == 0 { try await suspendUntil("they have been read") { stream.bytesReceived == count } }
            closeWithReset(peer)
            let (read, error) = await reader.value
            #expect(read <= count && error as? RunLoop.SourceError == .system(operation: "read", errno: ECONNRESET))
            await #expect(throws: (any Error).self) { try await stream.write("x") }
            #expect(!stream.isOpen)
        }
        try running.end()
    }

    /// The peer answers before it has read the whole request, and closes: writing fails, and the answer is longer than `receiveLimit`. Not TCP:
    /// its reset destroys what the peer's kernel has not sent.
    @Test(arguments: [true, false]) func `an answer that came before writing failed is received whole`(usesTasks: Bool) async throws {
        let running = RunningLoop()
        let (ours, peer) = connectedSockets()
        var options = ByteStream.Options()
        options.receiveLimit = 10_000
        let stream = try ByteStream(adopting: ours, on: running.loop, options: options)
        let answer = (0..<150_000).map { UInt8(truncatingIfNeeded: $0 / 100) }
        precondition(write(peer, answer, answer.count) == answer.count)
        close(peer)
        let received = Box<[UInt8]>([])
        if usesTasks {
            let first = try await stream.read(exactly: 1)
            received.value = first
            try await suspendUntil("the limit is reached") { stream.testsOnlyBytesHeld >= 10_000 }
            try await suspendUntil("writing has failed") { !stream.send("the rest of the request") }
            // The peer has ended properly.
            while let piece = try await stream.read(upTo: 3_000) { received.change { $0 += piece } }
            await #expect(throws: RunLoop.SourceError.self) { try await stream.write("more") }
        } else {
            stream.onReceive { stream, bytes in
                stream.send("the rest of the request")
                let taken = bytes.take(bytes.count)
                received.change { $0 += taken }
            }
        }
        try await suspendUntil("the stream has ended") { !stream.isOpen }
        let isWhole = received.value == answer
        #expect(isWhole)
        try running.end()
    }

    @Test func `a stream whose writing has failed ends although nobody reads it`() async throws {
        let running = RunningLoop()
        for isReleased in [true, false] {
            let (ours, peer) = connectedSockets()
            let ended = Counter()
            let weak = WeakReference<ByteStream>()
            try await {
                let stream = try ByteStream(adopting: ours, on: running.loop)
                weak.value = stream
                precondition(write(peer, [UInt8](repeating: 1, count: 150_000), 150_000) == 150_000)
                if isReleased { _ = try await stream.read(upTo: 1) } else { stream.onEnd { _, _ in ended.increment() } }
                try await suspendUntil("the limit is reached") { stream.testsOnlyBytesHeld >= 65_535 }
                close(peer)
                try await suspendUntil("writing has failed") { !stream.send("x") }
            }()
            if !isReleased { try await suspendUntil("the end is reported") { ended.value == 1 } }
            try await suspendUntil("the stream is released") { weak.value == nil }
        }
        try running.end()
    }
}
