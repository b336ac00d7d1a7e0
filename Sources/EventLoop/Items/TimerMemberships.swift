import Synchronization

/// One word that says where the loop that a timer is in has filed it. Written under the loop's lock, while `TimerState` says that the timer is in
/// the loop; zero otherwise. The owner reads it without a lock.
///
/// The upper half is the loop's id. If the timer is in one mode only, and the numbers fit, the lower half is the index of the mode and the slot in
/// that mode's queue. Otherwise it is `lookUnderLock`: the reader has to look at the timer's memberships, under the lock.
struct TimerLocation {
    static let lookUnderLock: UInt32 = 0xFF00_0000
    var word: UInt64
    var loopID: UInt64 { word >> 32 }
    var isDirect: Bool { UInt32(truncatingIfNeeded: word) & 0xFF00_0000 != Self.lookUnderLock }
    var modeIndex: Int { Int(word >> 24 & 0xFF) }
    var slot: UInt32 { UInt32(word & 0xFF_FFFF) }
    init(word: UInt64) { self.word = word }
    /// In a loop; the modes have to be looked up under its lock.
    init(withoutSlotIn loopID: UInt64) { word = loopID << 32 | UInt64(Self.lookUnderLock) }

    /// Nil if a number does not fit.
    @inline(__always) init?(loopID: UInt64, modeIndex: Int, slot: UInt32) {
        guard modeIndex < 0xFF, slot <= 0xFF_FFFF else { return nil }
        word = loopID << 32 | UInt64(modeIndex) << 24 | UInt64(slot)
    }
}

/// A timer in one mode of its loop.
struct TimerMembership: Sendable {
    let modeIndex: Int
    /// The timer's slot in the mode's queue.
    let slot: UInt32
    /// The index of the addition in the loop's queue of changes; `noIndex` after the owner has filed the timer in the mode.
    var changeIndex = LinkedQueue<Never>.noIndex
    var isFiled: Bool { changeIndex == LinkedQueue<Never>.noIndex }
}

/// What else the lock guards of a timer in a loop.
struct TimerListing: Sendable {
    /// `index` and flags.
    private var packed: UInt32 = 0
    /// As in `TimerMembership`, if the location is direct. The index of a queued change of the date, if there is one: the timer is filed then.
    var changeIndex = LinkedQueue<Never>.noIndex

    private static let common: UInt32 = 1 << 31
    private static let known: UInt32 = 1 << 30
    private static let used: UInt32 = 1 << 29
    private static let numbers = used - 1

    /// For a timer that joins a loop.
    @inline(__always) init(index: Int) {
        precondition(index < Int(Self.numbers), "a run loop has at most \(Self.numbers) timers")
        packed = UInt32(index) | Self.used
    }

    init() {}
    /// Whether the timer is or ever was in a loop.
    var wasUsed: Bool { packed & Self.used != 0 }

    /// The timer's index in the loop's bag of timers.
    var index: Int {
        get { Int(packed & Self.numbers) }
        set { packed = packed & ~Self.numbers | UInt32(newValue) }
    }

    var isCommon: Bool {
        get { self[Self.common] }
        set { self[Self.common] = newValue }
    }
    /// Whether the owner has filed the timer since it was added to the loop. If not, all of its additions are still queued.
    var isKnownToOwner: Bool {
        get { self[Self.known] }
        set { self[Self.known] = newValue }
    }

    private subscript(flag: UInt32) -> Bool {
        get { packed & flag != 0 }
        set { if newValue { packed |= flag } else { packed &= ~flag } }
    }
}

/// The modes of a timer, under its loop's lock. If it is in one mode, as most are, `location` and `listing` have it; the others have a list.
extension RunLoop.Timer {
    var memberships: [TimerMembership] {
        let location = TimerLocation(word: location.load(ordering: .acquiring))
        guard location.loopID != 0, location.isDirect else { return listedMemberships }
        var direct = TimerMembership(modeIndex: location.modeIndex, slot: location.slot)
        if !state.value.isRedateQueued { direct.changeIndex = listing.changeIndex }
        return [direct]
    }

    @inline(__always) func isInMode(_ modeIndex: Int) -> Bool {
        let location = TimerLocation(word: location.load(ordering: .acquiring))
        if location.loopID == 0 { return false }
        return location.isDirect ? location.modeIndex == modeIndex : listedMemberships.contains { $0.modeIndex == modeIndex }
    }

    /// Changes where the addition to a mode is queued.
    func setChangeIndex(_ changeIndex: LinkedQueue<Never>.Index, inMode modeIndex: Int) {
        if TimerLocation(word: location.load(ordering: .acquiring)).isDirect { return listing.changeIndex = changeIndex }
        if let index = listedMemberships.firstIndex(where: { $0.modeIndex == modeIndex }) {
            listedMemberships[index].changeIndex = changeIndex
        }
    }

    /// The owner files the timer.
    func markFiled(inMode modeIndex: Int) {
        listing.isKnownToOwner = true
        setChangeIndex(LinkedQueue<Never>.noIndex, inMode: modeIndex)
    }

    /// The change of its date has left the queue.
    func forgetQueuedRedate() {
        state.forgetRedateQueued()
        listing.changeIndex = LinkedQueue<Never>.noIndex
    }

    func setMemberships(_ memberships: [TimerMembership], in loopID: UInt64) {
        if memberships.count == 1, let only = memberships.first,
            let direct = TimerLocation(loopID: loopID, modeIndex: only.modeIndex, slot: only.slot)
        {
            listing.changeIndex = only.changeIndex
            location.store(direct.word, ordering: .releasing)
            if hasDetails { listedMemberships = [] }
            return
        }
        if hasDetails || !memberships.isEmpty { listedMemberships = memberships }
        location.store(TimerLocation(withoutSlotIn: loopID).word, ordering: .releasing)
    }

    /// In no mode of any loop.
    func clearMemberships() {
        location.store(0, ordering: .releasing)
        if hasDetails { listedMemberships = [] }
    }
}
