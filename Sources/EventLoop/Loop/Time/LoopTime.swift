// The clock that a loop goes by.
//
// Lifecycle of a manual clock: held by each loop that uses it, and by a loop that has used it before, until the `RunLoop` object ends. So any
// thread may read it without a lock.

import Synchronization

/// A loop's time: the monotonic clock, or a manual one. The owner sets it, any thread reads it.
struct LoopTime: ~Copyable, @unchecked Sendable {
    // SAFETY: an atomic, and what it points to is constant and held until the loop ends.

    /// A retained `ClockInUse`; nil while the loop goes by the monotonic clock.
    private let newest = Atomic<UnsafeRawPointer?>(nil)

    private final class ClockInUse: Sendable {
        let clock: RunLoop.ManualClock
        let earlier: ClockInUse?
        init(_ clock: RunLoop.ManualClock, after earlier: ClockInUse?) { (self.clock, self.earlier) = (clock, earlier) }
    }

    deinit {
        guard let pointer = newest.load(ordering: .relaxed) else { return }
        // One by one, because releasing a chain recurses.
        var clock: ClockInUse? = Unmanaged<ClockInUse>.fromOpaque(pointer).takeRetainedValue()
        while let earlier = clock { clock = earlier.earlier }  // ends: the chain has an end
    }

    @inline(__always)
    var manualClock: RunLoop.ManualClock? { newest.load(ordering: .acquiring).map(Self.clock) }

    @inline(never)
    private static func clock(_ pointer: UnsafeRawPointer) -> RunLoop.ManualClock {
        Borrowed<ClockInUse>(at: pointer, keptBy: .loop).use { $0.clock }
    }

    @inline(__always)
    var now: RunLoop.Instant { manualClock?.now ?? .now }

    /// From now on the loop goes by this clock. Owning thread only.
    borrowing func use(_ clock: RunLoop.ManualClock) {
        let earlier = newest.load(ordering: .relaxed).map { Unmanaged<ClockInUse>.fromOpaque($0).takeRetainedValue() }
        let new = Unmanaged.passRetained(ClockInUse(clock, after: earlier))
        newest.store(UnsafeRawPointer(new.toOpaque()), ordering: .releasing)
    }
}
