// Closures that wait to be performed: blocks and the perform family.

import Synchronization

/// A queued closure. `sequence` is its place among all that were queued on the loop.
struct WorkItem: Sendable {
    var sequence: UInt64
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
struct WorkQueues: ~Copyable, Sendable {
    var common = WorkQueue()
    var mixed: ContiguousArray<MixedWorkItem> = []
}
