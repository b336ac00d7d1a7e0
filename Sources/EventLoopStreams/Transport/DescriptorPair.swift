// The two descriptors of a stream that reads one and writes another.

internal import CStreams
package import EventLoop

/// Reads one descriptor, and writes the same or another one. Either may be a file.
package final class DescriptorPair: StreamTransport, @unchecked Sendable {
    // SAFETY: constants; `loop` is set by `open` before any other use; the rest is guarded by its lock.

    private let reading: DescriptorSide
    /// The same object if one descriptor serves both ways.
    private let writing: DescriptorSide
    private var loop: RunLoop?

    private struct Ending: Sendable {
        /// The sides that have not left the loop.
        var remaining = 0
        /// `open` has succeeded, so the stream may be notified of the end.
        var isOpen = false
        /// The writing descriptor is closed because nothing more is written.
        var hasFinishedWriting = false
        /// Released at the end: the stream retains the transport.
        var events: TransportEvents?
    }
    private let ending = LoopLock(Ending())

    // MARK: Making

    package init(reading: Int32, writing: Int32, _ options: ByteStream.SocketOptions?) throws(RunLoop.SourceError) {
        let read: DescriptorSide
        do { read = try DescriptorSide(reading, allowsFiles: true) } catch {
            if writing != reading { DescriptorSide.closeUnused(writing) }
            throw error
        }
        self.reading = read
        self.writing = writing == reading ? read : try DescriptorSide(writing, allowsFiles: true)
        try self.reading.set(options)
        if !isOne { try self.writing.set(options) }
    }

    private var isOne: Bool { reading === writing }

    // MARK: StreamTransport

    package func open(
        on loop: RunLoop, mode: RunLoop.Mode, label: String?, file: StaticString, line: UInt, _ events: TransportEvents
    ) throws(RunLoop.SourceError) {
        self.loop = loop
        ending.withLock { ($0.remaining, $0.events) = (isOne ? 1 : 2, events) }
        do {
            if !isOne {
                try writing.open(
                    on: loop, mode: mode, events: [], label: label, file: file, line: line,
                    ready: { events.ready(read: false, write: $0.contains(.write)) }, willClose: { self.writingWillClose($0) },
                    closed: { self.writingDidClose() })
            }
            try reading.open(
                on: loop, mode: mode, events: .read, label: label, file: file, line: line,
                ready: { events.ready(read: $0.contains(.read), write: $0.contains(.write)) }, willClose: { self.sideWillClose($0) },
                closed: { self.sideDidClose(endsStream: true) })
        } catch {
            writing.leave()
            _ = takeEvents()
            throw error
        }
        let isOver = ending.withLock { ending in
            ending.isOpen = true
            return ending.remaining == 0
        }
        // The loop has ended meanwhile.
        if isOver { sidesDidClose() }
    }

    package func read(into space: UnsafeMutableRawBufferPointer) -> TransferResult { reading.read(into: space) }

    package func write(_ parts: UnsafeBufferPointer<UnsafeRawBufferPointer>) -> TransferResult { writing.write(parts) }

    package func finishWriting() { writing.finishWriting() }

    package func didFinishWriting() { /* DOES CALLOUT */
        if isOne || writing.isSocket { return }
        ending.withLock { $0.hasFinishedWriting = true }
        writing.leave()
    }

    package func setInterest(read: Bool, write: Bool) {
        if isOne { return reading.setEvents(read ? write ? [.read, .write] : .read : write ? .write : [], on: loop) }
        reading.setEvents(read ? .read : [], on: loop)
        writing.setEvents(write ? .write : [], on: nil)
    }

    package var isWriteOnly: Bool { isOne && !reading.canRead }

    package var losesBytesOnClose: Bool { reading.isSocket || writing.isSocket }

    package func close() { /* DOES CALLOUT */
        writing.leave()
        if !isOne { reading.leave() }
    }

    package var descriptorSide: DescriptorSide? { reading }
    package var localAddress: RunLoop.SocketAddress? { reading.localAddress }
    package var peerAddress: RunLoop.SocketAddress? { reading.peerAddress }

    package var peerHasFinished: Bool { reading.peerHasFinished }

    package func watchPeerFinish(on loop: RunLoop, mode: RunLoop.Mode, _ body: @escaping @Sendable () -> Void) { /* DOES CALLOUT */
        reading.watchPeerFinish(on: loop, mode: mode, body)
    }

    // MARK: The end

    /// The side that leaves first ends the stream, unless it is the writing one that has nothing more to do.
    private func writingWillClose(_ failure: RunLoop.SourceError?) {
        if !ending.withLock({ $0.hasFinishedWriting }) { sideWillClose(failure) }
    }

    private func writingDidClose() { /* DOES CALLOUT */ sideDidClose(endsStream: !ending.withLock { $0.hasFinishedWriting }) }

    private func sideWillClose(_ failure: RunLoop.SourceError?) { ending.withLock { $0.events }?.transportWillClose(failure) }

    private func sideDidClose(endsStream: Bool) { /* DOES CALLOUT */
        let isOver = ending.withLock { ending in
            ending.remaining -= 1
            return ending.isOpen && ending.remaining == 0
        }
        if isOver { sidesDidClose() } else if endsStream { close() }
    }

    private func sidesDidClose() { /* DOES CALLOUT */ takeEvents()?.transportDidClose() }

    /// Releases the stream, which retains the transport.
    private func takeEvents() -> TransportEvents? {
        ending.withLock { ending in
            defer { ending.events = nil }
            return ending.events
        }
    }
}
