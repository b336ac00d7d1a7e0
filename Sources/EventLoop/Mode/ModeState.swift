// What one mode of one loop holds.

import Synchronization

/// The items of a mode. Made when the first item is added; never removed from its loop.
///
/// No access spans a callout, so overlapping accesses are not looked for at run time.
final class ModeState: @unchecked Sendable {
    // SAFETY: constants and atomics, what the loop's lock guards, and what its thread owns, in this order.

    let name: RunLoop.Mode
    let index: Int

    // MARK: Read by any thread, written under the loop's lock

    /// How many sources, timers, keep-alives and queued closures keep the mode from being empty.
    let population = Atomic<Int>(0)
    /// How many of the sources are the kernel's to signal.
    let watchedSources = Atomic<Int>(0)
    /// The union of what the observers want to be told.
    let observedActivities = Atomic<UInt>(0)
    /// Counts the changes of `observers`.
    let observersVersion = Atomic<UInt64>(0)

    /// Counts what was queued for the mode: at the same count, what was empty is empty.
    let queueings = Atomic<UInt64>(0)

    /// Whether the mode is one of the common ones; never taken back.
    let isCommon: Atomic<Bool>

    // MARK: Guarded by the loop's lock
    // SAFETY: read and written under that lock only.

    /// Sorted by order, then insertion.
    @exclusivity(unchecked) var observers: ContiguousArray<RunLoop.Observer> = []
    /// Custom sources with a pending signal, in no order.
    @exclusivity(unchecked) var signaled: ContiguousArray<SourceMembership> = []
    /// Ports that have messages, and some that had. They are served in turn, from `nextMessaged` on.
    @exclusivity(unchecked) var messaged: ContiguousArray<SourceMembership> = []
    @exclusivity(unchecked) var nextMessaged = 0
    @exclusivity(unchecked) var blocks = WorkQueues()
    @exclusivity(unchecked) var performs = WorkQueues()
    /// Slots of the timer queue that nobody uses.
    @exclusivity(unchecked) private var freeTimerSlots = PlainList<UInt32>()
    @exclusivity(unchecked) private var timerSlotCount: UInt32 = 0

    // MARK: Owned by the loop's thread
    // SAFETY: touched on that thread only.

    /// Without a base, sources are served from this place in the mode's list on.
    @exclusivity(unchecked) var nextPolled = 0

    @exclusivity(unchecked) var timers = TimerQueue()
    /// Nil until the mode asks the kernel for the first time: a mode that has never run costs nothing.
    var poller: Poller? {
        get { pollerReference?.takeUnretainedValue() }
        set {
            let old = pollerReference
            pollerReference = newValue.map { .passRetained($0) }
            old?.release()
        }
    }

    /// The same for the steps of a pass, which need no count: nobody takes a base away while its loop runs.
    @exclusivity(unchecked) private(set) var pollerReference: Unmanaged<Poller>?
    /// Sources that have left the base until the mode runs; each leaves the list before its membership ends.
    @exclusivity(unchecked) var parked: [ObjectIdentifier: Unmanaged<SourceMembership>] = [:]
    /// Performs that were taken from under the lock and have not run yet.
    @exclusivity(unchecked) var performing = WorkQueue()
    /// The observers as the owner has seen them, and at which version.
    @exclusivity(unchecked) var seenObservers: (list: ContiguousArray<RunLoop.Observer>, version: UInt64) = ([], 0)
    /// The counts of queueings, the mode's own and the loop's for the common modes, at which nothing waited for the mode.
    @exclusivity(unchecked) var emptyAt: (own: UInt64, common: UInt64) = (.max, .max)
    /// Which kind of event step 9 served last.
    @exclusivity(unchecked) var lastServed = EventKind.mainQueue

    init(name: RunLoop.Mode, index: Int, isCommon: Bool) {
        self.name = name
        self.index = index
        self.isCommon = Atomic(isCommon)
    }

    deinit { pollerReference?.release() }

    /// Under the loop's lock, so a load and a store will do.
    @inline(__always)
    func changePopulationLocked(by change: Int) {
        let new = population.load(ordering: .relaxed) &+ change
        assert(new >= 0, "an item left a mode that it was not in")
        population.store(new, ordering: .releasing)
    }

    @inline(__always)
    func countQueueingLocked() { queueings.store(queueings.load(ordering: .relaxed) &+ 1, ordering: .releasing) }

    func takeTimerSlotLocked() -> UInt32 {
        if let slot = freeTimerSlots.popLast() { return slot }
        timerSlotCount += 1
        return timerSlotCount - 1
    }

    func freeTimerSlotLocked(_ slot: UInt32) { freeTimerSlots.append(slot) }

    func insertObserverLocked(_ observer: RunLoop.Observer) {
        let place = observers.firstIndex { $0.order > observer.order } ?? observers.endIndex
        observers.insert(observer, at: place)
        observersDidChangeLocked()
    }

    func removeObserverLocked(_ observer: RunLoop.Observer) {
        observers.removeAll { $0 === observer }
        observersDidChangeLocked()
    }

    func removeObserversLocked() {
        observers = []
        observersDidChangeLocked()
    }

    private func observersDidChangeLocked() {
        observersVersion.store(observersVersion.load(ordering: .relaxed) &+ 1, ordering: .releasing)
        let union = observers.reduce(RunLoop.Activity()) { $0.union($1.activities) }
        observedActivities.store(union.rawValue, ordering: .sequentiallyConsistent)
    }
}

/// What step 9 can serve, one kind a pass.
enum EventKind: Int {
    case timers, ports, messages, mainQueue

    /// The one whose turn comes after this.
    var next: EventKind { EventKind(rawValue: (rawValue + 1) % 4)! }  // 0 to 3 are the raw values
}
