/// A value that only one loop's thread may access, for use in handlers. An access from any other thread traps with a message.
///
/// Whichever thread releases the object, the loop's thread releases the value. After the loop has ended, the thread that releases the object does.
///
/// A closure belongs into a structure: `struct Handler { let call: () -> Void }` and `LoopBound<Handler>`. If the value is a closure, or an optional
/// or a tuple of closures, each `withValue` has Swift wrap it in more closures, until its calls fill the stack. `Mutex` is no different.
public final class LoopBound<Value>: @unchecked Sendable {
    // SAFETY: `box` is accessed only on the thread of `loop`, which every accessor checks. `deinit` sends it to that thread.
    private let box: Parcel<Value>
    private let loop: RunLoop

    /// Binds `value` to `loop`'s thread.
    public init(_ value: sending Value, to loop: RunLoop) {
        box = Parcel(value)
        self.loop = loop
    }

    /// Binds to the calling thread's loop.
    public init(_ value: Value) {
        nonisolated(unsafe) let own = value  // SAFETY: the caller is on the thread that the value is bound to
        box = Parcel(own)
        loop = RunLoop.threadsLoop()
    }

    deinit {
        if loop.isIsolatingCaller { return }
        // The loop's thread empties the box: the last reference to the box cannot be sent there, because this thread holds one until it returns.
        loop.releaseOnThread { [box] in box.value = nil }
    }

    /// On the loop's thread only.
    public var value: Value {
        get {
            preconditionIsolated("value")
            return box.value!  // the box is emptied after the last access
        }
        set {
            preconditionIsolated("value")
            box.value = newValue
        }
    }

    /// Changes the value in place. On the loop's thread only. A closure belongs into a structure: see `LoopBound`.
    public func withValue<R, Failure>(_ body: (inout Value) throws(Failure) -> R) throws(Failure) -> R {
        preconditionIsolated("withValue")
        return try body(&box.value!)  // the box is emptied after the last access
    }

    private func preconditionIsolated(_ member: StaticString) {
        loop.shared.preconditionOurs()
        precondition(
            loop.isIsolatingCaller,
            "LoopBound.\(member) was called on another thread than the run loop's; use perform to run the code on the loop's thread")
    }
}
