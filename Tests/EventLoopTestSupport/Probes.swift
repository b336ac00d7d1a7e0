// Objects that a closure captures, so that a test can observe its calls and its release.

import Synchronization

public final class Once: Sendable {
    private let used = Atomic(false)
    public init() {}
    public func isFirst() -> Bool { !used.exchange(true, ordering: .relaxed) }
}

public final class Counter: Sendable {
    private let count = Atomic(0)
    public init() {}
    public var value: Int { count.load(ordering: .sequentiallyConsistent) }
    @discardableResult
    public func increment() -> Int { count.wrappingAdd(1, ordering: .sequentiallyConsistent).newValue }
}

/// A weak reference to an object that a closure needs but that is created after the closure.
public final class WeakReference<Object: AnyObject & Sendable>: Sendable {
    private struct Holder { weak var object: Object? }
    private let holder = Locked(Holder())
    public init(_ object: Object? = nil) { value = object }
    public var value: Object? {
        get { holder.withLock { $0.object } }
        set { holder.withLock { $0.object = newValue } }
    }
}

/// Calls a closure when it is released, on the thread that releases it.
public final class Canary: Sendable {
    private let onRelease: @Sendable () -> Void
    public init(_ onRelease: @escaping @Sendable () -> Void = {}) { self.onRelease = onRelease }
    deinit { onRelease() }
    /// Does nothing. A closure calls it to capture the canary.
    public func touch() {}
}
