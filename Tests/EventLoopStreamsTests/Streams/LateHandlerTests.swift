// Handlers that are set when the loop has ended: each is called on the thread that sets it, and all of them one at a time (rule 27.3).

import EventLoop
import EventLoopTestSupport
import Testing

@testable import EventLoopStreams

/// Sets the first handler on another thread, and the second one while the first is being called.
private func calls(
    of stream: ByteStream, _ setFirst: @escaping @Sendable (ByteStream, @escaping @Sendable () -> Void) -> Void,
    _ setSecond: (Trace) -> Void
) throws -> [String] {
    let (trace, entered, go) = (Trace(), Gate(), Gate())
    let other = plainThread {
        setFirst(stream) {
            trace.add("begins")
            entered.open()
            go.wait()
            trace.add("ends")
        }
    }
    entered.wait()
    setSecond(trace)
    go.open()
    try other.join()
    return trace.list
}

/// A stream whose connection was reset behind five bytes that nobody has taken, and whose loop has ended.
func failedStream() throws -> ByteStream {
    try onFreshThread { loop in
        let link = MemoryLink(capacity: 100, seed: nil)
        let stream = try ByteStream(over: MemoryTransport(link, end: 0), on: loop)
        let peer = try ByteStream(over: MemoryTransport(link, end: 1), on: loop)
        peer.send("hello")
        for _ in 0..<4 { _ = loop.run(for: .zero) }
        link.reset()
        for _ in 0..<4 { _ = loop.run(for: .zero) }
        #expect(!stream.isOpen && stream.testsOnlyBytesHeld == 5)
        // Its last release would end what it sends.
        withExtendedLifetime(peer) {}
        return stream
    }
}

@Suite(.bounded) struct LateHandlerTests {
    @Test func `the peer's end is reported when the handler of received bytes has returned on another thread`() throws {
        let stream = try failedStream()
        let list = try calls(of: stream) { stream, body in
            stream.onReceive { _, bytes in
                bytes.consume(bytes.count)
                body()
            }
        } _: { trace in
            stream.onPeerFinish { _ in trace.add("finished") }
            stream.onEnd { _, _ in trace.add("end") }
        }
        #expect(list == ["begins", "ends", "finished", "end"])
    }

    enum Second: CaseIterable, Sendable { case receive, end, both }

    @Test(arguments: Second.allCases)
    func `bytes and the end are reported when the handler of the peer's end has returned on another thread`(second: Second) throws {
        let stream = try failedStream()
        let list = try calls(of: stream) { stream, body in
            stream.onPeerFinish { _ in body() }
        } _: { trace in
            if second != .end { stream.onReceive { _, bytes in trace.add("\(bytes.take(bytes.count).count)") } }
            if second != .receive { stream.onEnd { _, _ in trace.add("end") } }
        }
        #expect(list == ["begins", "ends"] + (second == .end ? [] : ["5"]) + (second == .receive ? [] : ["end"]))
    }

    @Test func `nobody is called after the report of the end`() throws {
        let (stream, trace) = (try failedStream(), Trace())
        stream.onEnd { _, _ in trace.add("end") }
        stream.onPeerFinish { _ in trace.add("finished") }
        stream.onReceive { _, _ in trace.add("received") }
        #expect(trace.list == ["end"])
    }

    @Test func `a handler that closes its stream returns before the end is reported`() throws {
        try inManualTime { loop, _, trace in
            let pair = SocketPair()
            let stream = try ByteStream(adopting: pair.ours, on: loop)
            stream.onEnd { _, end in trace.add("\(end)") }
            pair.closePeer()
            for _ in 0..<4 { _ = loop.run(for: .zero) }
            #expect(stream.isOpen && stream.peerHasFinished)
            stream.onPeerFinish { stream in
                stream.close()
                trace.add("finished")
            }
            for _ in 0..<4 { _ = loop.run(for: .zero) }
            #expect(trace.list == ["finished", "closed"])
        }
    }
}
