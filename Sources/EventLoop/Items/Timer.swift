// A timer, independent of any loop. RunLoop+Timers.swift adds it to modes, RunLoop+Firing.swift fires it.

import Synchronization

extension RunLoop {
    /// Calls its handler when its date is reached, once or on a grid of dates (NSTimer, CFRunLoopTimer).
    ///
    /// Thread-safe. The handler runs on the thread of the loop that the timer was added to, in a pass of one of the timer's modes. It never
    /// runs early, and runs at most `tolerance` late if the loop is idle. A repeating timer keeps its grid however late it fires: it skips
    /// the dates that have passed. A timer is in one loop at a time.
    public final class Timer: Sendable {
        // MARK: Constants

        /// Zero for a timer that fires once.
        let intervalNanoseconds: Int64
        let site: CreationSite

        // MARK: Accessed by any thread

        /// Created with the timer, or when a repeating timer's date is first set to a date in the past.
        private let details = AtomicLazyReference<Details>()

        let date: Atomic<Int64>
        let toleranceNanoseconds: Atomic<Int64>
        /// The loop that the timer is in, and its slot there. See `TimerPlace`.
        let place = Atomic<UInt64>(0)
        let rundown = Rundown()
        /// Counts how many times the date was set from outside.
        let dateVersion = Atomic<UInt32>(0)

        // MARK: Guarded by the lock of the loop it is in

        // SAFETY: accessed under the lock of the loop that `place` names. `place` changes to or from a loop only under that loop's lock.
        @exclusivity(unchecked) nonisolated(unsafe) var memberships = TimerMemberships()

        // SAFETY: cleared once, by the caller that ended the last use of `rundown`; read only during uses.
        nonisolated(unsafe) private var handler: (@Sendable (Timer) -> Void)?

        // Last, so that the single bytes share a word.
        let flags = Atomic<UInt8>(0)
        let isOnDemand: Bool
        /// A delayed perform or a task's sleep. It becomes invalid when its loop ends.
        let endsWithLoop: Bool

        /// Properties that few timers need.
        private final class Details: Sendable {
            let label: String?
            let order: Int
            /// A date in the past to which the timer was set, and the current time that `date` got instead.
            let pastDate = Atomic<Int64>(0)
            let presentForPast = Atomic<Int64>(.max)
            init(label: String?, order: Int) { (self.label, self.order) = (label, order) }
        }

        init(
            date: Int64, interval: Int64, tolerance: Int64, order: Int, isOnDemand: Bool = false, endsWithLoop: Bool = false,
            label: String?,
            site: CreationSite,
            handler: @escaping @Sendable (Timer) -> Void
        ) {
            self.date = Atomic(date)
            intervalNanoseconds = interval
            toleranceNanoseconds = Atomic(Self.honoured(tolerance, interval: interval))
            if label != nil || order != 0 { _ = details.storeIfNil(Details(label: label, order: order)) }
            self.isOnDemand = isOnDemand
            self.endsWithLoop = endsWithLoop
            self.site = site
            self.handler = handler
        }

        /// Makes a timer that fires at `fireAt`, and then every `interval`. If the interval is nil, zero or negative, the timer fires once.
        /// An interval below 0.1 ms counts as 0.1 ms. If `fireAt` is in the past, the timer fires in the first pass.
        ///
        /// `fireAt` is in the time of the loop that the timer will be added to. See `CFRunLoopTimerCreate`.
        public convenience init(
            fireAt: Instant, interval: Swift.Duration? = nil, tolerance: Swift.Duration = .zero, order: Int = 0,
            label: String? = nil, file: StaticString = #fileID, line: UInt = #line,
            handler: @escaping @Sendable (Timer) -> Void
        ) {
            let nanoseconds = interval?.saturatedNanoseconds ?? 0
            self.init(
                date: fireAt.nanoseconds, interval: nanoseconds <= 0 ? 0 : max(nanoseconds, Self.shortestInterval),
                tolerance: tolerance.saturatedNanoseconds, order: order, label: label, site: CreationSite(file, line), handler: handler)
        }

        deinit {
            assert(place.load(ordering: .relaxed) == 0, "a loop retains its timers")
        }

        /// The documented minimum of NSTimer. A shorter interval would keep the loop busy.
        static let shortestInterval: Int64 = 100_000

        public var label: String? { details.load()?.label }
        /// Has no effect, as in CFRunLoop: timers with equal dates fire in the order in which the dates were set. Stored so that it can be
        /// read back.
        public var order: Int { details.load()?.order ?? 0 }
        /// Nil if the timer fires once.
        public var interval: Swift.Duration? { intervalNanoseconds == 0 ? nil : .nanoseconds(intervalNanoseconds) }
        /// False after the timer was invalidated, or after a timer that fires once has fired. Thread-safe.
        public var isValid: Bool { rundown.isValid }

        var repeats: Bool { intervalNanoseconds != 0 }

        static func honoured(_ tolerance: Int64, interval: Int64) -> Int64 {
            max(0, interval == 0 ? tolerance : min(tolerance, interval / 2))
        }

        // MARK: Dates in the past

        /// The date to file when the date is set to `set`. If it is in the past, the grid of a repeating timer starts at `present`.
        func dateToFile(_ set: Int64, present: Int64) -> Int64 {
            if set >= present { return set }
            let details = details.load() ?? details.storeIfNil(Details(label: nil, order: 0))
            details.pastDate.store(set, ordering: .releasing)
            details.presentForPast.store(present, ordering: .releasing)
            return present
        }

        /// The date that was set, for the date that was filed.
        func dateAsSet(_ filed: Int64) -> Int64 {
            guard repeats, let details = details.load(), details.presentForPast.load(ordering: .acquiring) == filed else { return filed }
            return details.pastDate.load(ordering: .acquiring)
        }

        // MARK: Firing

        /// Calls the handler. The caller must hold a use of `rundown`.
        func callHandler() { /* DOES CALLOUT */
            handler?(self)
        }

        /// Releases the handler. Only the caller that ended the last use of `rundown` may call it.
        func finish() {
            handler = nil
        }

        /// The next date of the grid after `fired`, for a callout that ended at `now`: the first date of the grid that is later than `now`.
        static func nextSlot(after fired: Int64, interval: Int64, now: Int64) -> Int64 {
            if now < fired { return fired.addingSaturated(interval) }
            // The difference may overflow a signed word; as an unsigned word it is right.
            let sinceSlot = Int64(UInt64(bitPattern: now &- fired) % UInt64(interval))
            return now.addingSaturated(interval - sinceSlot)
        }
    }
}

extension RunLoop.Timer {
    enum Flag {
        static let firing: UInt8 = 1
        /// A request to refile the timer is queued for the owner.
        static let redateQueued: UInt8 = 2
    }

    var isFiring: Bool { flags.load(ordering: .acquiring) & Flag.firing != 0 }
}

/// One word that says which loop a timer is in and, in the common case, where. Any thread can read it without a lock.
///
/// The upper half is the loop's id. If the timer is in one mode only, and the numbers fit, the lower half is the index of the mode and the
/// slot in that mode's queue. Otherwise it is `lookUnderLock`, which refers the reader to `memberships`, under the lock.
struct TimerPlace {
    static let lookUnderLock: UInt32 = 0xFF00_0000

    var word: UInt64

    var loopID: UInt64 { word >> 32 }
    var isDirect: Bool { UInt32(truncatingIfNeeded: word) & 0xFF00_0000 != Self.lookUnderLock }
    var modeIndex: Int { Int(word >> 24 & 0xFF) }
    var slot: UInt32 { UInt32(word & 0xFF_FFFF) }

    init(word: UInt64) { self.word = word }

    /// In a loop; the modes have to be looked up under its lock.
    init(unplacedIn loopID: UInt64) { word = loopID << 32 | UInt64(Self.lookUnderLock) }

    /// Nil if a number does not fit.
    init?(loopID: UInt64, _ membership: TimerMemberships.Membership) {
        guard membership.modeIndex < 0xFF, membership.slot <= 0xFF_FFFF else { return nil }
        word = loopID << 32 | UInt64(membership.modeIndex) << 24 | UInt64(membership.slot)
    }
}

/// The modes that a timer is in, each with the timer's slot in that mode's queue.
struct TimerMemberships: Sendable {
    struct Membership: Sendable {
        fileprivate var mode: UInt32
        var slot: UInt32
        /// The place of the addition in the loop's queue of changes; `noPlace` after the owner has filed the timer in the mode.
        var changePlace = LinkedQueue<Never>.noPlace
        var modeIndex: Int { Int(mode) }
        var isFiled: Bool { changePlace == LinkedQueue<Never>.noPlace }

        init(modeIndex: Int, slot: UInt32) { (mode, self.slot) = (UInt32(modeIndex), slot) }
    }

    private static let noMode = UInt32.max

    /// Its mode is `noMode` if the timer is in no mode.
    private var first = Membership.none
    /// `index` and two flags, in one word to keep timers small.
    private var packed: UInt32 = 0
    private static let commonBit: UInt32 = 1 << 31
    private static let knownBit: UInt32 = 1 << 30
    /// Nil for most timers. An empty array would be retained and released.
    private var others: [Membership]?

    var isEmpty: Bool { first.mode == Self.noMode }

    /// The timer's index in the loop's bag of timers.
    var index: UInt32 {
        get { packed & ~(Self.commonBit | Self.knownBit) }
        set { packed = packed & (Self.commonBit | Self.knownBit) | newValue }
    }

    var isCommon: Bool {
        get { packed & Self.commonBit != 0 }
        set { if newValue { packed |= Self.commonBit } else { packed &= ~Self.commonBit } }
    }

    /// Whether the owner has filed the timer since it was added to the loop. If not, all of its additions are still queued.
    var isKnownToOwner: Bool {
        get { packed & Self.knownBit != 0 }
        set { if newValue { packed |= Self.knownBit } else { packed &= ~Self.knownBit } }
    }

    /// Removes all modes.
    @inline(__always)
    mutating func clear() {
        first = .none
        isCommon = false
        if others != nil { others = nil }
    }

    @inline(__always)
    func contains(_ modeIndex: Int) -> Bool {
        if Int(first.mode) == modeIndex { return true }
        if others == nil { return false }
        return others!.contains { $0.modeIndex == modeIndex }
    }

    @inline(__always)
    mutating func insert(_ membership: Membership) {
        if isEmpty { first = membership } else { others = (others ?? []) + [membership] }
    }

    mutating func remove(_ modeIndex: Int) -> Membership? {
        guard let place = all.firstIndex(where: { $0.modeIndex == modeIndex }) else { return nil }
        var left = all
        let removed = left.remove(at: place)
        first = left.first ?? .none
        others = left.count > 1 ? Array(left.dropFirst()) : nil
        return removed
    }

    @inline(__always)
    func forEach(_ body: (Membership) -> Void) {
        if isEmpty { return }
        body(first)
        if others != nil { others!.forEach(body) }
    }

    var all: [Membership] { isEmpty ? [] : [first] + (others ?? []) }

    /// The memberships whose modes have the timer filed.
    var filed: [Membership] { all.filter(\.isFiled) }

    /// The place of the queued addition; nil after the owner has filed the timer in the mode.
    func changePlace(inMode modeIndex: Int) -> LinkedQueue<Never>.Place? {
        if first.modeIndex == modeIndex { return first.isFiled ? nil : first.changePlace }
        return others?.first { $0.modeIndex == modeIndex && !$0.isFiled }?.changePlace
    }

    mutating func setChangePlace(_ place: LinkedQueue<Never>.Place, inMode modeIndex: Int) {
        if first.modeIndex == modeIndex {
            first.changePlace = place
        } else if let index = others?.firstIndex(where: { $0.modeIndex == modeIndex }) {
            others![index].changePlace = place  // `index` was found in it
        }
    }

    /// The owner has taken the queued addition, and files the timer.
    mutating func markFiled(inMode modeIndex: Int) {
        isKnownToOwner = true
        setChangePlace(LinkedQueue<Never>.noPlace, inMode: modeIndex)
    }

    /// The word for `Timer.place`.
    @inline(__always)
    func place(in loopID: UInt64) -> TimerPlace {
        if !isEmpty, others == nil, let place = TimerPlace(loopID: loopID, first) { return place }
        return TimerPlace(unplacedIn: loopID)
    }
}

extension TimerMemberships.Membership {
    @inline(__always)
    fileprivate static var none: Self { Self(modeIndex: Int(UInt32.max), slot: 0) }
}
