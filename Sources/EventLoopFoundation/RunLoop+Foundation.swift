// Foundation's forms of running a loop, with its labels and rules, but without its defects.
//
// If a call is ambiguous, the core's form wins: `run(until: .distantFuture)` takes an `Instant` and returns a `RunResult`, even in a file
// that imports both. `@_disfavoredOverload` makes it so, and OverloadTests check it.

public import EventLoop

#if canImport(FoundationEssentials)
public import FoundationEssentials
#else
public import Foundation
#endif

extension RunLoop {
    /// Runs in the default mode until `limitDate`, again after every source. Returns earlier only if the mode is empty, or if the thread
    /// was stopped by its `RunLoopThread`.
    ///
    /// The call makes one run after another, and `stop()` ends only one of them, as in Foundation. The core's `run(until:)`, which takes an
    /// `Instant`, ends with a stop. With a date that has passed, the loop makes one pass that does not sleep. The date is converted once,
    /// when the call begins. On the owning thread only (a precondition failure elsewhere). Calls out. Counterpart of Foundation's
    /// `run(until:)`.
    @available(*, noasync, message: "a run blocks its thread; run the loop on a RunLoopThread or the main thread; tasks call performAsync")
    @_disfavoredOverload
    public func run(until limitDate: Date) { /* DOES CALLOUT */
        let deadline = instant(of: limitDate)
        while runOnce(.default, until: deadline), clock.now < deadline {}  // ends: by the date, an empty mode or the thread's stop
    }

    /// Runs once in `mode`, until a source was handled or `limitDate` has come. Returns false if there was no run: the mode is empty,
    /// unknown or `.common`, or the thread was stopped by its `RunLoopThread`. Check the result: a caller that ignores false and runs
    /// again uses a whole processor.
    ///
    /// Returns true after a handled source, at the limit, after `stop()`, and if the mode became empty. A timer alone does not end the run.
    /// With a date that has passed, the loop makes one pass that does not sleep. The date is converted once, when the call begins. On the
    /// owning thread only (a precondition failure elsewhere; Foundation returns false). Calls out. Counterpart of Foundation's
    /// `run(mode:before:)`.
    @available(*, noasync, message: "a run blocks its thread; run the loop on a RunLoopThread or the main thread; tasks call performAsync")
    public func run(mode: Mode, before limitDate: Date) -> Bool { /* DOES CALLOUT */
        runOnce(mode, until: instant(of: limitDate))
    }

    /// Runs once in `mode`, until a source was handled or `limitDate` has come. On the owning thread only. Calls out. Counterpart of
    /// Foundation's `acceptInput(forMode:before:)`.
    @available(*, noasync, message: "a run blocks its thread; run the loop on a RunLoopThread or the main thread; tasks call performAsync")
    public func acceptInput(forMode mode: Mode, before limitDate: Date) { /* DOES CALLOUT */
        _ = runOnce(mode, until: instant(of: limitDate))
    }

    /// The same with the name of a mode, as in Foundation on Linux. See `Mode` for Foundation's names of the default and the common modes.
    @available(*, noasync, message: "a run blocks its thread; run the loop on a RunLoopThread or the main thread; tasks call performAsync")
    public func acceptInput(forMode mode: String, before limitDate: Date) { /* DOES CALLOUT */
        acceptInput(forMode: Mode(mode), before: limitDate)
    }

    /// Makes one pass in `mode` that does not sleep, and returns the next date of the mode's timers: `Date.distantFuture` if no timer has a
    /// date, nil if the mode is empty.
    ///
    /// The pass serves what is ready, including timers, as Foundation's does; `nextTimerFire(forMode:)` returns the date without a pass. On
    /// the owning thread only (a precondition failure elsewhere; Foundation returns nil). Calls out. O(n) in the loop's timers. Counterpart
    /// of Foundation's `limitDate(forMode:)`.
    @available(*, noasync, message: "a run blocks its thread; run the loop on a RunLoopThread or the main thread; tasks call performAsync")
    public func limitDate(forMode mode: Mode) -> Date? { /* DOES CALLOUT */
        guard runOnce(mode, until: .distantPast), !isFinished(mode) else { return nil }
        return nextTimerFire(forMode: mode).map(ClockReading { clock.now }.date) ?? .distantFuture
    }

    /// Ends the innermost run in progress: `stop()` under the name that XCTest uses. Thread-safe. Counterpart of `_stop()` in Foundation on
    /// Linux.
    public func _stop() { stop() }

    /// Performs `block` once in the next pass of any of `modes`: `perform(inModes:_:)` with Foundation's label.
    ///
    /// Wakes the loop and counts as a handled source, so a run that waits for it returns; Foundation's on Linux does neither. Returns false
    /// if the loop has ended. Thread-safe.
    @_disfavoredOverload
    @discardableResult
    public func perform(inModes modes: [Mode], block: @escaping @Sendable () -> Void) -> Bool {
        perform(inModes: modes, block)
    }

    private func instant(of date: Date) -> Instant { ClockReading { clock.now }.instant(of: date) }

    private func runOnce(_ mode: Mode, until deadline: Instant) -> Bool { /* DOES CALLOUT */
        // First, because it checks the thread.
        if isFinished(mode, reports: !isOver) || isOver { return false }
        _ = run(mode: mode, until: deadline, returnAfterSourceHandled: true)
        return true
    }
}
