// Both define `timespec`, and the compiler takes the one that it has loaded first for the owner.
internal import CPlatform
internal import EventLoopLibC

extension RunLoop {
    /// A point in monotonic time, in nanoseconds of `CLOCK_MONOTONIC`, which does not jump with the wall clock, or advance while the machine sleeps.
    ///
    /// Arithmetic saturates: a deadline that does not fit means "never" or "long past", and must not wrap around into the opposite. Thread-safe.
    /// Corresponds to `CFAbsoluteTime` of CFRunLoop, which follows the wall clock.
    public struct Instant: InstantProtocol, Sendable, Hashable {
        /// Since the start of the monotonic clock; `Int64.max` and `Int64.min` are the distant future and past.
        public var nanoseconds: Int64

        /// Makes an instant from a reading of the monotonic clock.
        @inlinable
        public init(nanoseconds: Int64) { self.nanoseconds = nanoseconds }
        /// The current time. Reads the monotonic clock once (about 20 ns).
        public static var now: Instant { Instant(nanoseconds: nanoseconds(of: CLOCK_MONOTONIC)) }

        /// What a clock of the system reads.
        @inline(__always) static func nanoseconds(of clock: clockid_t) -> Int64 {
            var time = timespec()
            clock_gettime(clock, &time)
            return Int64(time.tv_sec) &* 1_000_000_000 &+ Int64(time.tv_nsec)
        }

        /// Later than every other instant. Means "no deadline".
        public static let distantFuture = Instant(nanoseconds: .max)
        /// Earlier than every other instant. Means "already passed".
        public static let distantPast = Instant(nanoseconds: .min)

        /// This instant moved by `duration`. Saturates; `distantFuture` and `distantPast` do not move.
        public func advanced(by duration: Swift.Duration) -> Instant {
            if nanoseconds == .max || nanoseconds == .min { return self }
            return Instant(nanoseconds: nanoseconds.addingSaturated(duration.saturatedNanoseconds))
        }

        /// The time from this instant to `other`; negative if `other` is earlier. Saturates at ±292 years.
        public func duration(to other: Instant) -> Swift.Duration { .nanoseconds(other.nanoseconds.subtractingSaturated(nanoseconds)) }

        @inlinable
        public static func < (lhs: Self, rhs: Self) -> Bool { lhs.nanoseconds < rhs.nanoseconds }
        /// `lhs` moved into the future by `rhs`, as by `advanced(by:)`.
        public static func + (lhs: Self, rhs: Swift.Duration) -> Self { lhs.advanced(by: rhs) }
        /// `lhs` moved into the past by `rhs`. Saturates; `distantFuture` and `distantPast` do not move.
        public static func - (lhs: Self, rhs: Swift.Duration) -> Self {
            if lhs.nanoseconds == .max || lhs.nanoseconds == .min { return lhs }
            let nanoseconds = rhs.saturatedNanoseconds
            if nanoseconds == .max { return .distantPast }
            return Instant(nanoseconds: lhs.nanoseconds.subtractingSaturated(nanoseconds))
        }
        /// The time from `rhs` to `lhs`; negative if `lhs` is earlier. Saturates at ±292 years.
        public static func - (lhs: Self, rhs: Self) -> Swift.Duration { rhs.duration(to: lhs) }
    }
}

extension Int64 {
    package func addingSaturated(_ other: Int64) -> Int64 {
        let (sum, overflow) = addingReportingOverflow(other)
        return overflow ? (other < 0 ? .min : .max) : sum
    }

    package func subtractingSaturated(_ other: Int64) -> Int64 {
        let (difference, overflow) = subtractingReportingOverflow(other)
        return overflow ? (other < 0 ? .max : .min) : difference
    }

    func multipliedSaturated(by other: Int64) -> Int64 {
        let (product, overflow) = multipliedReportingOverflow(by: other)
        return overflow ? ((self < 0) == (other < 0) ? .max : .min) : product
    }
}

extension Swift.Duration {
    /// Whole nanoseconds, rounded up so that a wait never ends early. Saturates at ±292 years.
    package var saturatedNanoseconds: Int64 {
        let attoseconds = self.attoseconds
        // Up to eighteen seconds, this divides one word; the general case divides two.
        if let few = UInt64(exactly: attoseconds) { return Int64(few / 1_000_000_000) + (few % 1_000_000_000 == 0 ? 0 : 1) }
        return saturatedNanosecondsIfLong
    }

    @inline(never) private var saturatedNanosecondsIfLong: Int64 {
        // Not by `components`, whose seconds are an Int64: the longest durations have more.
        let (whole, rest) = attoseconds.quotientAndRemainder(dividingBy: 1_000_000_000)
        return Int64(clamping: rest > 0 ? whole + 1 : whole)
    }
}
