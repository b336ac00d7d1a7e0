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
        let isOnDemand: Bool
        /// A delayed perform or a task's sleep: nothing without its loop, so it is invalid when that ends.
        let endsWithLoop: Bool
        /// Ties on the grid of dates are broken by insertion, as in CFRunLoop; kept for those who read it back.
        public let order: Int
        public let label: String?

        // MARK: Touched by any thread

        let rundown = Rundown()
        let date: Atomic<Int64>
        /// Counts the times that the date was set from outside.
        let dateVersion = Atomic<UInt32>(0)
        let toleranceNanoseconds: Atomic<Int64>
        /// Which loop the timer is in, and where its queue files it: see `TimerPlace`.
        let place = Atomic<UInt64>(0)
        let flags = Atomic<UInt8>(0)

        // MARK: Guarded by the lock of the loop it is in

        // SAFETY: read and written under the lock of the loop that `place` names; that lock's holder alone moves `place` from or to it.
        @exclusivity(unchecked) nonisolated(unsafe) var memberships = TimerMemberships()

        // SAFETY: written once, by the one caller whom `rundown` tells that the last use has ended; read during uses only.
        nonisolated(unsafe) private var handler: (@Sendable (Timer) -> Void)?

        init(
            date: Int64, interval: Int64, tolerance: Int64, order: Int, isOnDemand: Bool = false, endsWithLoop: Bool = false,
            label: String?,
            site: CreationSite,
            handler: @escaping @Sendable (Timer) -> Void
        ) {
            self.date = Atomic(date)
            intervalNanoseconds = interval
            toleranceNanoseconds = Atomic(Self.honoured(tolerance, interval: interval))
            self.order = order
            self.isOnDemand = isOnDemand
            self.endsWithLoop = endsWithLoop
            self.label = label
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

        /// Nil when the timer fires once.
        public var interval: Swift.Duration? { intervalNanoseconds == 0 ? nil : .nanoseconds(intervalNanoseconds) }
        /// False once the timer was invalidated, or has fired its only shot. Thread-safe.
        public var isValid: Bool { rundown.isValid }

        var repeats: Bool { intervalNanoseconds != 0 }

        static func honoured(_ tolerance: Int64, interval: Int64) -> Int64 {
            max(0, interval == 0 ? tolerance : min(tolerance, interval / 2))
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

    init(loopID: UInt64, memberships: TimerMemberships) {
        word = loopID << 32 | UInt64(Self.lookUnderLock)
        if memberships.others.isEmpty, let first = memberships.first, first.modeIndex < 0xFF, first.slot <= 0xFF_FFFF {
            word = loopID << 32 | UInt64(first.modeIndex) << 24 | UInt64(first.slot)
        }
    }
}

/// The modes a timer is in, each with the timer's slot in that mode's queue.
struct TimerMemberships: Sendable {
    struct Membership: Sendable {
        private var mode: UInt32
        var slot: UInt32
        var modeIndex: Int { Int(mode) }

        init(modeIndex: Int, slot: UInt32) { (mode, self.slot) = (UInt32(modeIndex), slot) }
    }

    var first: Membership?
    var isCommon = false
    /// Where the loop's list of timers holds it.
    var index: UInt32 = 0
    var others: [Membership] = []

    /// Forgets the modes.
    mutating func clear() {
        first = nil
        isCommon = false
        if !others.isEmpty { others = [] }
    }

    var isEmpty: Bool { first == nil }

    func contains(_ modeIndex: Int) -> Bool {
        first?.modeIndex == modeIndex || others.contains { $0.modeIndex == modeIndex }
    }

    mutating func insert(_ membership: Membership) {
        if first == nil { first = membership } else { others.append(membership) }
    }

    mutating func remove(_ modeIndex: Int) -> Membership? {
        if let found = first, found.modeIndex == modeIndex {
            first = others.popLast()
            return found
        }
        guard let place = others.firstIndex(where: { $0.modeIndex == modeIndex }) else { return nil }
        return others.remove(at: place)
    }

    var all: [Membership] { (first.map { [$0] } ?? []) + others }
}
