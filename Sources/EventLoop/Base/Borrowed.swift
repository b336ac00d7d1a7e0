/// A reference to an object that something else keeps alive, used without counting: each count is a locked instruction, and a pass would make dozens.
/// A stored `Unmanaged` owns a reference; a `Borrowed` never does. Sound while the keeper keeps the object, which the code that makes the borrow has
/// to know: `keptBy` names the keeper. A borrow may span a callout only if the keeper outlasts whatever a handler can do: remove and invalidate
/// items, run the loop, end it, release what the program holds.
struct Borrowed<Object: AnyObject> {
    private let reference: Unmanaged<Object>
    @inline(__always) init(_ object: Object, keptBy keeper: Keeper) { reference = .passUnretained(object) }
    @inline(__always) init(_ owned: Unmanaged<Object>, keptBy keeper: Keeper) { reference = owned }
    /// The object with an address, as `address` returned it.
    @inline(__always) init(at address: UnsafeRawPointer, keptBy keeper: Keeper) { reference = .fromOpaque(address) }
    /// Calls `body` with the object, uncounted.
    @inline(__always) func use<R>(_ body: (Object) throws -> R) rethrows -> R { try reference._withUnsafeGuaranteedRef(body) }
    /// The object, counted.
    @inline(__always) var object: Object { reference.takeUnretainedValue() }
    @inline(__always) var address: UnsafeMutableRawPointer { reference.toOpaque() }
}

// SAFETY: as for the object itself.
extension Borrowed: @unchecked Sendable where Object: Sendable {}

/// What keeps a borrowed object alive.
enum Keeper {
    /// The loop, to its end: its modes, their pollers, the frames of its runs, its observation. Its thread and its caller keep it. Spans callouts.
    case loop
    /// The batch of the pass, or a snapshot of a list: emptied after its last call, one item at a time. Spans callouts.
    case batch
    /// A use of the item, which its membership ends after the handler has returned. Spans callouts.
    case use
    /// The membership, which the caller holds: it retains its source and its loop. Spans callouts.
    case membership
    /// The caller holds a reference until the call returns. Spans callouts.
    case caller
    /// The thread, until it ends: its loop. Spans callouts.
    case thread
    /// The poller's own events, which are taken off the base before it is freed.
    case event
    /// What has the address: a registration, a slot of a timer queue, a list of parked sources, the registry of loops. Its owner gives the address up
    /// before it releases the object: the loop's list has it until then, or a queued change. Does not span callouts.
    case record
    /// A collection or a field that does not change during the call. Does not span callouts.
    case list
}
