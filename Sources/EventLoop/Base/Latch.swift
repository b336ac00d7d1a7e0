internal import CPlatform

/// Threads wait until another thread opens it. It stays open. A latch of the parent is open in a child: no thread would open it there (decision 24).
/// Lifecycle: the mutex and the condition are created and freed with the latch. A waiting thread retains the latch.
package final class Latch: @unchecked Sendable {
    // SAFETY: the memory is there as long as the instance; the functions of C that take it are thread-safe.
    private let latch = UnsafeMutablePointer<cplatform_latch>.allocate(capacity: 1)
    private let mark = ProcessMark()
    package init() { cplatform_make_latch(latch) }

    deinit {
        cplatform_destroy_latch(latch, !mark.isOurs)
        latch.deallocate()
    }

    /// Opens the latch and wakes all waiting threads. Thread-safe.
    package func open() { if mark.isOurs { cplatform_open_latch(latch) } }

    /// Blocks until the latch is open; a thread that is cancelled waits on. Returns false if `deadline` (real time) passes first. Thread-safe.
    package func wait(until deadline: RunLoop.Instant?) -> Bool {
        !mark.isOurs || cplatform_wait_for_latch(latch, deadline?.nanoseconds ?? .max)
    }
}
