// The signal of a custom source. Tests/Models/signal.pml checks every interleaving of its steps.

import Synchronization

/// Whether a signal is pending, and whether the queues of the source's modes have it.
///
/// Three states: *clear*; *signaled*, which some queue may not have yet; *enqueued*. A thread that finds the signal *signaled* enqueues it as well,
/// because the thread that made it so may have been preempted, and the caller is free to wake the loop next. Enqueueing twice is enqueueing once.
///
/// The bits above the state count the signals that were taken. Without the count a thread that comes late could mark the next signal as enqueued.
struct SignalWord: ~Copyable, Sendable {
    private static let clear: UInt64 = 0
    private static let signaled: UInt64 = 1
    private static let enqueued: UInt64 = 2
    private static let stateMask: UInt64 = 3
    private static let oneTaken: UInt64 = 4
    private let word = Atomic<UInt64>(0)

    /// A signal that its claimant must enqueue.
    struct Claim { fileprivate let word: UInt64 }
    var isPending: Bool { word.load(ordering: .acquiring) & Self.stateMask != Self.clear }

    /// Makes a signal pending. Nil if one is pending and enqueued; otherwise the caller enqueues it and then calls `markEnqueued`.
    @inline(__always) borrowing func claim() -> Claim? {
        var seen = word.load(ordering: .relaxed)
        while true {  // ends: each iteration means that another thread has changed the word
            let next = seen & Self.stateMask == Self.clear ? seen | Self.signaled : seen
            // Writes even without a change, so that the thread that takes the signal sees what this thread has written.
            let (exchanged, original) = word.compareExchange(expected: seen, desired: next, ordering: .sequentiallyConsistent)
            if exchanged { return next & Self.stateMask == Self.enqueued ? nil : Claim(word: next) }
            seen = original
        }
    }

    /// The queues of all modes have the signal of `claim`. No-op if it has been taken meanwhile.
    @inline(__always) borrowing func markEnqueued(_ claim: Claim) {
        _ = word.compareExchange(
            expected: claim.word, desired: claim.word ^ (Self.signaled | Self.enqueued), ordering: .sequentiallyConsistent)
    }

    /// Clears the word. True if a signal was pending.
    @inline(__always)
    @discardableResult
    borrowing func take() -> Bool {
        var seen = word.load(ordering: .sequentiallyConsistent)
        while seen & Self.stateMask != Self.clear {  // ends: each iteration means that another thread has changed the word
            let next = (seen & ~Self.stateMask) &+ Self.oneTaken
            let (exchanged, original) = word.compareExchange(expected: seen, desired: next, ordering: .sequentiallyConsistent)
            if exchanged { return true }
            seen = original
        }
        return false
    }
}
