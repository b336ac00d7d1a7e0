// CFRunLoop.h: the loop, its modes, and runs.
//
// The types are the package's own: a `CFRunLoop` is a `RunLoop`. So identity, equality and lifetimes need no bookkeeping, and a program may
// use the functions and the methods side by side. The functions have Core Foundation's implicitly unwrapped optionals, because code written
// for them passes and binds optionals; nil is a precondition failure.

public import EventLoop

/// A run loop: the package's own `RunLoop`. See `CFRunLoop`.
// If this is ambiguous: remove the import of CoreFoundation.
public typealias CFRunLoop = RunLoop

/// The name of a mode: the package's own `RunLoop.Mode`. See `CFRunLoopMode`.
///
/// Core Foundation's names of the default and the common modes, `"kCFRunLoopDefaultMode"` and `"kCFRunLoopCommonModes"`, mean `.default` and
/// `.common` in each function of this module.
// If this is ambiguous: remove the import of CoreFoundation.
public typealias CFRunLoopMode = RunLoop.Mode

/// The default mode. See `kCFRunLoopDefaultMode`.
// If this is ambiguous: remove the import of CoreFoundation.
public let kCFRunLoopDefaultMode: CFRunLoopMode! = .default
/// Stands for the set of common modes. A loop cannot run in it. See `kCFRunLoopCommonModes`.
// If this is ambiguous: remove the import of CoreFoundation.
public let kCFRunLoopCommonModes: CFRunLoopMode! = .common

extension RunLoop.Mode {
    /// `kCFRunLoopDefaultMode`, as Swift on Apple's systems names it.
    public static var defaultMode: RunLoop.Mode { .default }
    /// `kCFRunLoopCommonModes`, as Swift on Apple's systems names it.
    public static var commonModes: RunLoop.Mode { .common }

    /// The mode to which Core Foundation gives this name.
    var canonical: RunLoop.Mode {
        switch rawValue {
        case "kCFRunLoopDefaultMode": .default
        case "kCFRunLoopCommonModes": .common
        default: self
        }
    }
}

/// Why a run returned. See `CFRunLoopRunInMode`.
#if hasAttribute(nonexhaustive)
@nonexhaustive(warn)
#endif
public enum CFRunLoopRunResult: Int32, Sendable {
    /// The mode was or became empty, or is no mode that a loop can run in.
    case finished = 1
    /// `CFRunLoopStop` ended the run.
    case stopped = 2
    /// The time passed.
    case timedOut = 3
    /// A source was handled, and the run was to return then.
    case handledSource = 4

    init(_ result: RunLoop.RunResult) {
        self =
            switch result {
            case .finished: .finished
            case .stopped: .stopped
            case .timedOut: .timedOut
            case .handledSource: .handledSource
            }
    }
}

/// The moments of a run that observers are notified of: the package's own `RunLoop.Activity`. See `CFRunLoopActivity`.
// If this is ambiguous: remove the import of CoreFoundation.
public typealias CFRunLoopActivity = RunLoop.Activity

extension RunLoop.Activity {
    /// Every activity. Has Core Foundation's value, 0x0FFFFFFF. See `kCFRunLoopAllActivities`.
    public static var allActivities: RunLoop.Activity { RunLoop.Activity(rawValue: 0x0FFF_FFFF) }
}

/// The number of the type of run loops. Thread-safe. See `CFRunLoopGetTypeID`.
public func CFRunLoopGetTypeID() -> CFTypeID { 1 }

// MARK: Which loop

/// The calling thread's loop, made on first use and ended when the thread exits.
///
/// Traps if the process has no descriptors left for it. See `CFRunLoopGetCurrent`.
@available(*, noasync, message: "an async function has no thread of its own; keep the CFRunLoop you mean")
// If this is ambiguous: remove the import of CoreFoundation.
public func CFRunLoopGetCurrent() -> CFRunLoop! { RunLoop.current }

/// The main thread's loop. Thread-safe. See `CFRunLoopGetMain`.
// If this is ambiguous: remove the import of CoreFoundation.
public func CFRunLoopGetMain() -> CFRunLoop! { RunLoop.main }

// MARK: Running

/// Runs the calling thread's loop in the default mode until it is stopped or the mode is empty.
///
/// Calls out. A pass that performs blocks sleeps even if nothing else is in the mode: see `CFRunLoopRunInMode(_:_:_:)`. See `CFRunLoopRun`.
@available(*, noasync, message: "a run blocks its thread; let a RunLoopThread run the loop, or the main thread")
// If this is ambiguous: remove the import of CoreFoundation.
public func CFRunLoopRun() { /* DOES CALLOUT */
    _ = RunLoop.current.run(.default, limit: .max, returnsAfterSource: false, sleepsAfterBlocks: true)
}

/// Runs the calling thread's loop in `mode` for `seconds`, or until it is stopped or the mode is empty; with `returnAfterSourceHandled`, until
/// a source was handled.
///
/// With zero or fewer seconds, the loop makes one pass that does not sleep. NaN, and about 292 years or more, are no limit. If the mode is
/// empty, was never made, or is `kCFRunLoopCommonModes`, returns `.finished` at once.
///
/// A pass that performs blocks sleeps even if nothing else is in the mode, as in Core Foundation, until a block of another thread and a
/// wake-up, a stop, or the limit. `RunLoop.run(mode:for:)` returns `.finished` instead. Calls out. May be called in any callback, in any mode. See
/// `CFRunLoopRunInMode`.
@available(*, noasync, message: "a run blocks its thread; let a RunLoopThread run the loop, or the main thread")
@discardableResult
// If this is ambiguous: remove the import of CoreFoundation.
public func CFRunLoopRunInMode(
    _ mode: CFRunLoopMode!, _ seconds: CFTimeInterval, _ returnAfterSourceHandled: Bool
) -> CFRunLoopRunResult { /* DOES CALLOUT */
    guard let mode else { return .finished }
    let loop = RunLoop.current
    return CFRunLoopRunResult(
        loop.run(
            mode.canonical, limit: loop.deadline(after: seconds).nanoseconds, returnsAfterSource: returnAfterSourceHandled,
            sleepsAfterBlocks: true))
}

/// Whether the loop's thread sleeps in a run. False in every callback. Thread-safe. See `CFRunLoopIsWaiting`.
public func CFRunLoopIsWaiting(_ rl: CFRunLoop!) -> Bool { given(rl, "run loop").isWaiting }

/// Makes a sleeping loop do one more pass. May be called in a signal handler, unlike Core Foundation's. Thread-safe. See `CFRunLoopWakeUp`.
// If this is ambiguous: remove the import of CoreFoundation.
public func CFRunLoopWakeUp(_ rl: CFRunLoop!) { given(rl, "run loop").wakeUp() }

/// Ends the innermost run in progress. If there is none, does nothing: the next run is not stopped.
///
/// May be called in a signal handler, unlike Core Foundation's; but not in a debug build if the thread has Core Foundation's loop too.
/// Such a build reports `.otherLoopRuns` if that loop runs on the calling thread, and this one does not. Thread-safe. See `CFRunLoopStop`.
// If this is ambiguous: remove the import of CoreFoundation.
public func CFRunLoopStop(_ rl: CFRunLoop!) {
    let loop = given(rl, "run loop")
    loop.stop()
    #if DEBUG
    warnIfStopMissesRun(of: loop)
    #endif
}

// MARK: Modes

/// The mode of the innermost run in progress; nil outside any run. Thread-safe. See `CFRunLoopCopyCurrentMode`.
public func CFRunLoopCopyCurrentMode(_ rl: CFRunLoop!) -> CFRunLoopMode! { given(rl, "run loop").currentMode }

/// The modes of the loop, in no order; `kCFRunLoopCommonModes` is never among them. Thread-safe. O(modes). See `CFRunLoopCopyAllModes`.
public func CFRunLoopCopyAllModes(_ rl: CFRunLoop!) -> [CFRunLoopMode]! { Array(given(rl, "run loop").modes) }

/// Makes a mode one of the common modes, for good.
///
/// Calls `schedule` of the sources that were added to the common modes, on the calling thread. Adding `kCFRunLoopCommonModes` itself is a
/// precondition failure. Thread-safe. See `CFRunLoopAddCommonMode`.
public func CFRunLoopAddCommonMode(_ rl: CFRunLoop!, _ mode: CFRunLoopMode!) { /* DOES CALLOUT */
    given(rl, "run loop").addCommonMode(given(mode, "mode").canonical)
}

/// When the mode's next timer fires, in seconds since January 1, 2001; zero if no timer of the mode has a date. Thread-safe. O(n) in the
/// loop's timers. See `CFRunLoopGetNextTimerFireDate`.
public func CFRunLoopGetNextTimerFireDate(_ rl: CFRunLoop!, _ mode: CFRunLoopMode!) -> CFAbsoluteTime {
    let loop = given(rl, "run loop")
    guard let next = loop.nextTimerFire(forMode: given(mode, "mode").canonical) else { return 0 }
    return ClockOffset { loop.clock.now }.time(of: next)
}

// MARK: Blocks

/// Queues a block, which the loop performs once in `mode`, or in any common mode. Does not wake the loop: call `CFRunLoopWakeUp(_:)`.
///
/// Blocks are performed in order. They are not handled sources. If the loop has ended, the block is not performed. Thread-safe. See
/// `CFRunLoopPerformBlock`.
@preconcurrency
public func CFRunLoopPerformBlock(
    _ rl: CFRunLoop!, _ mode: CFRunLoopMode!, file: StaticString = #fileID, line: UInt = #line, _ block: (@Sendable () -> Void)!
) {
    CFRunLoopPerformBlock(rl, [given(mode, "mode")], file: file, line: line, block)
}

/// The same with the raw value of a mode, which on Apple's systems is the argument.
@preconcurrency
public func CFRunLoopPerformBlock(
    _ rl: CFRunLoop!, _ mode: String, file: StaticString = #fileID, line: UInt = #line, _ block: (@Sendable () -> Void)!
) {
    CFRunLoopPerformBlock(rl, [CFRunLoopMode(mode)], file: file, line: line, block)
}

/// The same in the first run of any of several modes. With an empty list the block is not performed.
@preconcurrency
public func CFRunLoopPerformBlock(
    _ rl: CFRunLoop!, _ modes: [CFRunLoopMode], file: StaticString = #fileID, line: UInt = #line, _ block: (@Sendable () -> Void)!
) {
    given(rl, "run loop").performBlock(inModes: modes.map(\.canonical), file: file, line: line, given(block, "block"))
}
