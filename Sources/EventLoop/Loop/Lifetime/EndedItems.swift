/// What the owner finishes at the next safe point.
enum FinishedItem: Sendable {
    case source(RunLoop.Source)
    case timer(RunLoop.Timer)
    case observer(RunLoop.Observer)
    /// The item of a change that was carried out. The queue may have held the last reference, and a deinit is a callout.
    case applied(any AnyObject & Sendable)
}

/// Items whose last use has ended; their last callouts are made at the next safe point, one at a time, so that a run nested in one of them
/// makes the others. Owning thread only.
struct EndedItems: ~Copyable {
    private var items = Deque<FinishedItem>()
    /// Observers that have left the loop in their own call: their uses end when it returns.
    private var observersInCall: [RunLoop.Observer] = []

    var isEmpty: Bool { items.isEmpty }

    mutating func append(_ item: FinishedItem) { items.append(item) }

    /// The next item, which stays on the list until `removeFirst`.
    var first: FinishedItem? { items.withFirst { copy $0 } }

    mutating func removeFirst() { _ = items.popFirst() }

    var hasObserversInCall: Bool { !observersInCall.isEmpty }
    var allObserversInCall: [RunLoop.Observer] { observersInCall }

    mutating func hold(_ observer: RunLoop.Observer) { observersInCall.append(observer) }

    /// Takes one use of an observer whose call has returned. False if there is none.
    mutating func takeHeld(_ observer: RunLoop.Observer) -> Bool {
        guard let index = observersInCall.firstIndex(where: { $0 === observer }) else { return false }
        observersInCall.remove(at: index)
        return true
    }
}
