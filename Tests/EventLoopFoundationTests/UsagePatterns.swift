// How well-known libraries use Foundation's run loop, as programs of our own with the same calls. UsagePatternTests run them.
//
// Only the imports are this package's. Where a library calls CoreFoundation, a comment says so.

import EventLoop
import EventLoopFoundation
import EventLoopTestSupport

// MARK: XCTest

/// Runs the loop in the default mode in pieces of a tenth of a second, until it is fulfilled or the time is up, as XCTest's waiter does.
final class Waiter: Sendable {
    private let loop = RunLoop.current
    private let fulfilled = Box(false)

    /// Any thread.
    func fulfill() {
        fulfilled.value = true
        loop._stop()
    }

    func wait(timeout: TimeInterval) -> Bool {
        let end = Date(timeIntervalSinceNow: timeout)
        let timer = Timer(fire: end, interval: 0, repeats: false) { [loop] _ in loop._stop() }
        loop.add(timer, forMode: .default)
        while !fulfilled.value && timer.isValid {
            // In pieces, because a stop that comes just before a run is forgotten.
            _ = loop.run(mode: .default, before: min(end, Date(timeIntervalSinceNow: 0.1)))
        }
        timer.invalidate()
        return fulfilled.value
    }
}

// MARK: PromiseKit

/// A value that comes later. `hang` runs the loop until it is there, as PromiseKit's does.
final class Promise<Value: Sendable>: Sendable {
    private let outcome = Box<Value?>(nil)
    private let loop = RunLoop.current

    /// Any thread. The first value counts. PromiseKit: CFRunLoopStop.
    func resolve(_ value: Value) {
        // In a block, because a stop that comes just before a run is forgotten.
        loop.perform { [self] in
            outcome.change { if $0 == nil { $0 = value } }
            loop._stop()
        }
    }

    func hang() -> Value {
        // PromiseKit: a source without a callback, so that the mode is not empty.
        let alive = loop.keepAlive()
        defer { alive.cancel() }
        while true {  // ends: when the promise is resolved
            if let value = outcome.value { return value }
            _ = loop.run(mode: RunLoop.Mode("kCFRunLoopDefaultMode"), before: .distantFuture)
        }
    }
}

// MARK: Nimble

/// Evaluates a condition every few milliseconds while the loop runs, as `toEventually` does.
struct Poll {
    enum Outcome { case completed, timedOut, blockedRunLoop }

    var interval: TimeInterval
    var timeout: TimeInterval
    /// The loop that watches the time. If it is another thread's, it notices that the polled loop is blocked.
    var watcher = RunLoop.current
    /// How long a loop may be busy after the timeout before it counts as blocked.
    var grace: TimeInterval = 60
    var whenBlocked: @Sendable () -> Void = {}

    /// Returns when the condition holds, or the time is up.
    func wait(until condition: @escaping @Sendable () -> Bool) -> Outcome {
        let (promise, loop) = (Promise<Outcome>(), RunLoop.current)
        let poll = Timer.scheduledTimer(withTimeInterval: interval, repeats: true) { timer in
            if !condition() { return }
            timer.invalidate()
            promise.resolve(.completed)
        }
        // Nimble: CFRunLoopPerformBlock, CFRunLoopStop and a semaphore.
        let timeUp = RunLoop.CustomSource { promise.resolve(.timedOut) }
        loop.add(timeUp, forMode: .default)
        let grace = Timer(timeInterval: timeout + grace, repeats: false) { [whenBlocked] _ in
            promise.resolve(.blockedRunLoop)
            whenBlocked()
        }
        let limit = Timer(timeInterval: timeout, repeats: false) { _ in
            timeUp.signal()
            loop.wakeUp()
        }
        for timer in [limit, grace] { watcher.add(timer, forMode: .default) }
        defer {
            for timer in [poll, limit, grace] { timer.invalidate() }
            timeUp.invalidate()
        }
        return promise.hang()
    }
}

// MARK: OpenCombine

/// Schedules actions on a run loop by its time, which is a date, as OpenCombine's conformance of `RunLoop` does.
struct Scheduler {
    let loop: RunLoop
    var modes: [RunLoop.Mode] = [.default]

    var now: Date { Date() }

    func schedule(_ action: @escaping @Sendable () -> Void) {
        loop.perform(inModes: modes, block: action)
    }

    func schedule(after date: Date, tolerance: TimeInterval, _ action: @escaping @Sendable () -> Void) {
        add(Timer(fire: date, interval: 0, repeats: false) { _ in action() }, tolerance)
    }

    /// Returns what cancels the action.
    func schedule(
        after date: Date, interval: TimeInterval, tolerance: TimeInterval, _ action: @escaping @Sendable () -> Void
    ) -> @Sendable () -> Void {
        let timer = Timer(fire: date, interval: interval, repeats: true) { _ in action() }
        add(timer, tolerance)
        return { timer.invalidate() }
    }

    private func add(_ timer: Timer, _ tolerance: TimeInterval) {
        timer.tolerance = tolerance
        for mode in modes { loop.add(timer, forMode: mode) }
    }
}

// MARK: RxSwift

/// Blocks the thread in a run of its loop until another thread stops it, as RxBlocking's lock does. Locks may be nested.
final class RunLoopLock: Sendable {
    private let loop = RunLoop.current
    private let isStopped = Box(false)

    /// Any thread. RxBlocking: CFRunLoopPerformBlock and CFRunLoopWakeUp.
    func dispatch(_ action: @escaping @Sendable () -> Void) {
        loop.perform(inModes: [.default], block: action)
    }

    /// Any thread. RxBlocking: a block that calls CFRunLoopStop, and CFRunLoopWakeUp.
    func stop() {
        loop.perform(
            inModes: [.default],
            block: { [self] in
                isStopped.value = true
                loop._stop()
            })
    }

    /// Returns false if the time is up. RxBlocking: CFRunLoopRunInMode, and CFRunLoopRun without a limit.
    func run(timeout: TimeInterval? = nil) -> Bool {
        // Nothing but the other thread ends the wait.
        let alive = loop.keepAlive()
        defer { alive.cancel() }
        let end = timeout.map { Date(timeIntervalSinceNow: $0) } ?? .distantFuture
        let limit = Timer(fire: end, interval: 0, repeats: false) { [loop] _ in loop._stop() }
        loop.add(limit, forMode: .default)
        defer { limit.invalidate() }
        while !isStopped.value && limit.isValid { _ = loop.run(mode: .default, before: end) }
        return isStopped.value
    }
}
