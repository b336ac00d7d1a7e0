// The end of an item that several threads may be using.

import Synchronization

/// Counts the uses of an item and tells exactly one caller when the item is invalid and its last use has ended.
///
/// A use is a membership of a loop (the kernel may still hold the descriptor) or a call of the handler in progress.
/// Thread-safe and lock-free.
struct Rundown: ~Copyable, Sendable {
    private static let invalid: UInt32 = 1 << 31
    private let word = Atomic<UInt32>(0)

    var isValid: Bool { word.load(ordering: .acquiring) & Self.invalid == 0 }

    /// Begins a use. False when the item is invalid: then there is nothing to end.
    borrowing func enter() -> Bool {
        var seen = word.load(ordering: .relaxed)
        while seen & Self.invalid == 0 {  // ends: each turn means that another thread has changed the word
            let (exchanged, original) = word.weakCompareExchange(
                expected: seen, desired: seen + 1, ordering: .acquiringAndReleasing)
            if exchanged { return true }
            seen = original
        }
        return false
    }

    /// Ends a use. True when the item is invalid and this was its last use: the caller finishes the item.
    borrowing func exit() -> Bool {
        let (old, new) = word.subtract(1, ordering: .acquiringAndReleasing)
        assert(old & ~Self.invalid > 0, "a use ended that had not begun")
        return new == Self.invalid
    }

    /// Makes the item invalid. `first`: it was valid until now. `last`: nothing uses it, so the caller finishes it.
    borrowing func invalidate() -> (first: Bool, last: Bool) {
        let (old, new) = word.bitwiseOr(Self.invalid, ordering: .sequentiallyConsistent)
        let first = old & Self.invalid == 0
        return (first, first && new == Self.invalid)
    }
}
