// Foundation's forms of making, changing and querying a timer.

public import EventLoop

#if canImport(FoundationEssentials)
public import FoundationEssentials
#else
public import Foundation
#endif

extension RunLoop.Timer {
    /// Makes a timer that fires `interval` seconds from now, once or every `interval`. An interval of zero or less counts as 0.1 ms; NaN is
    /// a precondition failure.
    ///
    /// The first date is one interval from now; Foundation's on Linux fires at once. "Now" is the time of the calling thread's loop: manual
    /// if that uses a `ManualClock`, otherwise the monotonic clock. Thread-safe. Counterpart of Foundation's
    /// `init(timeInterval:repeats:block:)`.
    public convenience init(
        timeInterval interval: TimeInterval, repeats: Bool, file: StaticString = #fileID, line: UInt = #line,
        block: @escaping @Sendable (RunLoop.Timer) -> Void
    ) {
        let duration = Duration(interval, file, line)
        if repeats {
            self.init(every: duration, file: file, line: line, handler: block)
        } else {
            self.init(after: max(duration, .microseconds(100)), file: file, line: line, handler: block)
        }
    }

    /// Makes a timer that fires at `date`, and if it repeats, every `interval` seconds from then on. For a repeating timer, an interval of
    /// zero or less counts as 0.1 ms, and NaN is a precondition failure. Otherwise `interval` is ignored.
    ///
    /// The date is converted once, here. `fireDate` returns it as it was passed. A timer with a date in the past fires in the first pass.
    /// Thread-safe. Counterpart of Foundation's `init(fire:interval:repeats:block:)`.
    public convenience init(
        fire date: Date, interval: TimeInterval, repeats: Bool, file: StaticString = #fileID, line: UInt = #line,
        block: @escaping @Sendable (RunLoop.Timer) -> Void
    ) {
        let instant = ClockReading { RunLoop.presentOfCaller }.instant(of: date)
        self.init(
            fireAt: instant, interval: repeats ? Self.honouredInterval(Duration(interval, file, line), file, line) : nil, file: file,
            line: line, handler: block)
        keepWallDate(date.timeIntervalSinceReferenceDate, convertedTo: instant)
    }

    /// Makes a timer as `init(timeInterval:repeats:block:)` does, and adds it to the calling thread's loop in the default mode. Counterpart
    /// of Foundation's `scheduledTimer(withTimeInterval:repeats:block:)`.
    @available(*, noasync, message: "an async function has no thread of its own; make the timer, and add it to the loop you mean")
    @discardableResult
    public static func scheduledTimer(
        withTimeInterval interval: TimeInterval, repeats: Bool, file: StaticString = #fileID, line: UInt = #line,
        block: @escaping @Sendable (RunLoop.Timer) -> Void
    ) -> RunLoop.Timer {
        let timer = RunLoop.Timer(timeInterval: interval, repeats: repeats, file: file, line: line, block: block)
        RunLoop.current.add(timer)
        return timer
    }

    /// When the timer fires next, as a date; `Date.distantFuture` once the timer is invalid.
    ///
    /// Setting it sets `nextFire`: the date is converted once, and the grid of a repeating timer restarts at that date. Until the timer
    /// moves, the date reads back exactly as it was set, even if somebody sets the wall clock. Any other date is `nextFire` as a date of
    /// the present wall clock, and is accurate to a few microseconds. If the calling thread's loop is in manual time, dates count from its
    /// present. Thread-safe. The first date that is set allocates. Counterpart of Foundation's `fireDate`.
    public var fireDate: Date {
        get {
            if let asSet = wallDateOfNextFire { return Date(timeIntervalSinceReferenceDate: asSet) }
            return ClockReading { RunLoop.presentOfCaller }.date(of: nextFire)
        }
        set {
            let instant = ClockReading { RunLoop.presentOfCaller }.instant(of: newValue)
            setNextFire(instant, convertedFrom: newValue.timeIntervalSinceReferenceDate)
        }
    }

    /// Seconds between two fires; zero when the timer fires once. Thread-safe. Counterpart of Foundation's `timeInterval`.
    public var timeInterval: TimeInterval { interval?.timeInterval ?? 0 }

    /// The core's `tolerance` in seconds: never negative, at most half of `timeInterval`. NaN is a precondition failure. Thread-safe.
    /// Counterpart of Foundation's `tolerance`, which on Linux has no effect.
    ///
    /// The context selects one of the two: `timer.tolerance = 0.1` is this one, `timer.tolerance = .milliseconds(100)` the core's. If both
    /// are possible, as in `let tolerance = timer.tolerance`, it is the core's.
    @_disfavoredOverload
    public var tolerance: TimeInterval {
        get { toleranceAsDuration.timeInterval }
        set { toleranceAsDuration = Duration(newValue, #fileID, #line) }
    }
}
