// One descriptor of a stream, with its source: the transport of a stream over one descriptor, and half of one over two.
//
// Lifecycle of the descriptor: owned from `init` on, also if that throws. Closed when its source has left the loop, so that the kernel
// watches no descriptor that is closed; or with the object, if it never joined a loop.

internal import CPlatform
internal import CStreams
package import EventLoop
internal import EventLoopLibC
import Synchronization

package final class DescriptorSide: @unchecked Sendable {
    // SAFETY: constants, atomics, and the source, which `open` sets before any other use.

    let descriptor: Int32
    let kind: Int32
    private let isFile: Bool
    /// Readiness to read is an input, an end, or, at the writing end of a pipe, the loss of its last reader.
    private let reportsReading: Bool
    /// False if the descriptor was opened for writing only.
    let canRead: Bool
    /// The file became non-blocking, and another process may have it.
    private let restoresBlocking: Bool
    /// It ends with the loop, and then releases its handlers, which retain the stream: that breaks the cycle.
    private var source: RunLoop.Source?
    private let isOwned = Atomic<Bool>(true)
    /// Whether a regular file, which is always ready, reports that.
    private let reportsFile = Atomic<Bool>(false)
    /// Calls of `withDescriptor`: `oneUse` for each, and `isClosed` if the last one closes the descriptor.
    private let uses = Atomic<Int>(0)
    private static let isClosed = 1
    private static let oneUse = 2
    /// Watches for the peer's end. It leaves the loop before the descriptor is closed. Retained.
    private let peerWatch = Atomic<Unmanaged<PeerWatch>?>(nil)
    /// Of a socket.
    package let localAddress: RunLoop.SocketAddress?
    package let peerAddress: RunLoop.SocketAddress?

    /// A connected socket, a pipe, a terminal or another device.
    package convenience init(adopting descriptor: Int32, _ options: ByteStream.SocketOptions?) throws(RunLoop.SourceError) {
        try self.init(descriptor, allowsFiles: false)
        try set(options)
    }

    /// `allowsFiles`: regular files, which the kernel cannot watch, are always ready.
    init(_ descriptor: Int32, allowsFiles: Bool) throws(RunLoop.SourceError) {
        let plainKind = cstreams_kind(descriptor)
        if plainKind < 0 { throw .badDescriptor(descriptor) }
        self.descriptor = descriptor
        isFile = allowsFiles && plainKind == Int32(CSTREAMS_OTHER.rawValue) && !Self.isPollable(descriptor, plainKind)
        canRead = plainKind == Int32(CSTREAMS_SOCKET.rawValue) || cstreams_can_read(descriptor)
        reportsReading = canRead || plainKind == Int32(CSTREAMS_PIPE.rawValue)
        let isSocket = plainKind == Int32(CSTREAMS_SOCKET.rawValue)
        (localAddress, peerAddress) =
            isSocket ? (RunLoop.SocketAddress(localOf: descriptor), RunLoop.SocketAddress(peerOf: descriptor)) : (nil, nil)
        var (kind, restores) = (plainKind, false)
        let error = Self.prepare(descriptor, &kind, &restores, isFile: isFile, hasPeer: peerAddress != nil)
        (self.kind, restoresBlocking) = (kind, restores)
        // The object is whole, so deinit runs when this throws, and closes the descriptor. Closed twice, it might be another thread's by then.
        if let error { throw error }
    }

    deinit {
        closeDescriptor()
        peerWatch.load(ordering: .acquiring)?.release()
    }

    var isSocket: Bool { kind == Int32(CSTREAMS_SOCKET.rawValue) }

    /// A descriptor that the stream was to own, and that it will never use.
    static func closeUnused(_ descriptor: Int32) { if cstreams_kind(descriptor) > 0 { cstreams_close(descriptor) } }

    private static func prepare(
        _ descriptor: Int32, _ kind: inout Int32, _ restores: inout Bool, isFile: Bool, hasPeer: Bool
    ) -> RunLoop.SourceError? {
        if !isFile && !isPollable(descriptor, kind) { return .notPollable(descriptor) }
        if kind == Int32(CSTREAMS_SOCKET.rawValue) {
            let code = cstreams_check_connected(descriptor, hasPeer)
            if code != 0 { return .system(operation: "getpeername of descriptor \(descriptor)", errno: code) }
        }
        let code = isFile ? cstreams_close_on_exec(descriptor) : cstreams_prepare(descriptor, &kind, &restores)
        return code == 0 ? nil : .system(operation: "fcntl of descriptor \(descriptor)", errno: code)
    }

    private static func isPollable(_ descriptor: Int32, _ kind: Int32) -> Bool {
        kind == Int32(CSTREAMS_SOCKET.rawValue) || kind == Int32(CSTREAMS_PIPE.rawValue) || cstreams_is_file(descriptor) == 0
    }

    // MARK: The loop

    /// Joins the loop. When the source has left it, `willClose` is called; then the descriptor is closed, and `closed` is called.
    func open(
        on loop: RunLoop, mode: RunLoop.Mode, events: RunLoop.DescriptorSource.Events, label: String?, file: StaticString, line: UInt,
        ready: @escaping @Sendable (RunLoop.DescriptorSource.Events) -> Void,
        willClose: @escaping @Sendable (RunLoop.SourceError?) -> Void, closed: @escaping @Sendable () -> Void
    ) throws(RunLoop.SourceError) {
        let source =
            isFile
            ? fileSource(loop, label, file, line) { ready(events) }
            : try RunLoop.DescriptorSource(descriptor: descriptor, events: watched(events), label: label, file: file, line: line) {
                ready($1)
            }
        try join(loop, mode, source)
        source.onInvalidation { self.sourceDidEnd($0, willClose, closed) }
        reportsFile.store(events.contains(.read), ordering: .relaxed)
        signalFile(source, loop)
    }

    private func join(_ loop: RunLoop, _ mode: RunLoop.Mode, _ source: RunLoop.Source) throws(RunLoop.SourceError) {
        source.endWithLoop()
        // Before the addition, after which the loop's thread reads it.
        self.source = source
        if loop.add(source, forMode: mode) { return }
        source.invalidate()
        throw .loopEnded
    }

    @inline(__always) private func sourceDidEnd(
        _ source: RunLoop.Source, _ willClose: (RunLoop.SourceError?) -> Void, _ closed: @escaping @Sendable () -> Void
    ) { /* DOES CALLOUT */
        let failure = source.failure
        willClose(failure)
        // Somebody else has closed it, and the number may be another file's.
        if failure == .badDescriptor(descriptor) { isOwned.store(false, ordering: .releasing) }
        guard let peerWatch = peerWatch.exchange(nil, ordering: .acquiringAndReleasing)?.takeRetainedValue() else {
            closeDescriptor()
            return closed()
        }
        // It leaves the loop first.
        peerWatch.end {
            self.closeDescriptor()
            closed()
        }
    }

    /// Typing makes a terminal readable, also for those who only write to it.
    private func watched(_ events: RunLoop.DescriptorSource.Events) -> RunLoop.DescriptorSource.Events {
        reportsReading ? events : events.subtracting(.read)
    }

    /// Reports every pass that the file is ready, while that is asked for.
    private func fileSource(
        _ loop: RunLoop, _ label: String?, _ file: StaticString, _ line: UInt, _ ready: @escaping @Sendable () -> Void
    ) -> RunLoop.Source {
        // The source's invalidation retains this object.
        RunLoop.CustomSource(label: label, file: file, line: line) { [unowned self, unowned loop] in
            // Again in the next pass, so that the loop serves others between two reads.
            if let source { signalFile(source, loop) }
            ready()
        }
    }

    private func signalFile(_ source: RunLoop.Source, _ loop: RunLoop) {
        guard reportsFile.load(ordering: .relaxed), let source = source as? RunLoop.CustomSource else { return }
        source.signal()
        loop.wakeUp()
    }

    /// Which readiness is reported.
    func setEvents(_ events: RunLoop.DescriptorSource.Events, on loop: RunLoop?) {
        guard let source else { return }
        // Under the lock of the stream.
        (source as? RunLoop.DescriptorSource)?.setEventsWithoutCallout(watched(events))
        if isFile, let loop {
            reportsFile.store(events.contains(.read), ordering: .relaxed)
            signalFile(source, loop)
        }
    }

    /// Leaves the loop.
    func leave() { /* DOES CALLOUT */ source?.invalidate() }

    private func closeDescriptor() {
        guard isOwned.exchange(false, ordering: .acquiringAndReleasing) else { return }
        if uses.bitwiseOr(Self.isClosed, ordering: .acquiringAndReleasing).oldValue == 0 { closeNow() }
    }

    private func closeNow() {
        if restoresBlocking { cstreams_make_blocking(descriptor) }
        cstreams_close(descriptor)
    }

    // MARK: The socket

    /// Nil: the defaults.
    func set(_ options: ByteStream.SocketOptions?) throws(RunLoop.SourceError) {
        if !isSocket {
            try options?.refuseUnlessDefault("descriptor \(descriptor), which is no socket")
            return
        }
        let isInternet =
            switch localAddress {
            case .ipv4, .ipv6: true
            default: false
            }
        if let options { return try options.set(on: descriptor, isInternet: isInternet) }
        ByteStream.SocketOptions.setDefaults(on: descriptor, isInternet: isInternet)
    }

    func withDescriptor<R, Failure>(_ body: (Int32) throws(Failure) -> R) throws(Failure) -> R? { /* DOES CALLOUT */
        if !beginUse() { return nil }
        // Many calls on a descriptor are cancellation points: a thread that ended in one would keep its use, and the descriptor open, for ever.
        let cancellation = cplatform_hold_cancellation()
        defer { cplatform_resume_cancellation(cancellation) }
        defer {
            let left = uses.subtract(Self.oneUse, ordering: .acquiringAndReleasing).newValue
            if left == Self.isClosed { closeNow() }
        }
        return try body(descriptor)
    }

    /// False if the descriptor is closed, or its number may be another file's.
    private func beginUse() -> Bool {
        if !isOwned.load(ordering: .acquiring) { return false }
        var seen = uses.load(ordering: .relaxed)
        while seen & Self.isClosed == 0 {  // ends: an iteration that fails is another thread's success
            let result = uses.compareExchange(expected: seen, desired: seen + Self.oneUse, ordering: .acquiringAndReleasing)
            if result.exchanged { return true }
            seen = result.original
        }
        return false
    }

    // MARK: The peer's end

    package var peerHasFinished: Bool { isOwned.load(ordering: .acquiring) && cstreams_peer_has_finished(descriptor) }

    package func watchPeerFinish(on loop: RunLoop, mode: RunLoop.Mode, _ body: @escaping @Sendable () -> Void) { /* DOES CALLOUT */
        // Again: on the loop's thread, the only one that takes it away.
        if loop.isCurrent, let known = peerWatch.load(ordering: .acquiring) { return known.takeUnretainedValue().begin() }
        guard let main = source else { return }
        let watch = PeerWatch(descriptor, on: loop, mode, body)
        let kept = Unmanaged.passRetained(watch)
        let isKept = peerWatch.compareExchange(expected: nil, desired: kept, ordering: .acquiringAndReleasing).exchanged
        guard isKept else { return kept.release() }
        if main.isValid { watch.begin() }
        // The main source's end may not have found it.
        if !main.isValid { watch.end {} }
    }

    // MARK: Bytes

    package func read(into space: UnsafeMutableRawBufferPointer) -> TransferResult {
        // A writing end is readable when there is no reader any more.
        if !canRead { return cstreams_has_lost_reader(descriptor) ? Self.result(-Int(EPIPE), "write") : .wouldBlock }
        let count = cstreams_read(descriptor, kind, space.baseAddress, space.count)
        // Ready in vain: another reader was faster, or a message in the error queue says so again and again.
        if count == -Int(EAGAIN) && isSocket { cstreams_drop_error_messages(descriptor) }
        return count == 0 ? .end : Self.result(count, "read")
    }

    package func write(_ parts: UnsafeBufferPointer<UnsafeRawBufferPointer>) -> TransferResult {
        let result = writeParts(parts)
        // A device may take nothing and report no error. To ask it again at once would take forever.
        return result == .bytes(0) ? .wouldBlock : result
    }

    private func writeParts(_ parts: UnsafeBufferPointer<UnsafeRawBufferPointer>) -> TransferResult {
        if parts.count == 1 { return Self.result(cstreams_write(descriptor, kind, parts[0].baseAddress, parts[0].count), "write") }
        return withUnsafeTemporaryAllocation(of: iovec.self, capacity: parts.count) { vectors in
            for (index, part) in parts.enumerated() {
                vectors.initializeElement(
                    at: index, to: iovec(iov_base: UnsafeMutableRawPointer(mutating: part.baseAddress), iov_len: part.count))
            }
            return Self.result(cstreams_write_parts(descriptor, kind, vectors.baseAddress, Int32(parts.count)), "write")
        }
    }

    private static func result(_ count: Int, _ operation: String) -> TransferResult {
        if count >= 0 { return .bytes(count) }
        return count == -Int(EAGAIN) ? .wouldBlock : .failed(.system(operation: operation, errno: Int32(-count)))
    }

    /// Signals the end of the data to a socket's peer. Other descriptors are closed for that.
    package func finishWriting() { if isSocket { _ = cstreams_finish_writing(descriptor) } }
}

// MARK: A stream over one descriptor

extension DescriptorSide: StreamTransport {
    package func open(
        on loop: RunLoop, mode: RunLoop.Mode, label: String?, file: StaticString, line: UInt, _ events: TransportEvents
    ) throws(RunLoop.SourceError) {
        let source = try RunLoop.DescriptorSource(descriptor: descriptor, events: watched(.read), label: label, file: file, line: line) {
            events.ready(read: $1.contains(.read), write: $1.contains(.write))
        }
        try join(loop, mode, source)
        source.onInvalidation { self.sourceDidEnd($0, { events.transportWillClose($0) }, { events.transportDidClose() }) }
    }

    package func setInterest(read: Bool, write: Bool) {
        setEvents(read ? write ? [.read, .write] : .read : write ? .write : [], on: nil)
    }

    package func didFinishWriting() {}
    package var isWriteOnly: Bool { !canRead }
    package var losesBytesOnClose: Bool { isSocket }
    package func close() { /* DOES CALLOUT */ leave() }
    package var descriptorSide: DescriptorSide? { self }
}
