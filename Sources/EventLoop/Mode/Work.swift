// Closures that wait to be performed: blocks and the perform family.

import Synchronization

/// A queued closure. `sequence` is its place among all that were queued on the loop.
struct WorkItem: Sendable {
    let sequence: UInt64
    let body: @Sendable () -> Void
    /// Who waits for it, and must be told when it is dropped.
    let waiter: (any WorkWaiter)?
}

/// Somebody who waits for a queued closure.
protocol WorkWaiter: AnyObject, Sendable {
    /// False once the closure was withdrawn: it is passed over.
    var isWaiting: Bool { get }

    /// The loop has ended; the closure will not be performed.
    func workWasDropped()
}

/// A queued closure for several modes by name. It stands in a list of its own, so that it is nowhere twice.
struct MixedWorkItem: Sendable {
    let item: WorkItem
    let modes: ModeSet
    let isCommon: Bool

    func isEligible(in mode: ModeState) -> Bool { modes.contains(mode.index) || (isCommon && mode.isCommon.load(ordering: .acquiring)) }
}

/// One kind of work under the lock: by mode (in `ModeState`), for the common modes, and for several.
struct WorkQueues: Sendable {
    var common: ContiguousArray<WorkItem> = []
    var mixed: ContiguousArray<MixedWorkItem> = []
}

/// First in, first out, in contiguous memory that is used again.
struct WorkFIFO: Sendable {
    private var items: ContiguousArray<WorkItem> = []
    private var head = 0

    var isEmpty: Bool { head == items.count }
    var first: WorkItem? { isEmpty ? nil : items[head] }
    var firstSequence: UInt64 { isEmpty ? .max : items[head].sequence }

    /// Takes all that `source` has, behind what is here; `source` keeps memory to fill again.
    mutating func takeAll(from source: inout ContiguousArray<WorkItem>) {
        if source.isEmpty { return }
        if isEmpty {
            items.removeAll(keepingCapacity: true)
            head = 0
            swap(&items, &source)
        } else {
            items.append(contentsOf: source)
            source.removeAll(keepingCapacity: true)
        }
    }

    mutating func popFirst() -> WorkItem {
        defer { head += 1 }
        let item = items[head]
        // The closure must not outlive its call in here.
        items[head] = WorkFIFO.spent
        return item
    }

    mutating func removeAll() -> [WorkItem] {
        defer { self = WorkFIFO() }
        return Array(items[head...])
    }

    /// What takes the place of an item that is being performed.
    static let spent = WorkItem(sequence: 0, body: {}, waiter: nil)
}
