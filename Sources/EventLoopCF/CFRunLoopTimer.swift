// CFRunLoop.h: timers.

public import EventLoop

/// A timer: the package's own `RunLoop.Timer`. See `CFRunLoopTimer`.
// If this is ambiguous: remove the import of CoreFoundation.
public typealias CFRunLoopTimer = RunLoop.Timer

/// What a timer calls. A C function, a global function, or a closure. See `CFRunLoopTimerCallBack`.
public typealias CFRunLoopTimerCallBack = @Sendable (CFRunLoopTimer?, UnsafeMutableRawPointer?) -> Void

/// The `info` of a timer's callback. See `CFRunLoopTimerContext`.
// If this is ambiguous: remove the import of CoreFoundation.
public struct CFRunLoopTimerContext {
    /// Zero.
    public var version: CFIndex
    /// Passed to the callback.
    public var info: UnsafeMutableRawPointer?
    /// Called once with `info` when the timer is made. The callback gets its result.
    public var retain: (@convention(c) (UnsafeRawPointer?) -> UnsafeRawPointer?)!
    /// Called once when the timer is invalid and no callback is in progress.
    public var release: (@convention(c) (UnsafeRawPointer?) -> Void)!
    /// Never called.
    public var copyDescription: (@Sendable (UnsafeRawPointer?) -> String?)!

    /// Without `info` and functions.
    // If this is ambiguous: remove the import of CoreFoundation.
    public init() { self.init(version: 0, info: nil, retain: nil, release: nil, copyDescription: nil) }

    /// Every field, in the order of the C structure.
    public init(
        version: CFIndex, info: UnsafeMutableRawPointer!, retain: (@convention(c) (UnsafeRawPointer?) -> UnsafeRawPointer?)!,
        release: (@convention(c) (UnsafeRawPointer?) -> Void)!, copyDescription: (@Sendable (UnsafeRawPointer?) -> String?)!
    ) {
        (self.version, self.info, self.retain, self.release) = (version, info, retain, release)
        self.copyDescription = copyDescription
    }
}

extension CFRunLoopTimerContext: ConstantInfoContext {}

/// The number of the type of timers. Thread-safe. See `CFRunLoopTimerGetTypeID`.
public func CFRunLoopTimerGetTypeID() -> CFTypeID { 4 }

/// Makes a timer that fires at `fireDate`, in seconds since January 1, 2001, and then every `interval` seconds. If the interval is zero or
/// less, the timer fires once.
///
/// The date is converted once, here: setting the wall clock does not move the timer. A timer with a date in the past fires in the first
/// pass. An interval below 0.1 ms counts as 0.1 ms; NaN is a precondition failure. `flags` and `order` have no effect, as in Core Foundation. The
/// context may be nil. It is copied; its `retain` is called here, on the calling thread. Never returns nil. Thread-safe. See
/// `CFRunLoopTimerCreate`.
// If this is ambiguous: remove the import of CoreFoundation.
public func CFRunLoopTimerCreate(
    _ allocator: CFAllocator!, _ fireDate: CFAbsoluteTime, _ interval: CFTimeInterval, _ flags: CFOptionFlags, _ order: CFIndex,
    _ callout: CFRunLoopTimerCallBack!, _ context: UnsafeMutablePointer<CFRunLoopTimerContext>!, file: StaticString = #fileID,
    line: UInt = #line
) -> CFRunLoopTimer! { /* DOES CALLOUT */
    let callout = given(callout, "callout")
    let retained = RetainedContext(context?.pointee ?? CFRunLoopTimerContext())
    let timer = makeTimer(fireDate, interval, order, file, line) { timer in callout(timer, retained.info) }
    if context != nil { timer.attachment = retained }
    return timer
}

/// Makes a timer that calls a closure at `fireDate`, in seconds since January 1, 2001, and then every `interval` seconds. If the interval is
/// zero or less, the timer fires once.
///
/// The closure is released when the timer is invalid. Otherwise as `CFRunLoopTimerCreate`. See `CFRunLoopTimerCreateWithHandler`.
@preconcurrency
// If this is ambiguous: remove the import of CoreFoundation.
public func CFRunLoopTimerCreateWithHandler(
    _ allocator: CFAllocator!, _ fireDate: CFAbsoluteTime, _ interval: CFTimeInterval, _ flags: CFOptionFlags, _ order: CFIndex,
    file: StaticString = #fileID, line: UInt = #line, _ block: (@Sendable (CFRunLoopTimer?) -> Void)!
) -> CFRunLoopTimer! {
    let block = given(block, "block")
    return makeTimer(fireDate, interval, order, file, line) { timer in block(timer) }
}

private func makeTimer(
    _ fireDate: CFAbsoluteTime, _ interval: CFTimeInterval, _ order: CFIndex, _ file: StaticString, _ line: UInt,
    _ handler: @escaping @Sendable (RunLoop.Timer) -> Void
) -> RunLoop.Timer {
    precondition(!interval.isNaN, "a timer's interval must be a number of seconds; this one is NaN", file: file, line: line)
    // An interval that rounds to zero nanoseconds repeats.
    let duration = interval > 0 ? max(Duration(interval), .nanoseconds(1)) : nil
    let instant = ClockOffset().instant(of: fireDate)
    let timer = RunLoop.Timer(fireAt: instant, interval: duration, order: order, file: file, line: line, handler: handler)
    timer.keepWallDate(fireDate, convertedTo: instant)
    return timer
}

/// When the timer fires next, in seconds since January 1, 2001; zero if the timer is invalid. A date that was set reads back as it was set.
/// While the callback runs, the date that fires. Thread-safe. See `CFRunLoopTimerGetNextFireDate`.
public func CFRunLoopTimerGetNextFireDate(_ timer: CFRunLoopTimer!) -> CFAbsoluteTime {
    let timer = given(timer, "timer")
    if let asSet = timer.wallDateOfNextFire { return asSet }
    let next = timer.nextFire
    return timer.isValid ? ClockOffset().time(of: next) : 0
}

/// Sets the timer's next date, in seconds since January 1, 2001, and restarts a repeating timer's grid there. Reaches a sleeping loop at
/// once. Does nothing to an invalid timer. Thread-safe. See `CFRunLoopTimerSetNextFireDate`.
public func CFRunLoopTimerSetNextFireDate(_ timer: CFRunLoopTimer!, _ fireDate: CFAbsoluteTime) {
    given(timer, "timer").setNextFire(ClockOffset().instant(of: fireDate), convertedFrom: fireDate)
}

/// Seconds between two dates; zero if the timer fires once. Thread-safe. See `CFRunLoopTimerGetInterval`.
public func CFRunLoopTimerGetInterval(_ timer: CFRunLoopTimer!) -> CFTimeInterval { given(timer, "timer").interval?.seconds ?? 0 }

/// False if the timer fires once. Thread-safe. See `CFRunLoopTimerDoesRepeat`.
public func CFRunLoopTimerDoesRepeat(_ timer: CFRunLoopTimer!) -> Bool { given(timer, "timer").interval != nil }

/// The order that the timer was made with, which has no effect. Thread-safe. See `CFRunLoopTimerGetOrder`.
public func CFRunLoopTimerGetOrder(_ timer: CFRunLoopTimer!) -> CFIndex { given(timer, "timer").order }

/// Removes the timer from every mode, for good. Its context is released when no callback is in progress. Thread-safe. See
/// `CFRunLoopTimerInvalidate`.
public func CFRunLoopTimerInvalidate(_ timer: CFRunLoopTimer!) { /* DOES CALLOUT */ given(timer, "timer").invalidate() }

/// False after the timer was invalidated, or after a timer that fires once has fired. Thread-safe. See `CFRunLoopTimerIsValid`.
public func CFRunLoopTimerIsValid(_ timer: CFRunLoopTimer!) -> Bool { given(timer, "timer").isValid }

/// Writes the context that the timer was made with to `context`, with the `info` that `retain` returned. Of a timer whose context was
/// released, or that was made with a closure, writes an empty context. Thread-safe. See `CFRunLoopTimerGetContext`.
public func CFRunLoopTimerGetContext(_ timer: CFRunLoopTimer!, _ context: UnsafeMutablePointer<CFRunLoopTimerContext>!) {
    let retained = given(timer, "timer").attachment as? RetainedContext<CFRunLoopTimerContext>
    given(context, "context").pointee = retained?.context ?? CFRunLoopTimerContext()
}

/// How many seconds late the timer may fire: at least zero, at most half the interval. Thread-safe. See `CFRunLoopTimerGetTolerance`.
public func CFRunLoopTimerGetTolerance(_ timer: CFRunLoopTimer!) -> CFTimeInterval { given(timer, "timer").tolerance.seconds }

/// Sets how many seconds late the timer may fire, so that one wake-up can serve several. Thread-safe. See `CFRunLoopTimerSetTolerance`.
public func CFRunLoopTimerSetTolerance(_ timer: CFRunLoopTimer!, _ tolerance: CFTimeInterval) {
    given(timer, "timer").tolerance = Duration(tolerance)
}

// MARK: Timers in modes

/// Whether the timer is in the mode; for `kCFRunLoopCommonModes`, whether it was added to the common modes. Thread-safe. See
/// `CFRunLoopContainsTimer`.
public func CFRunLoopContainsTimer(_ rl: CFRunLoop!, _ timer: CFRunLoopTimer!, _ mode: CFRunLoopMode!) -> Bool {
    given(rl, "run loop").contains(given(timer, "timer"), forMode: given(mode, "mode").canonical)
}

/// Adds the timer to a mode, or to all common modes. A timer that is invalid or in another loop is not added. Reaches a sleeping loop at
/// once. Thread-safe. See `CFRunLoopAddTimer`.
public func CFRunLoopAddTimer(_ rl: CFRunLoop!, _ timer: CFRunLoopTimer!, _ mode: CFRunLoopMode!) {
    given(rl, "run loop").add(given(timer, "timer"), forMode: given(mode, "mode").canonical)
}

/// Removes the timer from a mode, or from all common modes. It stays valid. Thread-safe. See `CFRunLoopRemoveTimer`.
public func CFRunLoopRemoveTimer(_ rl: CFRunLoop!, _ timer: CFRunLoopTimer!, _ mode: CFRunLoopMode!) {
    given(rl, "run loop").remove(given(timer, "timer"), forMode: given(mode, "mode").canonical)
}
