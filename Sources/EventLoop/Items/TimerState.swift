import Synchronization

/// The word that every change of a timer's state goes through: the loop that it is in, its uses, and flags. Thread-safe and lock-free.
///
/// It does for a timer what `Rundown` does for other items. A timer is in one loop at most, so joining a loop, leaving it, the beginning and the end
/// of a firing, and the end of the timer are one exchange each. `loopID` changes to or from a loop only under that loop's lock.
struct TimerState: ~Copyable, Sendable {
    struct Value {
        fileprivate(set) var word: UInt64
        /// Zero if the timer is in no loop.
        var loopID: UInt64 { word >> 32 }
        var isValid: Bool { word & TimerState.invalid == 0 }
        var isFiring: Bool { word & TimerState.firing != 0 }
        /// Whether the date was set by anybody but the loop since the firing began.
        var isDateSet: Bool { word & TimerState.dateSet != 0 }
        /// Whether a request to refile the timer is queued for the owner of the loop that it is in.
        var isRedateQueued: Bool { word & TimerState.redateQueued != 0 }
        fileprivate var isOver: Bool { word & (TimerState.invalid | TimerState.uses) == TimerState.invalid }
    }

    fileprivate static let uses: UInt64 = 0xFF_FFFF
    fileprivate static let invalid: UInt64 = 1 << 24
    fileprivate static let firing: UInt64 = 1 << 25
    fileprivate static let redateQueued: UInt64 = 1 << 26
    fileprivate static let dateSet: UInt64 = 1 << 27
    private static let onDemand: UInt64 = 1 << 28
    private static let endingWithLoop: UInt64 = 1 << 29
    private static let perform: UInt64 = 1 << 30
    private static let repeating: UInt64 = 1 << 31
    private static let loop: UInt64 = 0xFFFF_FFFF << 32
    private let word: Atomic<UInt64>

    init(repeats: Bool, isOnDemand: Bool, endsWithLoop: Bool, isPerform: Bool) {
        let kind = (isOnDemand ? Self.onDemand : 0) | (isPerform ? Self.perform : 0) | (repeats ? Self.repeating : 0)
        word = Atomic(endsWithLoop ? kind | Self.endingWithLoop : kind)
    }

    // MARK: Asking
    var value: Value { Value(word: word.load(ordering: .acquiring)) }
    /// For a caller that has stored something which the thread that moves the timer reads after it has changed the word.
    var latest: Value { Value(word: word.load(ordering: .sequentiallyConsistent)) }
    // Constants.
    var repeats: Bool { word.load(ordering: .relaxed) & Self.repeating != 0 }
    var isOnDemand: Bool { word.load(ordering: .relaxed) & Self.onDemand != 0 }
    /// A delayed perform or a task's sleep: it becomes invalid when its loop ends.
    var endsWithLoop: Bool { word.load(ordering: .relaxed) & Self.endingWithLoop != 0 }
    var isPerform: Bool { word.load(ordering: .relaxed) & Self.perform != 0 }

    // MARK: Uses
    /// Begins a use. Returns false, without beginning one, if the timer is invalid.
    borrowing func enter() -> Bool { change { $0.isValid ? $0.word + 1 : nil } != nil }

    /// Ends a use. True if the timer is invalid and this was its last use; then the caller must finish it.
    borrowing func exit() -> Bool {
        let (old, new) = word.subtract(1, ordering: .acquiringAndReleasing)
        assert(old & Self.uses > 0, "exit without enter")
        return Value(word: new).isOver
    }

    /// Begins the use of a loop that fires the timer. False, without one, if it is invalid, not in that loop, or in a call on another thread.
    @inline(__always) borrowing func beginFiring(in loopID: UInt64) -> Bool {
        change { $0.isValid && !$0.isFiring && $0.loopID == loopID ? ($0.word & ~Self.dateSet | Self.firing) + 1 : nil } != nil
    }

    /// Ends that use. True as in `exit`.
    @inline(__always) borrowing func endFiring() -> Bool {
        let (old, new) = word.subtract(Self.firing | 1, ordering: .sequentiallyConsistent)
        assert(old & Self.firing != 0 && old & Self.uses > 0, "a firing ends once")
        return Value(word: new).isOver
    }

    /// Makes the timer invalid. `was`: the state until now. `isLast`: nothing uses the timer, so the caller must finish it.
    borrowing func invalidate() -> (was: Value, isLast: Bool) {
        let (old, new) = word.bitwiseOr(Self.invalid, ordering: .sequentiallyConsistent)
        return (Value(word: old), Value(word: old).isValid && Value(word: new).isOver)
    }

    // MARK: The loop. Under the lock of the loop that the timer joins or leaves.
    /// Joins a loop, and begins the loop's use. False if the timer is invalid or in a loop.
    @inline(__always)
    borrowing func join(_ loopID: UInt64) -> Bool { change { $0.isValid && $0.loopID == 0 ? ($0.word | loopID << 32) + 1 : nil } != nil }
    /// Leaves the loop, last under its lock: another loop may take the timer then. A queued change of the date is void. The use goes on until `exit`.
    borrowing func leave() { word.bitwiseAnd(~(Self.loop | Self.redateQueued), ordering: .sequentiallyConsistent) }
    /// What ends together with the membership of a loop.
    enum End { case membership, validity, firingAndValidity }

    /// As `leave()`, and ends the loop's use and what `end` says. True as in `exit`.
    @inline(__always) borrowing func leave(ending end: End) -> Bool {
        let new = change { value -> UInt64? in
            var word = value.word & ~(Self.loop | Self.redateQueued) - 1
            if end != .membership { word |= Self.invalid }
            if end == .firingAndValidity { word = word & ~Self.firing - 1 }
            return word
        }
        return new.unsafelyUnwrapped.isOver  // there is always a next word
    }

    // MARK: Flags
    /// Somebody has set the date: the firing in progress leaves it alone.
    borrowing func noteDateSet() -> Value { Value(word: word.bitwiseOr(Self.dateSet, ordering: .sequentiallyConsistent).oldValue) }
    /// A request to refile the timer is queued for the owner. Under the loop's lock.
    borrowing func noteRedateQueued() { word.bitwiseOr(Self.redateQueued, ordering: .sequentiallyConsistent) }
    /// The request has left the queue. Under the loop's lock.
    borrowing func forgetRedateQueued() { word.bitwiseAnd(~Self.redateQueued, ordering: .sequentiallyConsistent) }

    /// Replaces the word by what `next` makes of it; nil, without a change, if that is nil.
    @inline(__always) private borrowing func change(_ next: (Value) -> UInt64?) -> Value? {
        var seen = word.load(ordering: .relaxed)
        while true {  // ends: each retry means that another thread has changed the word
            guard let new = next(Value(word: seen)) else { return nil }
            let (exchanged, original) = word.weakCompareExchange(expected: seen, desired: new, ordering: .sequentiallyConsistent)
            if exchanged { return Value(word: new) }
            seen = original
        }
    }
}
