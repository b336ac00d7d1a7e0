// Foundation's forms of running a loop, with Foundation's labels and rules and without its defects.
//
// Where a call could be meant for the core, the core's wins: `run(until: .distantFuture)` takes an `Instant` and returns a `RunResult`,
// also in a file that imports both. `@_disfavoredOverload` says so to the compiler; OverloadTests hold it to that.

public import EventLoop

#if canImport(FoundationEssentials)
public import FoundationEssentials
#else
public import Foundation
#endif

extension RunLoop {
    /// Runs in the default mode until `limitDate`, again after every source; returns earlier only when the mode is empty, or when the
    /// thread was told to stop by its `RunLoopThread`.
    ///
    /// `stop()` ends one of the runs that this is made of and not the whole, as in Foundation; the core's `run(until:)`, which takes an
    /// `Instant`, ends with a stop. A date that has passed makes one pass that does not sleep. The date is looked up on the wall clock
    /// once, when the call begins. On the owning thread only (a precondition failure elsewhere); calls out. Counterpart of Foundation's
    /// `run(until:)`.
    @available(*, noasync)
    @_disfavoredOverload
    public func run(until limitDate: Date) { /* DOES CALLOUT */
        let deadline = instant(of: limitDate)
        while runOnce(.default, until: deadline), clock.now < deadline {}  // ends: by the date, an empty mode or the thread's stop
    }

    /// Runs once in `mode`, until a source was handled or `limitDate` has come. False when there was no run: the mode is empty, unknown or
    /// `.common`, or the thread was told to stop by its `RunLoopThread`. Look at it: who runs again without noticing burns a core.
    ///
    /// True after a handled source, at the limit, after `stop()`, and when the mode became empty. A timer alone does not end the run. A date
    /// that has passed makes one pass that does not sleep. The date is looked up on the wall clock once, when the call begins. On the owning
    /// thread only (a precondition failure elsewhere; Foundation returns false); calls out. Counterpart of Foundation's `run(mode:before:)`.
    @available(*, noasync)
    public func run(mode: Mode, before limitDate: Date) -> Bool { /* DOES CALLOUT */
        runOnce(mode, until: instant(of: limitDate))
    }

    /// Runs once in `mode`, until a source was handled or `limitDate` has come. On the owning thread only; calls out. Counterpart of
    /// Foundation's `acceptInput(forMode:before:)`.
    @available(*, noasync)
    public func acceptInput(forMode mode: Mode, before limitDate: Date) { /* DOES CALLOUT */
        _ = runOnce(mode, until: instant(of: limitDate))
    }

    /// The same for a mode given by its name, as Foundation on Linux has it. Foundation's names of the default and the common modes
    /// (`kCFRunLoopDefaultMode`, `NSDefaultRunLoopMode`, `kCFRunLoopCommonModes`, `NSRunLoopCommonModes`) mean `.default` and `.common`.
    @available(*, noasync)
    public func acceptInput(forMode mode: String, before limitDate: Date) { /* DOES CALLOUT */
        acceptInput(forMode: Mode(foundationName: mode), before: limitDate)
    }

    /// Makes one pass in `mode` that does not sleep, and returns when the next timer of the mode is due: `Date.distantFuture` when it has no
    /// timer with a date, nil when it is empty.
    ///
    /// The pass serves what is ready, timers included, as Foundation's does; `nextTimerFire(forMode:)` asks without it. On the owning thread
    /// only (a precondition failure elsewhere; Foundation returns nil); calls out. O(n) in the loop's timers. Counterpart of Foundation's
    /// `limitDate(forMode:)`.
    @available(*, noasync)
    public func limitDate(forMode mode: Mode) -> Date? { /* DOES CALLOUT */
        guard runOnce(mode, until: .distantPast), !isFinished(mode) else { return nil }
        return nextTimerFire(forMode: mode).map(ClockReading { clock.now }.date) ?? .distantFuture
    }

    /// Performs `block` once in the next pass of any of `modes`: `perform(inModes:_:)` with Foundation's label.
    ///
    /// Wakes the loop and counts as a handled source, so a run that waits for it returns; Foundation's on Linux does neither. False when the
    /// loop has ended. Thread-safe.
    @_disfavoredOverload
    @discardableResult
    public func perform(inModes modes: [Mode], block: @escaping @Sendable () -> Void) -> Bool {
        perform(inModes: modes, block)
    }

    private func instant(of date: Date) -> Instant { ClockReading { clock.now }.instant(of: date) }

    private func runOnce(_ mode: Mode, until deadline: Instant) -> Bool { /* DOES CALLOUT */
        if isFinished(mode) || isOver { return false }
        _ = run(mode: mode, until: deadline, returnAfterSourceHandled: true)
        return true
    }
}

extension RunLoop.Mode {
    /// The mode that Foundation and CFRunLoop mean by `name`.
    init(foundationName name: String) {
        switch name {
        case "kCFRunLoopDefaultMode", "NSDefaultRunLoopMode": self = .default
        case "kCFRunLoopCommonModes", "NSRunLoopCommonModes": self = .common
        default: self.init(name)
        }
    }
}
