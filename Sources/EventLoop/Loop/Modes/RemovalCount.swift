// Whether something has left a mode since.

import Synchronization

/// Counts what leaves a mode: a snapshot that was taken at the same generation is still good. Any thread.
struct RemovalCount: ~Copyable, Sendable {
    private let count = Atomic<UInt64>(0)

    @inline(__always)
    var generation: UInt64 { count.load(ordering: .acquiring) }

    func increment() { count.add(1, ordering: .acquiringAndReleasing) }
}
