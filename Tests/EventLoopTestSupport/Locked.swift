// Values that several threads change.
//
// The lock is the system's and not `Synchronization.Mutex`: ThreadSanitizer cannot see into that one, and reports races where none are.

#if canImport(Glibc)
import Glibc
#else
import Darwin
#endif

/// A value and its lock.
public final class Locked<Value>: @unchecked Sendable {
    // SAFETY: `storage` is touched under `lock` only; `lock` does not move, and lives as long as the object.
    private var storage: Value
    private let lock = UnsafeMutablePointer<pthread_mutex_t>.allocate(capacity: 1)

    public init(_ value: sending Value) {
        storage = value
        pthread_mutex_init(lock, nil)
    }

    deinit {
        pthread_mutex_destroy(lock)
        lock.deallocate()
    }

    public func withLock<R>(_ body: (inout Value) throws -> R) rethrows -> R {
        pthread_mutex_lock(lock)
        defer { pthread_mutex_unlock(lock) }
        return try body(&storage)
    }
}

/// A value that handlers change, on whatever thread.
public final class Box<Value: Sendable>: Sendable {
    private let storage: Locked<Value>

    public init(_ value: Value) { storage = Locked(value) }

    public var value: Value {
        get { storage.withLock { $0 } }
        set {
            // The old value is released after the lock: its deinit may be a test's.
            let old = storage.withLock { value in
                defer { value = newValue }
                return value
            }
            withExtendedLifetime(old) {}
        }
    }

    @discardableResult
    public func change<R: Sendable>(_ body: @Sendable (inout Value) -> R) -> R { storage.withLock { body(&$0) } }
}

extension Box where Value == Int {
    /// Counts up, and returns the new count.
    @discardableResult
    public func increment() -> Int {
        change { count in
            count += 1
            return count
        }
    }
}
