// Items whose last use has ended, until the owner may call out.

/// An item whose last callout is outstanding.
enum FinishedItem {
    case source(RunLoop.Source)
    case timer(RunLoop.Timer)
    case observer(RunLoop.Observer)
}

/// Items whose last use has ended; their last callouts are made at the next safe point. Owning thread only.
struct EndedItems {
    private var items: ContiguousArray<FinishedItem> = []
    /// Observers that have left the loop in their own call: their uses end when it returns.
    private var observersInCall: [RunLoop.Observer] = []

    var isEmpty: Bool { items.isEmpty }

    mutating func append(_ item: FinishedItem) { items.append(item) }

    mutating func takeAll() -> ContiguousArray<FinishedItem> {
        defer { items = [] }
        return items
    }

    var hasObserversInCall: Bool { !observersInCall.isEmpty }

    mutating func hold(_ observer: RunLoop.Observer) { observersInCall.append(observer) }

    /// Takes one use of an observer whose call has returned. False if there is none.
    mutating func takeHeld(_ observer: RunLoop.Observer) -> Bool {
        guard let place = observersInCall.firstIndex(where: { $0 === observer }) else { return false }
        observersInCall.remove(at: place)
        return true
    }
}
