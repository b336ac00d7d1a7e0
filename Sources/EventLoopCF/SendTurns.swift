// Waits of a thread that sends on a socket: for its turn, and for room.

internal import CPlatform
internal import EventLoop
internal import EventLoopLibC

/// Threads that send on one socket take turns.
final class SendTurns: Sendable {
    /// Somebody sends.
    private let isTaken = LoopLock(false)
    let mark = ProcessMark()

    /// Calls `body` when no other thread is in it; nil if that is not so before `deadline`, or
    /// if a thread of the parent process has the turn.
    func take<R>(until deadline: ContinuousClock.Instant?, _ body: () -> R) -> R? {
        var wait = Backoff(until: deadline)
        while !begin() {  // ends: with the turn, or at the deadline
            if !mark.isOurs || !wait.pause() { return nil }
        }
        defer { _ = isTaken.withLockIfOwn { $0 = false } }
        return body()
    }

    private func begin() -> Bool {
        isTaken.withLockIfOwn { isTaken in
            defer { isTaken = true }
            return !isTaken
        } ?? false
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
