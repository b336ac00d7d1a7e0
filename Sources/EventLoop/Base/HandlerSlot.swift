import Synchronization

/// Retains an item's closures until the item is finished, and passes them to callers without reference counting. Thread-safe. A closure in a variable
/// is retained and released around every call, because the variable might change during the call. That is two locked instructions, as much as all
/// other work for an event. A closure in a constant of an object that the caller keeps alive is not retained. `Handlers` is a closure, or a structure
/// with closures in constants: a closure whose type depends on a type parameter is called through a thunk, a member of a structure is not. Lifecycle
/// of the box: created with the item; released by `take`, or by `clear` when the item is finished, or else with the item.
struct HandlerSlot<Handlers: Sendable>: ~Copyable, Sendable {
    private let box: Atomic<Unmanaged<HandlerBox<Handlers>>?>
    init(_ handlers: Handlers) { box = Atomic(.passRetained(HandlerBox(handlers))) }
    deinit { box.load(ordering: .relaxed)?.release() }

    /// Calls `body` with the closures, unretained; nil after `clear`. The caller holds a use of the rundown, so no other thread clears the slot.
    @inline(__always) borrowing func with<R>(_ body: (HandlerBox<Handlers>) -> R) -> R? {
        guard let box = box.load(ordering: .acquiring) else { return nil }
        return Borrowed(box, keptBy: .use).use { body($0) }
    }

    /// Passes the closures to the first caller, and nil to the later ones: for an item whose closures are called once, and never in `with`.
    borrowing func take() -> Handlers? { box.exchange(nil, ordering: .acquiringAndReleasing)?.takeRetainedValue().handlers }
    var isEmpty: Bool { box.load(ordering: .acquiring) == nil }
    /// Releases the closures, which may hold the last reference to an object of the user's. No-op the second time. Only the caller that ended the
    /// last use of the item's rundown may call it.
    borrowing func clear() { /* DOES CALLOUT */ box.exchange(nil, ordering: .acquiringAndReleasing)?.release() }
}

final class HandlerBox<Handlers: Sendable>: Sendable {
    let handlers: Handlers
    init(_ handlers: Handlers) { self.handlers = handlers }
}

/// Calls `body` when the closure that captures it is released.
final class ReleaseNotifier: Sendable {
    private let body: @Sendable () -> Void
    init(_ body: @escaping @Sendable () -> Void) { self.body = body }
    deinit { body() }
}
