internal import CPlatform
internal import EventLoopLibC

/// Threads wait until another thread opens it. It stays open. A child of fork has none of the threads that would open its parent's latches, so
/// these are open there.
///
/// Lifecycle: the mutex and the condition are created and freed with the latch. A waiting thread retains the latch.
package final class Latch: @unchecked Sendable {
    // SAFETY: `mutex` guards `isOpen`. Both C objects keep their addresses as long as the instance lives.
    private let mutex: UnsafeMutablePointer<pthread_mutex_t>
    private let condition: UnsafeMutablePointer<pthread_cond_t>
    private var isOpen = false
    private let mark = ProcessMark()

    package init() {
        mutex = .allocate(capacity: 1)
        pthread_mutex_init(mutex, nil)
        condition = .allocate(capacity: 1)
        initializeMonotonic(condition)
    }

    deinit {
        // pthread_cond_destroy(3p) may wait for the waiters, which a child does not have.
        if mark.isOurs { pthread_cond_destroy(condition) }
        condition.deallocate()
        pthread_mutex_destroy(mutex)
        mutex.deallocate()
    }

    /// Opens the latch and wakes all waiting threads. Thread-safe.
    package func open() {
        guard mark.isOurs else { return }
        pthread_mutex_lock(mutex)
        isOpen = true
        pthread_cond_broadcast(condition)
        pthread_mutex_unlock(mutex)
    }

    /// Blocks until the latch is open. Returns false if `deadline` (real time) passes first. A thread that is cancelled meanwhile waits on.
    /// Thread-safe.
    package func wait(until deadline: RunLoop.Instant?) -> Bool {
        guard mark.isOurs else { return true }
        // "When a cancellation request is acted upon, or a thread calls pthread_exit", the mutex is locked (pthread_cond_wait(3p)), and nobody
        // would unlock it. And what the thread waits for may refer to its stack.
        let cancellation = cplatform_hold_cancellation()
        defer { cplatform_resume_cancellation(cancellation) }
        pthread_mutex_lock(mutex)
        defer { pthread_mutex_unlock(mutex) }
        while !isOpen {  // ends: the latch opens, or the deadline passes
            guard let deadline, deadline != .distantFuture else {
                pthread_cond_wait(condition, mutex)
                continue
            }
            let left = RunLoop.Instant.now.duration(to: deadline).saturatedNanoseconds
            if left <= 0 { return false }
            waitMonotonic(condition, mutex, until: deadline, left: left)
        }
        return true
    }
}

#if canImport(Darwin)

private func initializeMonotonic(_ condition: UnsafeMutablePointer<pthread_cond_t>) { pthread_cond_init(condition, nil) }

private func waitMonotonic(
    _ condition: UnsafeMutablePointer<pthread_cond_t>, _ mutex: UnsafeMutablePointer<pthread_mutex_t>,
    until deadline: RunLoop.Instant, left: Int64
) {
    var time = timespec(tv_sec: Int(left / 1_000_000_000), tv_nsec: Int(left % 1_000_000_000))
    pthread_cond_timedwait_relative_np(condition, mutex, &time)
}

#else

private func initializeMonotonic(_ condition: UnsafeMutablePointer<pthread_cond_t>) {
    var attributes = pthread_condattr_t()
    pthread_condattr_init(&attributes)
    // The default is the wall clock, and setting that clock must not end a wait.
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC)
    pthread_cond_init(condition, &attributes)
    pthread_condattr_destroy(&attributes)
}

private func waitMonotonic(
    _ condition: UnsafeMutablePointer<pthread_cond_t>, _ mutex: UnsafeMutablePointer<pthread_mutex_t>,
    until deadline: RunLoop.Instant, left: Int64
) {
    var time = timespec(
        tv_sec: Int(max(0, deadline.nanoseconds) / 1_000_000_000), tv_nsec: Int(max(0, deadline.nanoseconds) % 1_000_000_000))
    pthread_cond_timedwait(condition, mutex, &time)
}

#endif
