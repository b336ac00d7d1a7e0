// Waits of a thread that sends on a socket or connects it: for its turn, for room, and for the outcome.

internal import CPlatform
internal import EventLoop
internal import EventLoopLibC

/// Threads that send on one socket take turns, and so do those that connect it.
final class SocketTurns: Sendable {
    private enum Turn {
        case free, taken
        /// The thread that has it waits for the socket: for room, or for the outcome.
        case waiting
    }
    private let turn = LoopLock(Turn.free)
    let mark = ProcessMark()

    /// Calls `body` when no other thread is in it; nil if that is not so before `deadline`, if a thread of the parent process has the turn,
    /// or if the thread that has it waits for the socket and the caller does not wait for that. `body` does not call out.
    func take<R>(until deadline: ContinuousClock.Instant?, waitsForOthers: Bool, _ body: () -> R) -> R? {
        // A thread that ended in `body` would keep its turn for ever, and one that ended in the wait its reference to the descriptor.
        let cancellation = cplatform_hold_cancellation()
        defer { cplatform_resume_cancellation(cancellation) }
        var wait = Backoff(until: deadline)
        var other = begin()
        while other != .free {  // ends: with the turn, at the deadline, or when the other thread waits
            if (other == .waiting && !waitsForOthers) || !mark.isOurs || !wait.pause() { return nil }
            other = begin()
        }
        defer { set(.free) }
        return body()
    }

    /// Called in `body` before a wait for the socket.
    func beginWaiting() { set(.waiting) }

    /// Whether the thread that has the turn waits for the socket.
    var isWaiting: Bool { turn.withLock { $0 == .waiting } }

    private func set(_ new: Turn) { _ = turn.withLockIfOwn { $0 = new } }

    /// Takes the turn if it is free. Returns what it was.
    private func begin() -> Turn {
        let former = turn.withLockIfOwn { turn -> Turn in
            defer { if turn == .free { turn = .taken } }
            return turn
        }
        return former ?? .taken
    }
}

/// A wait for something that the kernel does not report: it is tried again and again, less and less often.
struct Backoff {
    private static let longest: Int64 = 16_000_000

    private let deadline: ContinuousClock.Instant?
    private var nanoseconds: Int64 = 250_000

    init(until deadline: ContinuousClock.Instant?) { self.deadline = deadline }

    /// Returns false at once if the deadline has passed; otherwise sleeps, not beyond it.
    mutating func pause() -> Bool {
        var length = Duration.nanoseconds(nanoseconds)
        if let deadline {
            let left = ContinuousClock.now.duration(to: deadline)
            if left <= .zero { return false }
            length = min(length, left)
        }
        usleep(UInt32((length / .microseconds(1)).rounded(.up)))
        nanoseconds = min(nanoseconds * 2, Self.longest)
        return true
    }
}
