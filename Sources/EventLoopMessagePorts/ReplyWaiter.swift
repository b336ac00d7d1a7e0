// A requester that waits for its reply.

internal import EventLoop

/// One request, from before it is sent until it has its reply, fails or times out.
final class ReplyWaiter: @unchecked Sendable {
    // SAFETY: constants; the rest is guarded by the lock of the connection's state.

    typealias ReplyResult = Result<[UInt8]?, RunLoop.PortError>

    enum Kind: Sendable {
        /// The thread blocks. It reads the connection itself if no other thread does.
        case thread
        /// The thread runs its loop, which the source wakes.
        case loop(RunLoop, RunLoop.CustomSource)
        case task
    }

    let kind: Kind
    /// Matches the reply to the request.
    var conversation: UInt64 = 0
    var result: ReplyResult?
    /// For a thread that waits while another one reads, or while its request waits to be sent.
    var latch: Latch?
    /// Its place among the threads that wait while another one reads.
    var followerTicket: LinkedQueue<ReplyWaiter>.Ticket?
    /// The reading thread has its reply: this thread reads from now on.
    var mustRead = false
    var continuation: CheckedContinuation<ReplyResult, Never>?
    /// The request, if the socket had no room for all of it.
    var unsent: UnsentFrame?

    init(_ kind: Kind) { self.kind = kind }

    var isThread: Bool { if case .thread = kind { true } else { false } }
}

/// A frame that waits for room in the socket.
final class UnsentFrame: @unchecked Sendable {
    // SAFETY: guarded by the lock of the connection's state.
    var frame: OutgoingFrame
    /// Its place in the queue of unsent frames.
    var ticket: LinkedQueue<UnsentFrame>.Ticket?
    /// They belong to the sender, who keeps them open until the frame is finished or cancelled.
    let descriptors: [Int32]
    /// Opened when the frame is finished.
    var latch: Latch?
    /// Resumed when the frame is finished.
    var task: TaskWait<Void>?
    /// Woken when the frame is finished, if it runs its loop meanwhile.
    var sender: ReplyWaiter.Kind?
    /// It has been sent, or never will be.
    var isFinished = false
    /// Why it was not sent.
    var failure: RunLoop.PortError?

    init(_ frame: OutgoingFrame, descriptors: [Int32], latch: Latch?, task: TaskWait<Void>?) {
        (self.frame, self.descriptors, self.latch, self.task) = (frame, descriptors, latch, task)
    }
}

/// Wake-ups collected under the connection's lock and performed after it is released.
struct DeferredWakeUps {
    private var latches: [Latch] = []
    private var tasks: [TaskWait<Void>] = []
    private var continuations: [(CheckedContinuation<ReplyWaiter.ReplyResult, Never>, ReplyWaiter.ReplyResult)] = []
    private var sources: [(RunLoop, RunLoop.CustomSource)] = []

    mutating func open(_ latch: Latch?) { if let latch { latches.append(latch) } }

    /// Wakes the sender of a frame that is finished. Called under the lock.
    mutating func wakeSender(of unsent: UnsentFrame) {
        open(unsent.latch)
        if let task = unsent.task { tasks.append(task) }
        wake(unsent.sender)
    }

    /// Sets the result of a waiter and wakes it. No-op if it has one. Called under the lock.
    mutating func complete(_ waiter: ReplyWaiter, _ result: ReplyWaiter.ReplyResult) {
        if waiter.result != nil { return }
        waiter.result = result
        if let latch = waiter.latch { latches.append(latch) }
        if let continuation = waiter.continuation {
            waiter.continuation = nil
            continuations.append((continuation, result))
        }
        wake(waiter.kind)
    }

    /// Wakes a requester that runs its loop, so that it checks its request again. Called under the lock.
    mutating func wake(_ kind: ReplyWaiter.Kind?) { if case .loop(let loop, let source) = kind { sources.append((loop, source)) } }

    /// Called after the lock is released.
    consuming func performAll() { /* DOES CALLOUT */
        for latch in latches { latch.open() }
        for task in tasks { task.deliver(()) }
        for (continuation, result) in continuations { continuation.resume(returning: result) }
        for (loop, source) in sources {
            source.signal()
            loop.wakeUp()
        }
    }
}
