// The state of a datagram socket.
//
// Lifecycle: made by a DatagramSocket. Its source retains it until the source has left the loop, so it outlives the DatagramSocket, whose last
// release ends it.

internal import EventLoop
internal import EventLoopLibC
internal import EventLoopStreams

/// What happens in a socket. Every change is made under the lock; tasks are resumed, and handlers called, outside.
final class DatagramCore: PassEndListener, @unchecked Sendable {
    // SAFETY: constants, and the state, which its lock guards; `DatagramState` is accessed only inside `state.withLock`.

    let loop: RunLoop
    let mode: RunLoop.Mode
    let options: DatagramSocket.Options
    let transport: any DatagramTransport
    /// The transport's. Here, because every `send` asks.
    let deliversLater: Bool
    private let state = LoopLock(DatagramState())

    init(_ transport: any DatagramTransport, on loop: RunLoop, _ mode: RunLoop.Mode, _ options: DatagramSocket.Options) {
        (self.transport, self.loop, self.mode, self.options) = (transport, loop, mode, options)
        deliversLater = transport.deliversLater
    }

    func withState<Result>(_ body: (inout DatagramState) throws -> Result) rethrows -> Result { try state.withLock(body) }

    /// The object that handlers get.
    func setOwner(_ socket: DatagramSocket) { withState { $0.owner = socket } }

    /// Joins the loop.
    func open(label: String?, file: StaticString, line: UInt) throws(RunLoop.SourceError) {
        do throws(RunLoop.SourceError) {
            try transport.open(for: self, on: loop, mode: mode, label: label ?? "datagrams", file: file, line: line)
        } catch {
            withState { $0.setEnd(.closed) }
            throw error
        }
    }

    /// On the loop's thread.
    func readyForDatagrams(_ events: RunLoop.DescriptorSource.Events) { /* DOES CALLOUT */
        if events.contains(.write) { flushQueue() }
        if events.contains(.read) { receive() }
    }

    func passWillEnd() { /* DOES CALLOUT */
        flushQueue()
    }

    /// Which readiness the loop reports.
    func setInterestLocked(_ events: RunLoop.DescriptorSource.Events, _ state: inout DatagramState) {
        if events == state.interest || state.end != nil { return }
        state.interest = events
        transport.setInterest(events)
    }

    var isOpen: Bool {
        transport.isOurs && withState { $0.end == nil }
    }

    var statistics: DatagramSocket.Statistics {
        guard loop.isOurs else { return DatagramSocket.Statistics(received: 0, sent: 0, receiveDrops: 0, sendDrops: 0) }
        return withState { state in
            if state.end == nil { countDropsLocked(&state) }
            return state.statistics
        }
    }

    /// The kernel's count wraps around.
    func countDropsLocked(_ state: inout DatagramState) {
        // Unknown where the system does not count, and if other code has closed or replaced the descriptor.
        guard let drops = transport.drops else { return }
        state.statistics.receiveDrops &+= UInt64(drops &- state.kernelDrops)
        state.kernelDrops = drops
    }

    // MARK: The end

    /// By the program.
    func close() { /* DOES CALLOUT */
        guard transport.isOurs else { return }
        withState { state in
            guard state.end == nil else { return }
            flushLocked(&state)
            countDropsLocked(&state)
            state.setEnd(.closed)
            state.input.removeAll()
        }
        if deliversLater { transport.deliverSent() }
        let handler = resumeWaiters()
        transport.close()
        withExtendedLifetime(handler) {}
    }

    /// The transport has left the loop: after `close`, because it failed, or because the loop has ended. On the loop's thread.
    func transportDidEnd(_ failure: RunLoop.SourceError?) { /* DOES CALLOUT */
        guard transport.isOurs else { return }
        // Somebody else has closed a bad descriptor, and the number may be another file's.
        let isForeign = if case .badDescriptor? = failure { true } else { false }
        withState { state in
            if state.end == nil, !isForeign {
                flushLocked(&state)
                countDropsLocked(&state)
            }
            state.setEnd(failure.map { .failed($0) } ?? .loopEnded)
        }
        if deliversLater { transport.deliverSent() }
        transport.didLeaveLoop(isForeign: isForeign)
        let handler = resumeWaiters()
        withExtendedLifetime(handler) {}
    }

    /// Tasks that wait learn of the end, and what is queued is dropped. Returns the handler, which the caller releases last, because that may be user
    /// code: it may run the loop, which would find a socket that is ready and that nobody reads.
    private func resumeWaiters() -> (@Sendable (DatagramSocket, Datagram) -> Void)? { /* DOES CALLOUT */
        let (reader, writers, handler) = withState { state in
            defer {
                state.reader = nil
                state.writers = []
                state.handler = nil
                state.statistics.sendDrops &+= UInt64(state.output.count)
                state.output.removeAll()
            }
            return (state.reader, state.writers, state.handler)
        }
        for writer in writers { writer.continuation.resume(throwing: StreamError.closed) }
        if let reader { reader.continuation.resume(with: Result { try withState { try $0.takeEnd() } }) }
        return handler
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
        var peer: NativeAddress?
    }

    struct Writer {
        var ticket: UInt64
        var datagram: Outgoing
        var continuation: CheckedContinuation<Void, any Error>
    }

    weak var owner: DatagramSocket?
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
    /// `flushQueue` is called at the end of the pass, or of one of a run that the handler begins.
    var isFlushScheduled = false
    /// The kernel takes no more until it reports room.
    var isBlocked = false
    /// A retry is scheduled or asked for, because the kernel reports no room for Unix sockets that are not connected.
    var isRetrying = false
    /// `followUp` is to schedule it.
    var asksForRetry = false
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

    /// Whether `followUp` has something to do.
    var hasFollowUp: Bool { asksForRetry || !writers.isEmpty }

    /// After what time to retry, if a retry was asked for. Each one that follows without a success comes later.
    mutating func takeRetry() -> Duration? {
        guard asksForRetry, end == nil else { return nil }
        asksForRetry = false
        defer { retryDelay = min(retryDelay * 2, .milliseconds(64)) }
        return retryDelay
    }

    mutating func nextTicket() -> UInt64 {
        lastTicket += 1
        return lastTicket
    }
}
