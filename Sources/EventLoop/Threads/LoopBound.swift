// A value that only one loop's thread touches.

/// A value that only one loop's thread touches, carried into handlers; any other thread traps with a clear message.
///
/// The loop's thread releases the value, whichever thread drops the object. Once the loop has ended, the thread that drops the object does.
public final class LoopBound<Value>: @unchecked Sendable {
    // SAFETY: `box` is opened on the thread of `loop` only, which every accessor checks; `deinit` sends it there.
    private let box: Box
    private let loop: RunLoop

    private final class Box: LoopReleased, @unchecked Sendable {
        // SAFETY: as `LoopBound.box`. Nil once the value has been released.
        var value: Value?
        init(_ value: consuming sending Value) { self.value = value }

        func release() { value = nil }
    }

    /// Hands `value` over to `loop`'s thread.
    public init(_ value: sending Value, to loop: RunLoop) {
        box = Box(value)
        self.loop = loop
    }

    /// Binds to the calling thread's loop.
    public init(_ value: Value) {
        nonisolated(unsafe) let own = value  // SAFETY: the caller is on the thread that the value is bound to
        box = Box(own)
        loop = RunLoop.threadsLoop()
    }

    deinit {
        if loop.belongsToParentProcess || loop.isIsolatingCaller { return }
        // The loop's thread empties the box. Sending the last reference to the box would not do: this thread holds one until it returns.
        _ = loop.releaseOnThread(box)
    }

    /// On the loop's thread only.
    public var value: Value {
        get {
            preconditionIsolated("value")
            return box.value!  // it is emptied after the last accessor
        }
        set {
            preconditionIsolated("value")
            box.value = newValue
        }
    }

    /// Changes the value in place. On the loop's thread only.
    public func withValue<R>(_ body: (inout Value) throws -> R) rethrows -> R {
        preconditionIsolated("withValue")
        return try body(&box.value!)  // it is emptied after the last accessor
    }

    private func preconditionIsolated(_ member: StaticString) {
        loop.preconditionNotForked()
        precondition(
            loop.isIsolatingCaller,
            "LoopBound.\(member) was used on another thread than the run loop's own, where the value lives; hand the work over with perform"
        )
    }
}
