// One end of a connection in memory.
//
// Deterministic: it reports what is ready in the next pass of its loop, like a descriptor, and again in each pass while it stays ready.

package import EventLoop

package final class MemoryTransport: StreamTransport, @unchecked Sendable {
    // SAFETY: constants; `source` is set by `open` before any other use.

    private let link: MemoryLink
    private let end: Int
    private var source: RunLoop.CustomSource?

    /// `end`: 0 or 1. Each end has one transport.
    package init(_ link: MemoryLink, end: Int) { (self.link, self.end) = (link, end) }

    package func open(
        on loop: RunLoop, mode: RunLoop.Mode, label: String?, file: StaticString, line: UInt, _ events: TransportEvents
    ) throws(RunLoop.SourceError) {
        let source = RunLoop.CustomSource(label: label, file: file, line: line) { [link, end] in
            let ready = link.change { state in
                state.lanes[1 - end].beginPass()
                return state.readiness(of: end)
            }
            link.takePeerFinish(at: end)?()
            if ready.read || ready.write { events.ready(read: ready.read, write: ready.write) }
            // Signals the source again if something is still ready.
            link.change { _ in }
        }
        source.endWithLoop()
        self.source = source
        guard loop.add(source, forMode: mode) else {
            source.invalidate()
            link.close(end)
            throw .loopEnded
        }
        source.onInvalidation { [link, end] in
            events.transportWillClose(nil)
            link.close(end)
            events.transportDidClose()
        }
        link.change { $0.ends[end] = MemoryLink.MemoryEnd(source: source, loop: loop) }
    }

    package func read(into space: UnsafeMutableRawBufferPointer) -> TransferResult { link.read(at: end, into: space) }

    package func write(_ parts: UnsafeBufferPointer<UnsafeRawBufferPointer>) -> TransferResult { link.write(at: end, parts) }

    package func finishWriting() { link.change { $0.lanes[end].finish() } }

    package func didFinishWriting() {}

    package func setInterest(read: Bool, write: Bool) { link.change { $0.ends[end].interest = (read, write) } }

    package var losesBytesOnClose: Bool { false }

    package var isWriteOnly: Bool { false }

    package func close() { /* DOES CALLOUT */ source?.invalidate() }

    package var localAddress: RunLoop.SocketAddress? { nil }
    package var peerAddress: RunLoop.SocketAddress? { nil }

    package var peerHasFinished: Bool { link.peerHasFinished(at: end) }

    package func watchPeerFinish(on loop: RunLoop, mode: RunLoop.Mode, _ body: @escaping @Sendable () -> Void) { /* DOES CALLOUT */
        link.watchPeerFinish(at: end, body)
    }
}
