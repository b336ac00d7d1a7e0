// The state of a datagram socket.
//
// Lifecycle: made by a DatagramSocket. Its source retains it until the source has left the loop, so it outlives the DatagramSocket, whose last
// release ends it.

internal import CDatagrams
internal import CPlatform
internal import EventLoop
internal import EventLoopLibC
internal import EventLoopStreams

/// What happens in a socket. Every change is made under the lock; tasks are resumed, and handlers called, outside.
final class DatagramCore: @unchecked Sendable {
    // SAFETY: constants, and the state, which its lock guards; `DatagramState` is accessed only inside `state.withLock`.

    let loop: RunLoop
    let mode: RunLoop.Mode
    let options: DatagramSocket.Options
    let descriptor: DatagramDescriptor
    private let state = StreamLock(DatagramState())

    init(_ descriptor: DatagramDescriptor, on loop: RunLoop, _ mode: RunLoop.Mode, _ options: DatagramSocket.Options) {
        (self.descriptor, self.loop, self.mode, self.options) = (descriptor, loop, mode, options)
    }

    /// Calls `body` under the lock, and then releases what it has put aside.
    func withState<Result>(_ body: (inout DatagramState) throws -> Result) rethrows -> Result { /* DOES CALLOUT */
        var released: [AnyObject] = []
        defer { withExtendedLifetime(released) {} }
        return try state.withLock { state in
            defer { swap(&released, &state.released) }
            return try body(&state)
        }
    }

    /// The object that handlers get.
    func setOwner(_ socket: DatagramSocket) { withState { $0.owner = socket } }

    /// Joins the loop.
    func open(label: String?, file: StaticString, line: UInt) throws(RunLoop.SourceError) {
        _ = descriptor.beginUse()  // the source's
        let source: RunLoop.DescriptorSource
        do throws(RunLoop.SourceError) {
            source = try RunLoop.DescriptorSource(
                descriptor: descriptor.number, events: .read, label: label ?? "datagrams", file: file, line: line
            ) { _, events in self.ready(events) }
        } catch {
            withState { $0.setEnd(.closed) }
            descriptor.end()
            descriptor.endUse()
            throw error
        }
        // Only the loop retains the source, so that the source ends with the loop.
        withState { $0.source = source }
        guard loop.add(source, forMode: mode) else {
            withState { $0.setEnd(.loopEnded) }
            source.invalidate()
            descriptor.end()
            descriptor.endUse()
            throw .loopEnded
        }
        source.onInvalidation { source in self.sourceDidEnd(source.failure) }
    }

    private func ready(_ events: RunLoop.DescriptorSource.Events) { /* DOES CALLOUT */
        if events.contains(.write) { flushQueue() }
        if events.contains(.read) { receive() }
    }

    var isOpen: Bool {
        descriptor.isOurs && withState { $0.end == nil }
    }

    var statistics: DatagramSocket.Statistics {
        withState { state in
            if state.end == nil { countDropsLocked(&state) }
            return state.statistics
        }
    }

    /// The kernel's count wraps around.
    func countDropsLocked(_ state: inout DatagramState) {
        let drops = cdatagrams_drops(descriptor.number)
        state.statistics.receiveDrops &+= UInt64(drops &- state.kernelDrops)
        state.kernelDrops = drops
    }

    func member(of group: RunLoop.SocketAddress, _ interface: String?, joins: Bool) throws(RunLoop.SourceError) {
        let operation = "\(joins ? "join" : "leave") \(group)"
        var native = try group.native()
        if group.kind != descriptor.kind || descriptor.kind == Int32(CPLATFORM_UNIX) {
            throw .system(operation: operation, errno: EAFNOSUPPORT)
        }
        guard descriptor.beginUse() else { throw .system(operation: operation, errno: EBADF) }
        defer { descriptor.endUse() }
        let number = descriptor.number
        let code = interface.map { cdatagrams_member(number, &native, $0, joins) } ?? cdatagrams_member(number, &native, nil, joins)
        if code != 0 { throw .system(operation: operation, errno: code) }
    }

    // MARK: The end

    /// By the program.
    func close() { /* DOES CALLOUT */
        guard descriptor.isOurs else { return }
        let source = withState { state -> RunLoop.DescriptorSource? in
            guard state.end == nil else { return nil }
            flushLocked(&state)
            countDropsLocked(&state)
            state.setEnd(.closed)
            state.input.removeAll()
            return state.source
        }
        resumeWaiters()
        descriptor.end()
        source?.invalidate()
    }

    /// The source has left the loop: after `close`, because it failed, or because the loop has ended. On the loop's thread.
    private func sourceDidEnd(_ failure: RunLoop.SourceError?) { /* DOES CALLOUT */
        guard descriptor.isOurs else { return }
        // Somebody else has closed it, and the number may be another file's.
        let isForeign = failure == .badDescriptor(descriptor.number)
        withState { state in
            if state.end == nil, !isForeign {
                flushLocked(&state)
                countDropsLocked(&state)
            }
            state.setEnd(failure.map { .failed($0) } ?? .loopEnded)
        }
        descriptor.end(isForeign: isForeign)
        descriptor.endUse()
        resumeWaiters()
    }

    /// Tasks that wait learn of the end, and what is queued is dropped.
    private func resumeWaiters() { /* DOES CALLOUT */
        let (reader, writers, released) = withState { state in
            defer {
                state.reader = nil
                state.writers = []
                state.handler = nil
                state.statistics.sendDrops &+= UInt64(state.output.count)
                state.output.removeAll()
            }
            return (state.reader, state.writers, state.handler)
        }
        // The handler is released outside the lock, because that may be user code.
        withExtendedLifetime(released) {}
        for writer in writers { writer.continuation.resume(throwing: StreamError.closed) }
        guard let reader else { return }
        reader.continuation.resume(with: Result { try withState { try $0.takeEnd() } })
    }
}

/// Guarded by the core's lock.
struct DatagramState {
    enum End {
        case closed, loopEnded
        case failed(RunLoop.SourceError)
    }

    struct Reader {
        var ticket: UInt64
        var continuation: CheckedContinuation<Datagram?, any Error>
    }

    struct Outgoing {
        var bytes: [UInt8]
        /// Nil: the connected peer.
        var peer: cplatform_address?
    }

    struct Writer {
        var ticket: UInt64
        var datagram: Outgoing
        var continuation: CheckedContinuation<Void, any Error>
    }

    weak var owner: DatagramSocket?
    /// Weak: only the loop retains it.
    weak var source: RunLoop.DescriptorSource?
    /// Released outside the lock: if the loop has ended meanwhile, that is the last release of the source, which calls the core.
    var released: [AnyObject] = []
    var interest: RunLoop.DescriptorSource.Events = .read
    var end: End?
    /// A task has learned why the socket ended.
    var isEndTaken = false
    var lastTicket: UInt64 = 0
    var statistics = DatagramSocket.Statistics(received: 0, sent: 0, receiveDrops: 0, sendDrops: 0)
    /// As the kernel counted last.
    var kernelDrops: UInt32 = 0

    // Receiving.
    var input = DatagramQueue<Datagram>()
    var reader: Reader?
    var handler: (@Sendable (DatagramSocket, Datagram) -> Void)?
    var isForTasks = false
    /// The handler is being called.
    var isDelivering = false
    var lastPeer = KnownAddress()

    // Sending.
    var output = DatagramQueue<Outgoing>()
    var writers: [Writer] = []
    /// The handler is being called for a batch: what is sent goes out together.
    var isGathering = false
    /// `flushQueue` is called in the next pass of the loop, or of one that a handler runs.
    var isFlushScheduled = false
    /// The kernel takes no more until it reports room.
    var isBlocked = false
    /// A retry is scheduled, because the kernel reports no room for Unix sockets that are not connected.
    var isRetrying = false
    var retryDelay = Duration.milliseconds(1)
    /// What the kernel has reported of the connected peer. The next `write` throws it.
    var peerFailure: RunLoop.SourceError?
    var lastTarget = KnownAddress()

    mutating func setEnd(_ new: End) { if end == nil { end = new } }

    /// Throws why the socket ended, once, if the program did not end it; then nil.
    mutating func takeEnd() throws -> Datagram? {
        if isEndTaken { return nil }
        isEndTaken = true
        switch end {
        case .loopEnded: throw RunLoopEnded()
        case .failed(let error): throw error
        case .closed, nil: return nil
        }
    }

    mutating func nextTicket() -> UInt64 {
        lastTicket += 1
        return lastTicket
    }

    /// Which readiness the loop reports.
    mutating func setInterest(_ events: RunLoop.DescriptorSource.Events) {
        if events == interest || end != nil { return }
        interest = events
        guard let source else { return }
        source.events = events
        released.append(source)
    }
}
