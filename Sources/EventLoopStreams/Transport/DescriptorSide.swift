// One descriptor of a stream, with its source.
//
// Lifecycle of the descriptor: owned from `init` on, also if that throws. Closed when its source has left the loop, so that the kernel
// watches no descriptor that is closed; or with the object, if it never joined a loop.

internal import CStreams
import EventLoop
import Synchronization

#if canImport(Glibc)
import Glibc
#elseif canImport(Musl)
import Musl
#else
import Darwin
#endif

final class DescriptorSide: @unchecked Sendable {
    // SAFETY: constants, atomics, and the source, which `open` sets before any other use.

    let descriptor: Int32
    let kind: Int32
    private let isFile: Bool
    /// The file was blocking, and other processes may have it, such as the shell that started this one.
    private let restoresBlocking: Bool
    /// Weak, so that the source ends with the loop, which alone retains it.
    private weak var source: RunLoop.Source?
    private let isOwned = Atomic<Bool>(true)
    /// Whether a regular file, which is always ready, reports that.
    private let reportsFile = Atomic<Bool>(false)

    /// `allowsFiles`: regular files, which the kernel cannot watch, are always ready. `hasPeer`: it is a socket whose peer's address is known.
    init(_ descriptor: Int32, allowsFiles: Bool, hasPeer: Bool = false) throws(RunLoop.SourceError) {
        kind = cstreams_kind(descriptor)
        if kind < 0 { throw .badDescriptor(descriptor) }
        self.descriptor = descriptor
        isFile = allowsFiles && kind == Int32(CSTREAMS_OTHER.rawValue) && !Self.isPollable(descriptor, kind)
        restoresBlocking = kind != Int32(CSTREAMS_SOCKET.rawValue) && cstreams_is_blocking(descriptor)
        // The object is whole, so deinit runs when this throws, and closes the descriptor. Closed twice, it might be another thread's by then.
        if let error = Self.prepare(descriptor, kind, isFile: isFile, hasPeer: hasPeer) { throw error }
    }

    deinit { closeDescriptor() }

    var isSocket: Bool { kind == Int32(CSTREAMS_SOCKET.rawValue) }

    /// A descriptor that the stream was to own, and that it will never use.
    static func closeUnused(_ descriptor: Int32) { if cstreams_kind(descriptor) > 0 { _ = close(descriptor) } }

    private static func prepare(_ descriptor: Int32, _ kind: Int32, isFile: Bool, hasPeer: Bool) -> RunLoop.SourceError? {
        if !isFile && !isPollable(descriptor, kind) { return .notPollable(descriptor) }
        if kind == Int32(CSTREAMS_SOCKET.rawValue) {
            let code = cstreams_check_connected(descriptor, hasPeer)
            if code != 0 { return .system(operation: "getpeername of descriptor \(descriptor)", errno: code) }
        }
        let code = cstreams_prepare(descriptor, kind)
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
        let source = isFile ? fileSource(loop, label, file, line) { ready(events) } : try descriptorSource(events, label, file, line, ready)
        // Before the addition, after which the loop's thread reads it.
        self.source = source
        guard loop.add(source, forMode: mode) else {
            source.invalidate()
            throw .loopEnded
        }
        source.onInvalidation { source in
            let failure = source.failure
            willClose(failure)
            // Somebody else has closed it, and the number may be another file's.
            if failure == .badDescriptor(self.descriptor) { self.isOwned.store(false, ordering: .releasing) }
            self.closeDescriptor()
            closed()
        }
        reportsFile.store(events.contains(.read), ordering: .relaxed)
        signalFile(source, loop)
    }

    private func descriptorSource(
        _ events: RunLoop.DescriptorSource.Events, _ label: String?, _ file: StaticString, _ line: UInt,
        _ ready: @escaping @Sendable (RunLoop.DescriptorSource.Events) -> Void
    ) throws(RunLoop.SourceError) -> RunLoop.Source {
        try RunLoop.DescriptorSource(descriptor: descriptor, events: events, label: label, file: file, line: line) { ready($1) }
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

    /// Which readiness is reported. The caller releases the source outside its locks, because the last release calls `willClose`.
    func setEvents(_ events: RunLoop.DescriptorSource.Events, on loop: RunLoop?) -> RunLoop.Source? {
        guard let source else { return nil }
        (source as? RunLoop.DescriptorSource)?.events = events
        if isFile, let loop {
            reportsFile.store(events.contains(.read), ordering: .relaxed)
            signalFile(source, loop)
        }
        return source
    }

    /// Leaves the loop.
    func leave() { /* DOES CALLOUT */ source?.invalidate() }

    private func closeDescriptor() {
        guard isOwned.exchange(false, ordering: .acquiringAndReleasing) else { return }
        if restoresBlocking { cstreams_make_blocking(descriptor) }
        _ = close(descriptor)
    }

    // MARK: Bytes

    func read(into space: UnsafeMutableRawBufferPointer) -> TransferResult {
        let count = cstreams_read(descriptor, kind, space.baseAddress, space.count)
        return count == 0 ? .end : Self.result(count, "read")
    }

    func write(_ parts: UnsafeBufferPointer<UnsafeRawBufferPointer>) -> TransferResult {
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
    func finishWriting() { if isSocket { _ = cstreams_finish_writing(descriptor) } }
}
