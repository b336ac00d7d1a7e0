// What the TLS engine needs of the module EventLoop, so that the fuzzer compiles without the rest of it. Same names, same cases.

public enum RunLoop {
    public enum SourceError: Error, Sendable, Equatable {
        case loopEnded
        case system(operation: String, errno: Int32)
    }
}

/// The fuzzer has one thread, and does not fork.
package final class LoopLock<Value>: @unchecked Sendable {
    // SAFETY: only the fuzzer's thread.
    private var value: Value
    package init(_ value: sending Value) { self.value = value }
    package func withLock<R>(_ body: (inout Value) throws -> R) rethrows -> R { try body(&value) }
}
