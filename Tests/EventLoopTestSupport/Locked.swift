// Values that several threads change.
//
// The lock is the system's and not `Synchronization.Mutex`: ThreadSanitizer cannot see into a `Mutex`, and reports races that do not exist.

#if canImport(Glibc)
import Glibc
#else
import Darwin
#endif

/// A value and its lock.
public final class Locked<Value>: @unchecked Sendable {
    // SAFETY: `storage` is accessed only under `lock`; `lock` does not move, and lives as long as the object.
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

/// A value that handlers change on any thread.
public final class Box<Value: Sendable>: Sendable {
    private let storage: Locked<Value>

    public init(_ value: Value) { storage = Locked(value) }

    public var value: Value {
        get { storage.withLock { $0 } }
        set {
            // The old value is released outside the lock, because its deinit may run code of a test.
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
    /// Increments the count, and returns the new count.
    @discardableResult
    public func increment() -> Int {
        change { count in
            count += 1
            return count
        }
    }
}
