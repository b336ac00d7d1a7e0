// Conversion between times of the wall clock and instants of a loop's clock.
//
// A time is converted once, when it is passed in. From then on it is an instant: setting the wall clock moves no timer.

import EventLoop
import Synchronization

/// How far the clocks are apart.
struct ClockOffset {
    /// An instant minus the time of the wall clock at the same moment, in nanoseconds.
    private let nanoseconds: Int64

    /// The latest offset that was measured. Two conversions of one instant use the same, so their results are equal.
    private static let latest = Atomic<Int64>(0)

    /// As the calling thread's loop sees the present.
    init() { self.init { RunLoop.presentOfCaller } }

    /// Reads both clocks. If the thread is interrupted in between, it reads again, a few times.
    init(of now: () -> RunLoop.Instant) {
        var best: (gap: Int64, offset: Int64)?
        for _ in 0..<4 {
            let before = now().nanoseconds
            let wall = wallNanoseconds()
            // Not earlier than the moment when `wall` was read, so a timer is late rather than early.
            let after = now().nanoseconds
            if best.map({ after - before < $0.gap }) ?? true { best = (after - before, after &- wall) }
            if after - before < 5_000 { break }
        }
        let measured = best!.offset  // the loop above measures at least once
        let latest = Self.latest.load(ordering: .relaxed)
        let isUnchanged = (-20_000...50_000).contains(latest &- measured)
        nanoseconds = isUnchanged ? latest : measured
        if !isUnchanged { Self.latest.store(measured, ordering: .relaxed) }
    }

    /// The instant at which the wall clock, if it is not set, reaches `time`. `.distantFuture` for NaN, which is no date.
    func instant(of time: CFAbsoluteTime) -> RunLoop.Instant {
        if time.isNaN || time >= farAway { return .distantFuture }
        if time <= -farAway { return .distantPast }
        let seconds = time.rounded(.down)
        let fraction = ((time - seconds) * 1e9).rounded(.up)
        let (sum, overflow) = (Int64(seconds) * 1_000_000_000 + Int64(fraction)).addingReportingOverflow(nanoseconds)
        return overflow ? (time > 0 ? .distantFuture : .distantPast) : RunLoop.Instant(nanoseconds: sum)
    }

    /// The time of the wall clock at `instant`; `distantFuture` or its opposite if there is none. The opposite of `instant(of:)`.
    func time(of instant: RunLoop.Instant) -> CFAbsoluteTime {
        if instant == .distantFuture { return distantFuture }
        if instant == .distantPast { return -distantFuture }
        let (wall, overflow) = instant.nanoseconds.subtractingReportingOverflow(nanoseconds)
        if overflow { return instant.nanoseconds > 0 ? distantFuture : -distantFuture }
        let (seconds, rest) = wall.quotientAndRemainder(dividingBy: 1_000_000_000)
        return CFAbsoluteTime(seconds) + CFAbsoluteTime(rest) / 1e9
    }
}

/// Foundation's `Date.distantFuture`: the year 4001.
private let distantFuture: CFAbsoluteTime = 63_113_904_000

/// About 292 years, in seconds: fewer have a number of nanoseconds.
private let farAway: CFTimeInterval = 9_223_372_036

extension Duration {
    /// `interval` rounded to nanoseconds; saturates at ±292 years. NaN is zero.
    init(_ interval: CFTimeInterval) {
        if interval.isNaN {
            self = .zero
        } else if abs(interval) >= farAway {
            self = .nanoseconds(interval > 0 ? Int64.max : Int64.min)
        } else {
            self = .nanoseconds(Int64((interval * 1e9).rounded()))
        }
    }

    var seconds: CFTimeInterval {
        let (seconds, attoseconds) = components
        return CFTimeInterval(seconds) + CFTimeInterval(attoseconds) / 1e18
    }
}

extension RunLoop {
    /// When a run that lasts `seconds` from now ends, in this loop's time. Owning thread only.
    func deadline(after seconds: CFTimeInterval) -> Instant {
        if seconds <= 0 { return .distantPast }
        return seconds < farAway ? clock.now.advanced(by: Duration(seconds)) : .distantFuture
    }
}
