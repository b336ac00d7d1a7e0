// The items and queues of one mode of one loop.

import Synchronization

/// The items of a mode, and, as `ClosureQueues`, the closures that wait for it. Made when the first item is added; never removed from its
/// loop.
///
/// No access spans a callout, so overlapping accesses are not looked for at run time.
final class ModeState: ClosureQueues, @unchecked Sendable {
    // SAFETY: constants and atomics, what the loop's lock guards, and what its thread owns, in this order.

    let name: RunLoop.Mode
    let nameBits: NameBits
    let index: Int

    // MARK: Read by any thread, written under the loop's lock

    /// How many of the sources are the kernel's to signal.
    let watchedSources = Atomic<Int>(0)
    /// Whether the mode is one of the common ones; never taken back.
    let isCommon: Atomic<Bool>
    let observed = ObservedActivities()
    private let hasGuests = Atomic<Bool>(false)

    // MARK: Guarded by the loop's lock
    // SAFETY: read and written under that lock only.

    /// See ModeObservers.swift, which alone changes it.
    @exclusivity(unchecked) var observers: ContiguousArray<RunLoop.Observer> = []
    @exclusivity(unchecked) var signaled = SignaledSources()
    @exclusivity(unchecked) var messaged = MessagedPorts()
    @exclusivity(unchecked) var timerSlots = TimerSlots()
    @exclusivity(unchecked) private(set) var guestLoops: ContiguousArray<SourceMembership> = []
    /// How often a guest loop was added.
    @exclusivity(unchecked) private(set) var guestLoopAdditions: UInt64 = 0

    // MARK: Owned by the loop's thread
    // SAFETY: touched on that thread only.

    /// Without a base, sources are served from this place in the mode's list on.
    @exclusivity(unchecked) var nextPolled = 0

    @exclusivity(unchecked) var timers = TimerQueue()
    @exclusivity(unchecked) var observerSnapshot = ObserverSnapshot()
    /// Sources that have left the base until the mode runs; each leaves the list before its membership ends.
    @exclusivity(unchecked) var parked: [ObjectIdentifier: Unmanaged<SourceMembership>] = [:]
    /// The counts of queueings, the mode's own and the common modes', at which nothing waited for the mode.
    @exclusivity(unchecked) var emptyAt: (own: UInt64, common: UInt64) = (.max, .max)
    /// Which kind of event step 9 served last.
    @exclusivity(unchecked) var lastServed = EventKind.mainQueue
    /// When the first guest loop wants to be called, as far as it said when it was asked last; `Int64.max` for never.
    @exclusivity(unchecked) var nextGuestCall = Int64.max
    /// A step has begun after a sleep in its host, and has not looked yet which guest loops are due.
    @exclusivity(unchecked) var hasSleptInHost = false

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

    init(name: RunLoop.Mode, index: Int, isCommon: Bool) {
        self.name = name
        nameBits = NameBits(name)
        self.index = index
        self.isCommon = Atomic(isCommon)
    }

    deinit { pollerReference?.release() }

    // MARK: Guest loops

    /// Whether a guest loop is in the mode. Any thread.
    @inline(__always)
    var hasGuestLoops: Bool { hasGuests.load(ordering: .acquiring) }

    func addGuestLoopLocked(_ membership: SourceMembership) {
        guestLoops.append(membership)
        guestLoopAdditions += 1
        hasGuests.store(true, ordering: .releasing)
    }

    /// The caller retains the membership.
    func removeGuestLoopLocked(_ membership: SourceMembership) {
        guestLoops.removeAll { $0 === membership }
        hasGuests.store(!guestLoops.isEmpty, ordering: .releasing)
    }

    func removeAllGuestLoopsLocked() {
        guestLoops = []
        hasGuests.store(false, ordering: .releasing)
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
