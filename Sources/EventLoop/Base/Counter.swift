import Synchronization

/// A number that one thread raises and any thread reads.
struct Counter: ~Copyable, Sendable {
    private let value = Atomic<UInt64>(0)
    var current: UInt64 { value.load(ordering: .relaxed) }
    /// Owning thread only: a load and a store, not a locked instruction.
    @inline(__always) borrowing func add(_ amount: UInt64) { value.store(value.load(ordering: .relaxed) &+ amount, ordering: .relaxed) }
    @inline(__always) borrowing func increment() { add(1) }
    /// A thread that has read the number, and then makes a fence, sees what this thread has stored before.
    @inline(__always) borrowing func set(_ new: UInt64) { value.store(new, ordering: .releasing) }
}

/// A count that only tests read. Takes no room and no instruction in release builds.
struct TestsOnlyCount: Sendable {
    #if DEBUG
    private(set) var value = 0
    #endif

    @inline(__always) mutating func increment() {
        #if DEBUG
        value += 1
        #endif
    }
}
