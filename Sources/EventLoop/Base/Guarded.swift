// A value and the lock that guards it.
//
// Lifecycle of the storage: allocated with the owner, freed with it.

internal import CPlatform

/// A value that is reached under its lock only. The lock is not recursive, and never held across a callout.
struct Guarded<Value>: ~Copyable, @unchecked Sendable {
    // SAFETY: `storage` is touched between `cplatform_lock` and `cplatform_unlock` only.
    private struct Storage {
        var lock = cplatform_lock()
        var value: Value
    }
    private let storage: UnsafeMutablePointer<Storage>

    init(_ value: sending Value) {
        storage = .allocate(capacity: 1)
        storage.initialize(to: Storage(value: value))
    }

    deinit {
        storage.deinitialize(count: 1)
        storage.deallocate()
    }

    /// What `body` returns is handed out of the lock, so it is a value of its own or safe to share.
    @inline(__always)
    borrowing func withLock<R>(_ body: (inout Value) throws -> R) rethrows -> R {
        cplatform_lock(UnsafeMutableRawPointer(storage).assumingMemoryBound(to: cplatform_lock.self))
        defer { cplatform_unlock(UnsafeMutableRawPointer(storage).assumingMemoryBound(to: cplatform_lock.self)) }
        return try body(&storage.pointee.value)
    }
}
