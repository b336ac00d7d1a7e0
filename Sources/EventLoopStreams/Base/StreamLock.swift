// The lock of a stream.
//
// The system's mutex and not `Synchronization.Mutex`: ThreadSanitizer cannot see into a `Mutex`, and users would get reports of races that
// do not exist.
//
// Lifecycle of the C memory: allocated with the lock, freed with it. A mutex must not move.

#if canImport(Glibc)
import Glibc
#elseif canImport(Musl)
import Musl
#else
import Darwin
#endif

/// A mutex without a value.
struct StreamMutex: ~Copyable, @unchecked Sendable {
    // SAFETY: a constant; the mutex that it points to may be used by any thread.
    private let mutex = UnsafeMutablePointer<pthread_mutex_t>.allocate(capacity: 1)

    init() { pthread_mutex_init(mutex, nil) }

    deinit {
        pthread_mutex_destroy(mutex)
        mutex.deallocate()
    }

    @inline(__always)
    borrowing func lock() { pthread_mutex_lock(mutex) }

    @inline(__always)
    borrowing func unlock() { pthread_mutex_unlock(mutex) }
}

/// A value and its lock.
package final class StreamLock<Value>: @unchecked Sendable {
    // SAFETY: `value` is accessed only under `mutex`.
    private var value: Value
    private let mutex = StreamMutex()

    package init(_ value: sending Value) { self.value = value }

    package func withLock<R>(_ body: (inout Value) throws -> R) rethrows -> R {
        mutex.lock()
        defer { mutex.unlock() }
        return try body(&value)
    }
}
