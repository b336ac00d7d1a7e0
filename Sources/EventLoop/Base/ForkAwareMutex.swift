// A value and the lock that guards it.
//
// Lifecycle of the storage: allocated by init, freed by deinit.

internal import CPlatform

/// A value that can be accessed only under its lock. Like `Synchronization.Mutex`, except that a child of fork can distinguish a lock of
/// its own from one that a thread of the parent held at the fork. The lock is not recursive, and is never held across a callout.
package struct ForkAwareMutex<Value: ~Copyable>: ~Copyable, @unchecked Sendable {
    // SAFETY: `value` is accessed only between `cplatform_lock` and `cplatform_unlock`.
    private let value: UnsafeMutablePointer<Value>

    package init(_ value: consuming sending Value) {
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

    /// Calls `body` under the lock. The result leaves the lock, so it must not share unguarded state with the value.
    @inline(__always)
    package borrowing func withLock<R>(_ body: (inout Value) throws -> R) rethrows -> R {
        cplatform_lock(lock)
        defer { cplatform_unlock(lock) }
        return try body(&value.pointee)
    }

    /// Locks, for a caller that moves an object into the value: a closure would capture the object, which costs another retain and release.
    /// The caller must call `unlock`.
    @inline(__always)
    package borrowing func lockValue() -> UnsafeMutablePointer<Value> {
        cplatform_lock(lock)
        return value
    }

    @inline(__always)
    package borrowing func unlock() { cplatform_unlock(lock) }

    /// The value, for a caller that has called `lockValue`.
    package borrowing func lockedValue() -> UnsafeMutablePointer<Value> { value }

    /// Like `withLock`, except that it returns nil in a child of fork if another thread held the lock at the fork. No thread will unlock it
    /// in the child, and its value may be half changed. For the calls by which a child ends its use of the parent's objects; `withLock`
    /// traps there.
    @inline(__always)
    package borrowing func withLockUnlessInherited<R>(_ body: (inout Value) throws -> R) rethrows -> R? {
        guard cplatform_lock_unless_inherited(lock) else { return nil }
        defer { cplatform_unlock(lock) }
        return try body(&value.pointee)
    }

    /// Like `lockValue`; nil in the cases in which `withLockUnlessInherited` returns nil.
    @inline(__always)
    package borrowing func lockValueUnlessInherited() -> UnsafeMutablePointer<Value>? {
        cplatform_lock_unless_inherited(lock) ? value : nil
    }

    /// The lock is behind the value, because ThreadSanitizer attributes an access to the whole value to its first byte.
    private static var lockOffset: Int {
        let alignment = MemoryLayout<cplatform_lock>.alignment
        return (MemoryLayout<Value>.size + alignment - 1) / alignment * alignment
    }

    private var lock: UnsafeMutablePointer<cplatform_lock> {
        (UnsafeMutableRawPointer(value) + Self.lockOffset).assumingMemoryBound(to: cplatform_lock.self)
    }
}
