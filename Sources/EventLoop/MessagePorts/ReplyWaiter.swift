// Somebody who waits for a reply.

/// One request, from before it is sent until its answer, its end, or the end of patience.
final class ReplyWaiter: @unchecked Sendable {
    // SAFETY: constants; the rest is guarded by the lock of the connection's state.

    typealias Outcome = Result<[UInt8]?, RunLoop.PortError>

    enum Kind: Sendable {
        /// The thread blocks, and reads the connection itself if nobody else does.
        case thread
        /// The thread runs its loop, which the source wakes.
        case loop(RunLoop, RunLoop.CustomSource)
        case task
    }

    let kind: Kind
    /// What a task's timer and its cancellation are to say.
    @exclusivity(unchecked) var conversation: UInt64 = 0
    @exclusivity(unchecked) var outcome: Outcome?
    /// For a thread that waits while another one reads, or while its message waits to be sent.
    @exclusivity(unchecked) var latch: Latch?
    /// Its place among those that wait for another thread to read.
    @exclusivity(unchecked) var followerTicket: RevocableQueue<ReplyWaiter>.Ticket?
    /// The one who read has gone: this thread is to read from now on.
    @exclusivity(unchecked) var mustRead = false
    @exclusivity(unchecked) var continuation: CheckedContinuation<Outcome, Never>?
    /// The message, while there was no room for all of it.
    @exclusivity(unchecked) var unsent: UnsentFrame?

    init(_ kind: Kind) { self.kind = kind }

    var isThread: Bool { if case .thread = kind { true } else { false } }
}

/// A frame that waits for room.
final class UnsentFrame: @unchecked Sendable {
    // SAFETY: guarded by the lock of the connection's state.
    @exclusivity(unchecked) var frame: OutgoingFrame
    /// Its place among those that wait for room.
    @exclusivity(unchecked) var ticket: RevocableQueue<UnsentFrame>.Ticket = 0
    /// The sender's, who keeps them open until the frame has gone or is withdrawn.
    let descriptors: [Int32]
    /// Opened when the frame has gone, or will never go.
    @exclusivity(unchecked) var latch: Latch?
    /// Who is to be told then beside the latch: one that runs its loop meanwhile.
    @exclusivity(unchecked) var sender: ReplyWaiter.Kind?
    @exclusivity(unchecked) var isOver = false
    @exclusivity(unchecked) var failure: RunLoop.PortError?

    init(_ frame: OutgoingFrame, descriptors: [Int32], latch: Latch?) {
        (self.frame, self.descriptors, self.latch) = (frame, descriptors, latch)
    }
}

/// What is to be done once the lock has been let go of: nobody is told anything under it.
struct Tidings {
    private var latches: [Latch] = []
    private var continuations: [(CheckedContinuation<ReplyWaiter.Outcome, Never>, ReplyWaiter.Outcome)] = []
    private var sources: [(RunLoop, RunLoop.CustomSource)] = []

    mutating func open(_ latch: Latch?) { if let latch { latches.append(latch) } }

    /// Under the lock. The first outcome stands.
    mutating func finish(_ waiter: ReplyWaiter, _ outcome: ReplyWaiter.Outcome) {
        if waiter.outcome != nil { return }
        waiter.outcome = outcome
        if let latch = waiter.latch { latches.append(latch) }
        if let continuation = waiter.continuation {
            waiter.continuation = nil
            continuations.append((continuation, outcome))
        }
        wake(waiter.kind)
    }

    /// Under the lock. Has one that runs its loop look again.
    mutating func wake(_ kind: ReplyWaiter.Kind?) { if case .loop(let loop, let source) = kind { sources.append((loop, source)) } }

    /// After the lock.
    consuming func tell() {
        for latch in latches { latch.open() }
        for (continuation, outcome) in continuations { continuation.resume(returning: outcome) }
        for (loop, source) in sources {
            source.signal()
            loop.wakeUp()
        }
    }
}
