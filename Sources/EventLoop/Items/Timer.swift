import Synchronization

extension RunLoop {
    /// Calls its handler when its date is reached, once or on a grid of dates (NSTimer, CFRunLoopTimer).
    ///
    /// Thread-safe. The handler runs on the thread of the timer's loop, in a pass of one of its modes; never early, and at most `tolerance` late if
    /// the loop is idle. However late it fires, a repeating timer keeps its grid, and skips the dates that have passed. It is in one loop at a time.
    public final class Timer: Sendable {
        // What firing needs is first.

        // MARK: Accessed by any thread
        let state: TimerState
        let date: Atomic<Int64>
        /// Where the loop has filed it.
        let location = Atomic<UInt64>(0)
        // SAFETY: cleared once, by the caller that ended the last use of `state`; read only during uses.
        nonisolated(unsafe) private var handler: (@Sendable (Timer) -> Void)?
        /// The interval of a repeating timer, a constant; the tolerance of one that fires once.
        private let intervalOrTolerance: Atomic<Int64>

        // MARK: Guarded by the lock of the loop it is in
        // SAFETY: accessed under the lock of the loop that `state` names, which changes to or from a loop only under that loop's lock.
        @exclusivity(unchecked) nonisolated(unsafe) var listing = TimerListing()

        // MARK: Seldom accessed
        let site: CreationSite
        /// Made when one of these properties is set, and retained. `AtomicLazyReference` would be called through generic code: as slow as an add.
        private let detailsWord = Atomic<Unmanaged<Details>?>(nil)

        /// Properties that few timers need.
        private final class Details: Sendable {
            let label: String?, order: Int
            /// Of a repeating timer.
            let tolerance: Atomic<Int64>
            /// A date in the past to which the timer was set, and the current time that `date` got instead; `.max` while there is none.
            let past = Atomic<Int64>(0)
            let presentForPast = Atomic<Int64>(.max)
            /// A date of the wall clock, as the bits of a Double, and its exclusive or with the instant that it was converted to. Not a number while
            /// there is none. Two threads that set dates at once may leave a half each, which is valid for no instant unless the dates are equal.
            let wallDate = Atomic<UInt64>(Double.nan.bitPattern)
            let wallDateCheck = Atomic<UInt64>(0)
            // SAFETY: accessed under the lock of the loop that the timer is in, as `listing`.
            nonisolated(unsafe) var memberships: [TimerMembership] = []
            // SAFETY: set before another thread has the timer; afterwards only read.
            nonisolated(unsafe) weak var attachment: (any AnyObject & Sendable)?
            init(label: String?, order: Int, tolerance: Int64) {
                (self.label, self.order) = (label, order)
                self.tolerance = Atomic(tolerance)
            }
        }

        init(
            date: Int64, interval: Int64 = 0, tolerance: Int64 = 0, order: Int = 0, isOnDemand: Bool = false, endsWithLoop: Bool = false,
            isPerform: Bool = false, label: String?, site: CreationSite, handler: @escaping @Sendable (Timer) -> Void
        ) {
            state = TimerState(repeats: interval != 0, isOnDemand: isOnDemand, endsWithLoop: endsWithLoop, isPerform: isPerform)
            self.date = Atomic(date)
            let tolerance = Self.honoured(tolerance, interval: interval)
            intervalOrTolerance = Atomic(interval == 0 ? tolerance : interval)
            self.site = site
            self.handler = handler
            if label == nil && order == 0 && (tolerance == 0 || interval == 0) { return }
            detailsWord.store(.passRetained(Details(label: label, order: order, tolerance: tolerance)), ordering: .relaxed)
        }

        /// Makes a timer that fires at `fireAt`, and then every `interval`. If the interval is nil, zero or negative, the timer fires once.
        /// An interval below 0.1 ms counts as 0.1 ms. If `fireAt` is in the past, the timer fires in the first pass.
        ///
        /// `fireAt` is in the time of the loop that the timer will be added to. See `CFRunLoopTimerCreate`.
        public convenience init(
            fireAt: Instant, interval: Swift.Duration? = nil, tolerance: Swift.Duration = .zero, order: Int = 0,
            label: String? = nil, file: StaticString = #fileID, line: UInt = #line, handler: @escaping @Sendable (Timer) -> Void
        ) {
            let (asked, site) = (interval?.saturatedNanoseconds ?? 0, CreationSite(file, line))
            self.init(
                date: fireAt.nanoseconds, interval: asked == 0 ? 0 : Self.honouredInterval(asked, ifNegative: 0, label, site),
                tolerance: tolerance == .zero ? 0 : tolerance.saturatedNanoseconds, order: order, label: label, site: site,
                handler: handler)
        }

        deinit {
            assert(state.value.loopID == 0, "a loop retains its timers")
            // Not in release builds, where it would cost every timer something.
            #if DEBUG
            if isValid && !listing.wasUsed { warnOfRelease() }
            #endif
            detailsWord.load(ordering: .relaxed)?.release()
        }

        /// The documented minimum of NSTimer. A shorter interval would keep the loop busy.
        static let shortestInterval: Int64 = 100_000

        /// The interval that a repeating timer gets. If it is another than the caller asked for, reports that.
        @inline(__always) static func honouredInterval(_ asked: Int64, ifNegative: Int64, _ label: String?, _ site: CreationSite) -> Int64 {
            asked >= shortestInterval ? asked : replacedInterval(asked, ifNegative, label, site)
        }

        /// For warnings, recordings and `debugDescription`.
        public var label: String? { details?.label }
        /// Has no effect, as in CFRunLoop: timers with equal dates fire in the order in which the dates were set. Stored so that it can be read back.
        public var order: Int { details?.order ?? 0 }
        /// Nil if the timer fires once.
        public var interval: Swift.Duration? { intervalNanoseconds == 0 ? nil : .nanoseconds(intervalNanoseconds) }
        /// False after the timer was invalidated, or after a timer that fires once has fired. Thread-safe.
        public var isValid: Bool { state.value.isValid }
        /// The loop's thread is about to call the handler, or is in it.
        var isFiring: Bool { state.value.isFiring }
        var repeats: Bool { state.repeats }
        /// Zero for a timer that fires once.
        var intervalNanoseconds: Int64 { repeats ? intervalOrTolerance.load(ordering: .relaxed) : 0 }

        static func honoured(_ tolerance: Int64, interval: Int64) -> Int64 {
            max(0, interval == 0 ? tolerance : min(tolerance, interval / 2))
        }

        // MARK: Details
        @inline(__always) var hasDetails: Bool { detailsWord.load(ordering: .relaxed) != nil }
        @inline(__always) private var details: Details? { detailsWord.load(ordering: .acquiring)?.takeUnretainedValue() }

        @inline(never) private var neededDetails: Details {
            if let details { return details }
            let new = Unmanaged.passRetained(Details(label: nil, order: 0, tolerance: 0))
            let (isStored, earlier) = detailsWord.compareExchange(expected: nil, desired: new, ordering: .acquiringAndReleasing)
            if isStored { return new.takeUnretainedValue() }
            new.release()
            return earlier.unsafelyUnwrapped.takeUnretainedValue()  // another thread's, since it is not nil
        }

        /// Zero for most timers. Any thread.
        var toleranceNanoseconds: Int64 {
            get {
                if !repeats { return intervalOrTolerance.load(ordering: .sequentiallyConsistent) }
                guard let details = detailsWord.load(ordering: .acquiring) else { return 0 }
                return Borrowed(details, keptBy: .caller).use { $0.tolerance.load(ordering: .sequentiallyConsistent) }
            }
            set {
                if !repeats { return intervalOrTolerance.store(newValue, ordering: .sequentiallyConsistent) }
                if newValue != 0 || hasDetails { neededDetails.tolerance.store(newValue, ordering: .sequentiallyConsistent) }
            }
        }

        /// What another library of the package stores with the timer, which does not retain it. Set it before another thread has the timer.
        package var attachment: (any AnyObject & Sendable)? {
            get { details?.attachment }
            set { neededDetails.attachment = newValue }
        }

        /// The memberships, if the timer's location is not direct. Under the loop's lock.
        var listedMemberships: [TimerMembership] {
            get { details?.memberships ?? [] }
            set { neededDetails.memberships = newValue }
        }

        // MARK: Dates in the past
        /// The date to file when the date is set to `set`. If it is in the past, the grid of a repeating timer starts at `present`.
        func dateToFile(_ set: Int64, present: Int64) -> Int64 {
            if set >= present {
                // It may be the time at which another date was in the past.
                details?.presentForPast.store(.max, ordering: .releasing)
                return set
            }
            let kept = neededDetails
            kept.past.store(set, ordering: .releasing)
            kept.presentForPast.store(present, ordering: .releasing)
            return present
        }

        /// A loop files the timer at `present` in its time. A date that was in the past by a clock that is ahead must not be in the loop's future.
        @inline(never) func compareDateAgain(present: Int64) {
            let filed = date.load(ordering: .sequentiallyConsistent)
            let set = dateAsSet(filed)
            guard filed > present, set != filed else { return }
            // A date that another thread sets meanwhile wins.
            _ = date.compareExchange(expected: filed, desired: dateToFile(set, present: present), ordering: .sequentiallyConsistent)
        }

        /// The date that was set, for the date that was filed.
        func dateAsSet(_ filed: Int64) -> Int64 {
            guard repeats, filed != .max, let kept = details, kept.presentForPast.load(ordering: .acquiring) == filed else { return filed }
            return kept.past.load(ordering: .acquiring)
        }

        // MARK: Dates of the wall clock
        /// Keeps `wallDate`, which was converted to `instant`, for as long as that is the timer's date.
        package func keepWallDate(_ wallDate: Double, convertedTo instant: Instant) {
            let kept = neededDetails
            kept.wallDate.store(wallDate.bitPattern, ordering: .releasing)
            kept.wallDateCheck.store(wallDate.bitPattern ^ UInt64(bitPattern: instant.nanoseconds), ordering: .releasing)
        }

        /// The date of the wall clock that was converted to `instant`; nil if another date or none is kept.
        func wallDate(convertedTo instant: Instant) -> Double? {
            guard let kept = details else { return nil }
            let bits = kept.wallDate.load(ordering: .acquiring)
            let converted = kept.wallDateCheck.load(ordering: .acquiring) ^ bits
            let date = Double(bitPattern: bits)
            return Int64(bitPattern: converted) == instant.nanoseconds && !date.isNaN ? date : nil
        }

        // MARK: Firing
        /// Calls the handler. The caller must hold a use of `state`.
        func callHandler() { /* DOES CALLOUT */ handler?(self) }

        /// Releases the handler. Only the caller that ended the last use of `state` may call it.
        func finish() {
            _ = handler.take()  // released after the access to the property: its deinit is a callout, and may end the thread
        }

        /// The first date of the grid that is later than `now`, when the callout ended, and than `fired`.
        static func nextSlot(after fired: Int64, interval: Int64, now: Int64) -> Int64 {
            if now < fired { return fired.addingSaturated(interval) }
            // The difference may overflow a signed word; as an unsigned word it is right.
            let sinceSlot = Int64(UInt64(bitPattern: now &- fired) % UInt64(interval))
            return now.addingSaturated(interval - sinceSlot)
        }
    }
}

extension RunLoop.Timer {
    @inline(never)
    static func replacedInterval(_ asked: Int64, _ ifNegative: Int64, _ label: String?, _ site: CreationSite) -> Int64 { /* DOES CALLOUT */
        let replacement = asked > 0 ? shortestInterval : ifNegative
        let effect = replacement == 0 ? "fires only once" : "fires every 0.1 ms"
        Warnings.report(
            .shortInterval, label: label, site: site,
            "a repeating timer with an interval of \(asked % 1_000 == 0 ? "\(asked / 1_000) µs" : "\(asked) ns") \(effect); pass an interval of at least 0.1 ms"
                + (asked > 0 ? "" : ", or make a timer that fires once"))
        return replacement
    }

    @inline(never) func warnOfRelease() { /* DOES CALLOUT */
        Warnings.report(
            .unusedItem, label: label, site: site,
            "a timer was released before it was added to a run loop, so it never fires; add it to the loop, or use Timer.scheduled")
    }

    /// The interval of a repeating timer whose module has other units.
    package static func honouredInterval(_ asked: Duration, _ file: StaticString, _ line: UInt) -> Duration {
        .nanoseconds(honouredInterval(asked.saturatedNanoseconds, ifNegative: shortestInterval, nil, CreationSite(file, line)))
    }
}
