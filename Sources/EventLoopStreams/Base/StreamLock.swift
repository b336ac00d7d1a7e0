// The lock of a stream.

import EventLoop

/// A mutex without a value.
struct StreamMutex: ~Copyable, Sendable {
    private let mutex = LoopLock<Void>(())

    @inline(__always)
    borrowing func lock() { _ = mutex.lockValue() }

    @inline(__always)
    borrowing func unlock() { mutex.unlock() }

    /// Whether some thread holds it: for assertions.
    var isHeld: Bool { mutex.isHeld }
}

/// A value and its lock.
package final class StreamLock<Value>: Sendable {
    private let mutex: LoopLock<Value>

    package init(_ value: sending Value) { mutex = LoopLock(value) }

    package func withLock<R>(_ body: (inout Value) throws -> R) rethrows -> R { try mutex.withLock(body) }
}
