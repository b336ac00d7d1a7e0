// Conversion between dates of the wall clock and instants of the monotonic clock.
//
// A date is converted once, when it is passed in. From then on it is an instant: setting the wall clock moves no limit and no timer.

import EventLoop

#if canImport(FoundationEssentials)
import FoundationEssentials
#else
import Foundation
#endif

/// The readings of both clocks at one moment.
struct ClockReading {
    /// Seconds since the reference date.
    let wall: TimeInterval
    /// Not earlier than the moment when `wall` was read.
    let instant: RunLoop.Instant

    /// Reads both clocks. If the thread is interrupted in between, it reads again, a few times.
    init(of now: () -> RunLoop.Instant) {
        var best: (gap: Duration, wall: TimeInterval, instant: RunLoop.Instant)?
        for _ in 0..<4 {
            let before = now()
            let wall = Date().timeIntervalSinceReferenceDate
            let after = now()
            let gap = after - before
            if best.map({ gap < $0.gap }) ?? true { best = (gap, wall, after) }
            if gap < .microseconds(5) { break }
        }
        (wall, instant) = (best!.wall, best!.instant)  // the loop above makes at least one
    }

    /// The instant at which the wall clock, if it is not set, reaches `date`; never earlier.
    ///
    /// Dates more than 292 years away, including `Date.distantFuture` and `Date.distantPast`, are `.distantFuture` or `.distantPast`.
    func instant(of date: Date) -> RunLoop.Instant {
        let seconds = date.timeIntervalSinceReferenceDate
        if seconds.isNaN { return .distantFuture }  // as in CFRunLoop: no date, no limit
        // A date is a Double, at present in steps of 119 ns. It may represent any time up to the next step, so use that.
        let distance = ((seconds.nextUp - wall) * 1e9).rounded(.up)
        if distance >= farAway { return .distantFuture }
        if distance <= -farAway { return .distantPast }
        return instant.advanced(by: .nanoseconds(Int64(distance)))
    }

    func date(of other: RunLoop.Instant) -> Date {
        if other == .distantFuture { return .distantFuture }
        if other == .distantPast { return .distantPast }
        return Date(timeIntervalSinceReferenceDate: wall + (other - instant).timeInterval)
    }
}

/// The first Double that exceeds Int64.
private let farAway = 9_223_372_036_854_775_808.0

extension Duration {
    /// `interval` rounded to nanoseconds; saturates at ±292 years.
    init(_ interval: TimeInterval, _ file: StaticString, _ line: UInt) {
        precondition(!interval.isNaN, "an interval of time must be a number; this one is NaN", file: file, line: line)
        let nanoseconds = (interval * 1e9).rounded()
        self = .nanoseconds(nanoseconds >= farAway ? .max : nanoseconds <= -farAway ? .min : Int64(nanoseconds))
    }

    var timeInterval: TimeInterval {
        let (seconds, attoseconds) = components
        return TimeInterval(seconds) + TimeInterval(attoseconds) / 1e18
    }
}
