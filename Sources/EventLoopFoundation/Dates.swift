// Dates of the wall clock and instants of the monotonic clock, one as the other.
//
// A date is looked up on both clocks once, when it is handed over. From there on it is an instant: setting the wall clock moves no
// limit and no timer.

import EventLoop

#if canImport(FoundationEssentials)
import FoundationEssentials
#else
import Foundation
#endif

/// What both clocks showed at one moment.
struct ClockReading {
    /// Seconds since the reference date.
    let wall: TimeInterval
    /// Not earlier than the moment at which `wall` was read.
    let instant: RunLoop.Instant

    /// Reads both. A thread that is interrupted between them reads again, a few times.
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

    /// When the wall clock, if nobody sets it, will have reached `date`; never earlier than that.
    ///
    /// What lies further away than 292 years, `Date.distantFuture` and `Date.distantPast` included, is `.distantFuture` or `.distantPast`.
    func instant(of date: Date) -> RunLoop.Instant {
        let seconds = date.timeIntervalSinceReferenceDate
        if seconds.isNaN { return .distantFuture }  // as in CFRunLoop: no date, no limit
        // A date is a Double, at present in steps of 119 ns: up to the next step it may stand for any of the time before.
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

/// The first Double that has no Int64.
private let farAway = 9_223_372_036_854_775_808.0

extension Duration {
    /// `interval` to the nearest nanosecond; saturates at ±292 years.
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
