// What a timer is, apart from any loop. Loop/RunLoop+Timers.swift puts it into modes and fires it.

import Synchronization

extension RunLoop {
    /// Fires its handler when its date is reached, once or on a grid of dates (NSTimer, CFRunLoopTimer).
    ///
    /// Thread-safe. The handler runs on the thread of the loop that the timer was added to, in a pass of one of its modes, never
    /// early, and at most `tolerance` late when the loop is free. A repeating timer keeps to its grid whatever the lateness: slots
    /// that passed meanwhile are dropped. A timer is in one loop at a time.
    public final class Timer: Sendable {
        // MARK: Fixed

        let intervalNanoseconds: Int64  // 0: fires once
        let site: CreationSite

        // MARK: Touched by any thread

        /// Made with the timer, or when a repeating timer is first given a date in the past.
        private let details = AtomicLazyReference<Details>()

        let date: Atomic<Int64>
        let toleranceNanoseconds: Atomic<Int64>
        /// Which loop the timer is in, and where its queue files it: see `TimerPlace`.
        let place = Atomic<UInt64>(0)
        let rundown = Rundown()
        /// Counts the times that the date was set from outside.
        let dateVersion = Atomic<UInt32>(0)

        // MARK: Guarded by the lock of the loop it is in

        // SAFETY: read and written under the lock of the loop that `place` names; that lock's holder alone moves `place` from or to it.
        @exclusivity(unchecked) nonisolated(unsafe) var memberships = TimerMemberships()

        // SAFETY: written once, by the one caller whom `rundown` tells that the last use has ended; read during uses only.
        nonisolated(unsafe) private var handler: (@Sendable (Timer) -> Void)?

        // Last, so that the single bytes share a word.
        let flags = Atomic<UInt8>(0)
        let isOnDemand: Bool
        /// A delayed perform or a task's sleep: nothing without its loop, so it is invalid when that ends.
        let endsWithLoop: Bool

        /// What few timers have.
        private final class Details: Sendable {
            let label: String?
            let order: Int
            /// A date in the past that was set, and the present that `date` got in its place.
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

        /// Makes a timer that fires at `fireAt`, and every `interval` from there. Without an interval, or with one of zero or less,
        /// it fires once; an interval below 0.1 ms counts as 0.1 ms. A date in the past fires in the first pass.
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
            assert(place.load(ordering: .relaxed) == 0, "a loop holds the timers that are in it")
        }

        /// The documented floor of NSTimer; anything shorter is a spin.
        static let shortestInterval: Int64 = 100_000

        public var label: String? { details.load()?.label }
        /// Ties on the grid of dates are broken by insertion, as in CFRunLoop; kept for those who read it back.
        public var order: Int { details.load()?.order ?? 0 }
        /// Nil when the timer fires once.
        public var interval: Swift.Duration? { intervalNanoseconds == 0 ? nil : .nanoseconds(intervalNanoseconds) }
        /// False once the timer was invalidated, or has fired its only shot. Thread-safe.
        public var isValid: Bool { rundown.isValid }

        var repeats: Bool { intervalNanoseconds != 0 }

        static func honoured(_ tolerance: Int64, interval: Int64) -> Int64 {
            max(0, interval == 0 ? tolerance : min(tolerance, interval / 2))
        }

        // MARK: Dates in the past

        /// The date to file for one that was set: a repeating timer's grid starts at `present` if the date is earlier.
        func dateToFile(_ set: Int64, present: Int64) -> Int64 {
            if set >= present { return set }
            let details = details.load() ?? details.storeIfNil(Details(label: nil, order: 0))
            details.pastDate.store(set, ordering: .releasing)
            details.presentForPast.store(present, ordering: .releasing)
            return present
        }

        /// The date as it was set, for the one that was filed.
        func dateAsSet(_ filed: Int64) -> Int64 {
            guard repeats, let details = details.load(), details.presentForPast.load(ordering: .acquiring) == filed else { return filed }
            return details.pastDate.load(ordering: .acquiring)
        }

        // MARK: Firing

        /// Calls the handler. The caller holds a use of `rundown`.
        func callHandler() { /* DOES CALLOUT */
            handler?(self)
        }

        /// Lets the handler go. For the one whom `rundown` told that nobody can call it any more.
        func finish() {
            handler = nil
        }

        /// The date after the slot `fired`, for a callout that ended at `now`: the first slot of the grid later than `now`.
        static func nextSlot(after fired: Int64, interval: Int64, now: Int64) -> Int64 {
            if now < fired { return fired.addingSaturated(interval) }
            // The distance may be more than a signed word holds; modulo 2^64 it is right.
            let sinceSlot = Int64(UInt64(bitPattern: now &- fired) % UInt64(interval))
            return now.addingSaturated(interval - sinceSlot)
        }
    }
}

extension RunLoop.Timer {
    enum Flag {
        static let firing: UInt8 = 1
        /// The owner has been asked to file the timer anew.
        static let redateQueued: UInt8 = 2
    }

    var isFiring: Bool { flags.load(ordering: .acquiring) & Flag.firing != 0 }
}

/// One word that says which loop a timer is in, and in the common case where: readable by any thread without a lock.
///
/// The loop's id in the upper half. In the lower half the index of its mode and its slot there, when the timer is in just one
/// mode and both numbers fit; else a mark that says to look at `memberships` under the lock.
struct TimerPlace {
    static let lookUnderLock: UInt32 = 0xFF00_0000

    var word: UInt64

    var loopID: UInt64 { word >> 32 }
    var isDirect: Bool { UInt32(truncatingIfNeeded: word) & 0xFF00_0000 != Self.lookUnderLock }
    var modeIndex: Int { Int(word >> 24 & 0xFF) }
    var slot: UInt32 { UInt32(word & 0xFF_FFFF) }

    init(word: UInt64) { self.word = word }

    /// In a loop, and to be looked up under its lock.
    init(unplacedIn loopID: UInt64) { word = loopID << 32 | UInt64(Self.lookUnderLock) }

    /// Nil when a number does not fit.
    init?(loopID: UInt64, _ membership: TimerMemberships.Membership) {
        guard membership.modeIndex < 0xFF, membership.slot <= 0xFF_FFFF else { return nil }
        word = loopID << 32 | UInt64(membership.modeIndex) << 24 | UInt64(membership.slot)
    }
}

/// The modes a timer is in, each with the timer's slot in that mode's queue.
struct TimerMemberships: Sendable {
    struct Membership: Sendable {
        fileprivate var mode: UInt32
        var slot: UInt32
        /// Where the loop's queue of changes has the timer's joining; none once the owner has filed the timer there.
        var changePlace = LinkedQueue<Never>.noPlace
        var modeIndex: Int { Int(mode) }
        var isFiled: Bool { changePlace == LinkedQueue<Never>.noPlace }

        init(modeIndex: Int, slot: UInt32) { (mode, self.slot) = (UInt32(modeIndex), slot) }
    }

    private static let noMode = UInt32.max

    /// Its mode is `noMode` when there is none.
    private var first = Membership.none
    /// `index` and two flags: a timer is to be small.
    private var packed: UInt32 = 0
    private static let commonBit: UInt32 = 1 << 31
    private static let knownBit: UInt32 = 1 << 30
    /// Nil as a rule: an empty array would be counted, though it takes no memory.
    private var others: [Membership]?

    var isEmpty: Bool { first.mode == Self.noMode }

    /// Where the loop's list of timers holds it.
    var index: UInt32 {
        get { packed & ~(Self.commonBit | Self.knownBit) }
        set { packed = packed & (Self.commonBit | Self.knownBit) | newValue }
    }

    var isCommon: Bool {
        get { packed & Self.commonBit != 0 }
        set { if newValue { packed |= Self.commonBit } else { packed &= ~Self.commonBit } }
    }

    /// Whether the owner's queues have or had the timer since it joined the loop; otherwise all of its joinings are queued.
    var isKnownToOwner: Bool {
        get { packed & Self.knownBit != 0 }
        set { if newValue { packed |= Self.knownBit } else { packed &= ~Self.knownBit } }
    }

    /// Forgets the modes.
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

    /// Those in which the owner has filed the timer.
    var filed: [Membership] { all.filter(\.isFiled) }

    /// Nil once the owner has filed the timer in the mode.
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

    /// The owner takes the queued change to file the timer.
    mutating func markFiled(inMode modeIndex: Int) {
        isKnownToOwner = true
        setChangePlace(LinkedQueue<Never>.noPlace, inMode: modeIndex)
    }

    /// How `Timer.place` says it.
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
