// Where an item keeps the handler that it calls.
//
// Lifecycle of the callee: made with the item, released by `clear` when the item has ended, else with the item.

/// Holds a handler from an item's making to its end, and lends it without counting references.
///
/// A closure in a variable is retained and released around every call, because the variable might change meanwhile: two locked
/// instructions, as much as the whole serving of an event. In a constant of an object that somebody holds it is not. `Callee` is a final
/// class of the item's own with the handler in a constant: behind a type parameter the closure would be called through a thunk.
struct HandlerSlot<Callee: AnyObject>: ~Copyable {
    private var callee: Unmanaged<Callee>?

    init(_ callee: Callee) { self.callee = .passRetained(callee) }
    deinit { callee?.release() }

    /// Lends the object with the handler; nil once it was let go of. Whoever calls this keeps the item from ending meanwhile.
    @inline(__always)
    borrowing func with<R>(_ body: (Callee) -> R) -> R? { callee?._withUnsafeGuaranteedRef(body) }

    /// Lets go of the handler. A second call does nothing.
    mutating func clear() {
        let last = callee
        callee = nil
        // Last: the end of what the handler holds may be a callout.
        last?.release()
    }
}
