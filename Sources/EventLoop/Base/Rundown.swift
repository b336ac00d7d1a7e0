import Synchronization

/// Counts the uses of an item. Exactly one caller learns that the item is invalid and its last use has ended, and that caller finishes the item. A
/// use is a membership of a loop (the kernel may still watch the descriptor) or a call of the handler in progress. Thread-safe and lock-free.
struct Rundown: ~Copyable, Sendable {
    private static let invalid: UInt32 = 1 << 31
    private let word = Atomic<UInt32>(0)
    var isValid: Bool { word.load(ordering: .acquiring) & Self.invalid == 0 }

    /// Begins a use. Returns false, without beginning one, if the item is invalid.
    borrowing func enter() -> Bool {
        var seen = word.load(ordering: .relaxed)
        while seen & Self.invalid == 0 {  // ends: each retry means that another thread has changed the word
            let (exchanged, original) = word.weakCompareExchange(expected: seen, desired: seen + 1, ordering: .acquiringAndReleasing)
            if exchanged { return true }
            seen = original
        }
        return false
    }

    /// Ends a use. Returns true if the item is invalid and this was its last use; then the caller must finish the item.
    borrowing func exit() -> Bool {
        let (old, new) = word.subtract(1, ordering: .acquiringAndReleasing)
        assert(old & ~Self.invalid > 0, "exit without enter")
        return new == Self.invalid
    }

    /// Makes the item invalid. `first`: the item was valid until now. `last`: nothing uses the item, so the caller must finish it.
    borrowing func invalidate() -> (first: Bool, last: Bool) {
        let (old, new) = word.bitwiseOr(Self.invalid, ordering: .sequentiallyConsistent)
        let first = old & Self.invalid == 0
        return (first, first && new == Self.invalid)
    }
}
