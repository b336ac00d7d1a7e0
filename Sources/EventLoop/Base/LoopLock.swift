internal import CPlatform

/// A value that can be accessed only under its lock, which is not recursive and never held across a callout. Like `Synchronization.Mutex`, but the
/// lock knows the process of the thread that holds it (decisions 16 and 24). Lifecycle of the storage: allocated by init, freed by deinit.
package struct LoopLock<Value: ~Copyable>: ~Copyable, @unchecked Sendable {
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
    @inline(__always) package borrowing func withLock<R>(_ body: (inout Value) throws -> R) rethrows -> R {
        cplatform_lock(lock)
        defer { cplatform_unlock(lock) }
        return try body(&value.pointee)
    }

    /// Locks until `unlock`, for a caller that moves an object into the value: a closure would retain and release the object once more.
    @inline(__always) package borrowing func lockValue() -> UnsafeMutablePointer<Value> {
        cplatform_lock(lock)
        return value
    }

    @inline(__always) package borrowing func unlock() { cplatform_unlock(lock) }
    /// The value, for a caller that has called `lockValue`.
    package borrowing func lockedValue() -> UnsafeMutablePointer<Value> { value }
    /// Whether some thread holds the lock: for assertions.
    package var isHeld: Bool { cplatform_lock_is_held(lock) }

    /// Like `withLock`, but nil where `withLock` traps: if a thread of the parent process holds the lock. For calls that end the use of an object.
    @inline(__always) package borrowing func withLockIfOwn<R>(_ body: (inout Value) throws -> R) rethrows -> R? {
        guard cplatform_lock_if_own(lock) else { return nil }
        defer { cplatform_unlock(lock) }
        return try body(&value.pointee)
    }

    /// Like `lockValue`; nil in the cases in which `withLockIfOwn` returns nil.
    @inline(__always) package borrowing func lockValueIfOwn() -> UnsafeMutablePointer<Value>? { cplatform_lock_if_own(lock) ? value : nil }

    /// The lock is behind the value, also behind one without a size: ThreadSanitizer attributes an access to the whole value to its first byte.
    private static var lockOffset: Int {
        let alignment = MemoryLayout<cplatform_lock>.alignment
        return (max(MemoryLayout<Value>.size, 1) + alignment - 1) / alignment * alignment
    }

    private var lock: UnsafeMutablePointer<cplatform_lock> {
        (UnsafeMutableRawPointer(value) + Self.lockOffset).assumingMemoryBound(to: cplatform_lock.self)
    }
}

extension LoopLock {
    /// Replaces the value and returns the former one, for the end of what it stands for. Nil, with nothing replaced, where `withLockIfOwn` is nil.
    package borrowing func exchange(_ new: Value) -> Value? {
        var value = new
        return withLockIfOwn { swap(&$0, &value) }.map { value }
    }
}
