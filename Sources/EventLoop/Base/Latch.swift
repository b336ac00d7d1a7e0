internal import CPlatform

/// Threads wait until another thread opens it. It stays open. A child of fork has none of the threads that would open its parent's latches, so
/// these are open there.
///
/// Lifecycle: the mutex and the condition are created and freed with the latch. A waiting thread retains the latch.
package final class Latch: @unchecked Sendable {
    // SAFETY: a constant; the functions of C that take it are thread-safe.
    private let latch = cplatform_make_latch()
    private let mark = ProcessMark()

    package init() {}

    deinit { cplatform_free_latch(latch, !mark.isOurs) }

    /// Opens the latch and wakes all waiting threads. Thread-safe.
    package func open() { if mark.isOurs { cplatform_open_latch(latch) } }

    /// Blocks until the latch is open. Returns false if `deadline` (real time) passes first. A thread that is cancelled meanwhile waits on.
    /// Thread-safe.
    package func wait(until deadline: RunLoop.Instant?) -> Bool {
        !mark.isOurs || cplatform_wait_for_latch(latch, deadline?.nanoseconds ?? .max)
    }
}
