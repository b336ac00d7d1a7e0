// A value and the lock that guards it.
//
// Lifecycle of the storage: allocated with the owner, freed with it.

internal import CPlatform

/// A value that is reached under its lock only. The lock is not recursive, and never held across a callout.
struct ForkAwareMutex<Value: ~Copyable>: ~Copyable, @unchecked Sendable {
    // SAFETY: `value` is touched between `cplatform_lock` and `cplatform_unlock` only.
    private let value: UnsafeMutablePointer<Value>

    init(_ value: consuming sending Value) {
        let memory = UnsafeMutableRawPointer.allocate(
            byteCount: Self.lockOffset + MemoryLayout<cplatform_lock>.size,
            alignment: max(MemoryLayout<Value>.alignment, MemoryLayout<cplatform_lock>.alignment))
        self.value = memory.initializeMemory(as: Value.self, to: value)
        (memory + Self.lockOffset).initializeMemory(as: cplatform_lock.self, to: cplatform_lock())
    }

    deinit {
        value.deinitialize(count: 1)
        UnsafeMutableRawPointer(value).deallocate()
    }

    /// What `body` returns is handed out of the lock, so it is a value of its own or safe to share.
    @inline(__always)
    borrowing func withLock<R>(_ body: (inout Value) throws -> R) rethrows -> R {
        cplatform_lock(lock)
        defer { cplatform_unlock(lock) }
        return try body(&value.pointee)
    }

    /// For a value that is to be moved in: a closure that captured it would count its references twice more. `unlock` must follow.
    @inline(__always)
    borrowing func lockValue() -> UnsafeMutablePointer<Value> {
        cplatform_lock(lock)
        return value
    }

    @inline(__always)
    borrowing func unlock() { cplatform_unlock(lock) }

    /// The value, for the caller who has called `lockValue`.
    borrowing func lockedValue() -> UnsafeMutablePointer<Value> { value }

    /// As `withLock`; nil in a child of fork when another thread held the lock at the fork: nobody unlocks it there, and what it guards is
    /// half changed. For what a child may do to its parent's objects: to end its own use of them. `withLock` traps in such a child.
    @inline(__always)
    borrowing func withLockUnlessInherited<R>(_ body: (inout Value) throws -> R) rethrows -> R? {
        guard cplatform_lock_unless_inherited(lock) else { return nil }
        defer { cplatform_unlock(lock) }
        return try body(&value.pointee)
    }

    /// As `lockValue`; nil where `withLockUnlessInherited` is.
    @inline(__always)
    borrowing func lockValueUnlessInherited() -> UnsafeMutablePointer<Value>? { cplatform_lock_unless_inherited(lock) ? value : nil }

    /// Behind the value: ThreadSanitizer takes an access to the value for one to its first byte.
    private static var lockOffset: Int {
        let alignment = MemoryLayout<cplatform_lock>.alignment
        return (MemoryLayout<Value>.size + alignment - 1) / alignment * alignment
    }

    private var lock: UnsafeMutablePointer<cplatform_lock> {
        (UnsafeMutableRawPointer(value) + Self.lockOffset).assumingMemoryBound(to: cplatform_lock.self)
    }
}
