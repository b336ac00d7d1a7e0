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

    /// Whether the mode is one of the common ones; never taken back.
    let isCommon: Atomic<Bool>

    // MARK: Guarded by the loop's lock
    // SAFETY: read and written under that lock only.

    /// Sorted by order, then insertion.
    @exclusivity(unchecked) var observers: ContiguousArray<RunLoop.Observer> = []
    /// Custom sources with a pending signal, in no order.
    @exclusivity(unchecked) var signaled: ContiguousArray<SourceMembership> = []
    @exclusivity(unchecked) var blocks: ContiguousArray<WorkItem> = []
    @exclusivity(unchecked) var performs: ContiguousArray<WorkItem> = []
    /// Slots of the timer queue that nobody uses.
    @exclusivity(unchecked) private var freeTimerSlots: [UInt32] = []
    @exclusivity(unchecked) private var timerSlotCount: UInt32 = 0

    // MARK: Owned by the loop's thread
    // SAFETY: touched on that thread only.

    @exclusivity(unchecked) var timers = TimerQueue()
    /// Nil until the mode asks the kernel for the first time: a mode that has never run costs nothing.
    @exclusivity(unchecked) var poller: Poller?
    /// Performs that were taken from under the lock and have not run yet.
    @exclusivity(unchecked) var performing = WorkFIFO()
    /// Which kind of event step 9 served last.
    @exclusivity(unchecked) var lastServed = EventKind.mainQueue

    init(name: RunLoop.Mode, index: Int, isCommon: Bool) {
        self.name = name
        self.index = index
        self.isCommon = Atomic(isCommon)
    }

    func changePopulation(by change: Int) {
        let new = population.add(change, ordering: .acquiringAndReleasing).newValue
        assert(new >= 0, "an item left a mode that it was not in")
    }

    func takeTimerSlotLocked() -> UInt32 {
        if let slot = freeTimerSlots.popLast() { return slot }
        timerSlotCount += 1
        return timerSlotCount - 1
    }

    func freeTimerSlotLocked(_ slot: UInt32) { freeTimerSlots.append(slot) }

    func insertObserverLocked(_ observer: RunLoop.Observer) {
        let place = observers.firstIndex { $0.order > observer.order } ?? observers.endIndex
        observers.insert(observer, at: place)
        rememberActivitiesLocked()
    }

    func removeObserverLocked(_ observer: RunLoop.Observer) {
        observers.removeAll { $0 === observer }
        rememberActivitiesLocked()
    }

    func removeObserversLocked() {
        observers = []
        rememberActivitiesLocked()
    }

    private func rememberActivitiesLocked() {
        let union = observers.reduce(RunLoop.Activity()) { $0.union($1.activities) }
        observedActivities.store(union.rawValue, ordering: .sequentiallyConsistent)
    }
}

/// What step 9 can serve, one kind a pass.
enum EventKind: Int {
    case timers, ports, mainQueue

    /// The one whose turn comes after this.
    var next: EventKind { EventKind(rawValue: (rawValue + 1) % 3)! }  // 0, 1 and 2 are the raw values
}
