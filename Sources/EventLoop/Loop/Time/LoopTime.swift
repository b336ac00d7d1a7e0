// Lifecycle of a manual clock: held by each loop that uses it, and by a loop that has used it before, until the `RunLoop` object ends. So any
// thread may read it without a lock.

import Synchronization

/// A loop's time: the monotonic clock, or a manual one. The owner sets it, any thread reads it.
struct LoopTime: ~Copyable, @unchecked Sendable {
    // SAFETY: an atomic, and what it points to is Sendable and held until the loop ends.

    /// The manual clock, which `LoopOwned.clocks` holds; nil while the loop goes by the monotonic clock.
    private let newest = Atomic<UnsafeRawPointer?>(nil)
    @inline(__always) var manualClock: RunLoop.ManualClock? { newest.load(ordering: .acquiring).map(Self.clock) }

    @inline(never) private static func clock(_ pointer: UnsafeRawPointer) -> RunLoop.ManualClock {
        Borrowed<RunLoop.ManualClock>(at: pointer, keptBy: .loop).object
    }

    @inline(__always) var now: RunLoop.Instant { manualClock?.now ?? .now }

    /// From now on the loop goes by this clock. Owning thread only.
    borrowing func use(_ clock: RunLoop.ManualClock) {
        newest.store(UnsafeRawPointer(Borrowed(clock, keptBy: .loop).address), ordering: .releasing)
    }
}
