import Synchronization

/// The items of a mode, and, as `ClosureQueues`, the closures that wait for it. Made when the first item is added; never removed from its loop. No
/// access to `locked` or `owned` spans a callout, so the run-time check for overlapping accesses is off.
final class ModeState: ClosureQueues, @unchecked Sendable {
    // SAFETY: constants and atomics, then what the loop's lock guards (`locked`), then what its thread owns (`owned`).
    let name: RunLoop.Mode
    let nameBits: (UInt64, UInt64)
    let index: Int

    // MARK: Read by any thread, written under the loop's lock
    /// How many of the sources the kernel watches.
    let watchedSources = Atomic<Int>(0)
    /// Whether the mode is one of the common ones; never taken back.
    let isCommon: Atomic<Bool>
    let observed = ObservedActivities()
    private let hasGuests = Atomic<Bool>(false)

    // SAFETY: read and written under the loop's lock only.
    @exclusivity(unchecked) var locked = Locked()
    // SAFETY: touched on the loop's thread only.
    @exclusivity(unchecked) var owned = Owned()

    struct Locked: ~Copyable {
        /// See ModeObservers.swift, which alone changes it.
        var observers: ContiguousArray<RunLoop.Observer> = []
        var signaled = SignaledSources()
        var messaged = MessagedPorts()
        var timerSlots = TimerSlots()
        fileprivate(set) var guestLoops: ContiguousArray<SourceMembership> = []
    }

    struct Owned: ~Copyable {
        /// Without a base, sources are served from this position in the mode's list on.
        var nextPolled = 0
        var timers = TimerQueue()
        var observerSnapshot = ObserverSnapshot()
        /// Sources that have left the base until the mode runs; each leaves the list before its membership ends.
        var parked: [ObjectIdentifier: Borrowed<SourceMembership>] = [:]
        /// The counts of queueings, the mode's own and the common modes', at which nothing waited for the mode.
        var emptyAt: (own: UInt64, common: UInt64) = (.max, .max)
        var lastServed = EventKind.mainQueue
        /// When the first guest loop wants to be called, as far as it said when it was asked last; `Int64.max` for never.
        var nextGuestCall = Int64.max
        /// A step has begun after a sleep in its host, and has not looked yet which guest loops are due.
        var hasSleptInHost = false
        /// Nil until the mode asks the kernel for the first time: a mode that has never run costs nothing.
        var poller: Poller? { didSet { pollerReference = poller.map { Borrowed($0, keptBy: .loop) } } }
        /// The same for the steps of a pass, which need no count: nobody takes a base away while its loop runs.
        private(set) var pollerReference: Borrowed<Poller>?
    }

    init(name: RunLoop.Mode, index: Int, isCommon: Bool) {
        self.name = name
        nameBits = name.nameBits
        self.index = index
        self.isCommon = Atomic(isCommon)
    }

    @inline(__always) func changeWatchedLocked(by change: Int) {
        // The lock orders the writes.
        watchedSources.store(watchedSources.load(ordering: .relaxed) + change, ordering: .releasing)
    }

    // MARK: Guest loops
    @inline(__always) var hasGuestLoops: Bool { hasGuests.load(ordering: .acquiring) }

    func addGuestLoopLocked(_ membership: SourceMembership) {
        locked.guestLoops.append(membership)
        hasGuests.store(true, ordering: .releasing)
    }

    /// The caller retains the membership.
    func removeGuestLoopLocked(_ membership: SourceMembership) {
        locked.guestLoops.removeAll { $0 === membership }
        hasGuests.store(!locked.guestLoops.isEmpty, ordering: .releasing)
    }
}

/// The numbers under which the timer queue of a mode files its timers. Under the loop's lock.
struct TimerSlots: ~Copyable, Sendable {
    private var free = PlainList<UInt32>()
    private var count: UInt32 = 0

    mutating func take() -> UInt32 {
        if let slot = free.popLast() { return slot }
        count += 1
        return count - 1
    }

    mutating func giveBack(_ slot: UInt32) { free.append(slot) }
    var wasNeverUsed: Bool { count == 0 }
}

/// The kinds of events that step 9 serves, one kind a pass.
enum EventKind: Int {
    case timers, descriptors, messages, mainQueue
    /// The one whose turn comes after this.
    var next: EventKind { EventKind(rawValue: (rawValue + 1) % 4)! }  // 0 to 3 are the raw values
}
