import EventLoopLibC

extension RunLoop {
    /// A point in civil time, as CLOCK_REALTIME counts it: nanoseconds since 1970-01-01T00:00:00Z, without leap seconds.
    ///
    /// Arithmetic saturates, as that of `Instant` does; `distantFuture` does not move. The range is 1677 to 2262. For time zones, months and
    /// daylight saving use Foundation. Thread-safe. Corresponds to `CFAbsoluteTime`, which counts from 2001.
    public struct WallTime: Sendable, Hashable, Comparable, CustomStringConvertible {
        /// Since 1970-01-01T00:00:00Z; negative before it.
        public var nanosecondsSince1970: Int64
        /// Makes a point in time from a reading of the wall clock.
        public init(nanosecondsSince1970: Int64) { self.nanosecondsSince1970 = nanosecondsSince1970 }
        /// What the system's wall clock says. A loop with a `ManualClock` has a wall time of its own: `RunLoop.wallTime`.
        public static var now: WallTime { WallTime(nanosecondsSince1970: Instant.nanoseconds(of: CLOCK_REALTIME)) }
        /// Later than every other time. Means "no date".
        public static let distantFuture = WallTime(nanosecondsSince1970: .max)
        /// `time` moved into the future by `duration`. Fractions of a nanosecond are rounded up.
        public static func + (time: WallTime, duration: Duration) -> WallTime { WallTime(time.instant + duration) }
        /// `time` moved into the past by `duration`.
        public static func - (time: WallTime, duration: Duration) -> WallTime { WallTime(time.instant - duration) }
        /// The time from `other` to `time`; negative if `time` is earlier. Saturates at ±292 years.
        public static func - (time: WallTime, other: WallTime) -> Duration { time.instant - other.instant }
        public static func < (time: WallTime, other: WallTime) -> Bool { time.nanosecondsSince1970 < other.nanosecondsSince1970 }

        /// ISO 8601 in UTC, with as many digits after the point as it takes: `2026-11-25T03:00:00Z`.
        public var description: String {
            let (seconds, fraction) = nanosecondsSince1970.dividedDown(by: 1_000_000_000)
            let (days, second) = seconds.dividedDown(by: 86_400)
            let date = Self.date(ofDay: days)
            let time = [second / 3_600, second / 60 % 60, second % 60].map { Self.digits($0, 2) }.joined(separator: ":")
            var text = "\(Self.digits(date.year, 4))-\(Self.digits(date.month, 2))-\(Self.digits(date.day, 2))T\(time)"
            if fraction > 0 {
                var digits = Self.digits(fraction, 9)
                while digits.last == "0" { digits.removeLast() }  // ends: the fraction is not zero
                text += ".\(digits)"
            }
            return text + "Z"
        }

        private var instant: Instant { Instant(nanoseconds: nanosecondsSince1970) }
        private init(_ instant: Instant) { nanosecondsSince1970 = instant.nanoseconds }

        /// The Gregorian date of a day since 1970-01-01. Years begin in March here: a leap day is a year's last, and 400 years are equally long.
        private static func date(ofDay day: Int64) -> (year: Int64, month: Int64, day: Int64) {
            let (era, dayOfEra) = (day + 719_468).dividedDown(by: 146_097)  // 719,468 days from 0000-03-01 to 1970-01-01
            let yearOfEra = (dayOfEra - dayOfEra / 1_460 + dayOfEra / 36_524 - dayOfEra / 146_096) / 365
            let dayOfYear = dayOfEra - (365 * yearOfEra + yearOfEra / 4 - yearOfEra / 100)
            let month = (5 * dayOfYear + 2) / 153  // five months have 153 days
            let isNextYear = month >= 10
            return (era * 400 + yearOfEra + (isNextYear ? 1 : 0), isNextYear ? month - 9 : month + 3, dayOfYear - (153 * month + 2) / 5 + 1)
        }

        private static func digits(_ number: Int64, _ count: Int) -> String {
            let text = String(number)
            return String(repeating: "0", count: max(0, count - text.utf8.count)) + text
        }
    }
}

extension Int64 {
    /// Rounds down, also below zero; the remainder is never negative.
    fileprivate func dividedDown(by divisor: Int64) -> (quotient: Int64, remainder: Int64) {
        let (quotient, remainder) = quotientAndRemainder(dividingBy: divisor)
        return remainder < 0 ? (quotient - 1, remainder + divisor) : (quotient, remainder)
    }
}
