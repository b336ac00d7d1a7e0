// Waits for XCTest's expectations while this package's run loop runs.
//
// XCTest's own waits run Foundation's loop of the calling thread, so timers and sources on this package's loop stand still, and the wait
// times out. Here XCTest waits on a thread of its own, as it does for `fulfillment(of:)`, and the calling thread runs its loop. XCTest
// decides what is fulfilled, in which order, when the time is up, and what it reports.

public import EventLoop
internal import Synchronization
public import XCTest

extension XCTestCase {
    /// Waits for the expectations, and runs `loop` in the default mode in the meantime. Failures are recorded as by
    /// `wait(for:timeout:enforceOrder:)`.
    ///
    /// `timeout` is in seconds of real time, also if the loop is in manual time. On the loop's thread only (a precondition failure
    /// elsewhere). Calls out. Counterpart of XCTest's `wait(for:timeout:enforceOrder:)`, which runs Foundation's loop.
    @available(*, noasync, message: "a wait blocks its thread; use await fulfillment(of:timeout:enforceOrder:)")
    public func wait(
        for expectations: [XCTestExpectation], timeout: TimeInterval, enforceOrder: Bool = false, running loop: EventLoop.RunLoop,
        file: StaticString = #filePath, line: Int = #line
    ) { /* DOES CALLOUT */
        XCTWaiter(delegate: self).wait(
            for: expectations, timeout: timeout, enforceOrder: enforceOrder, running: loop, file: file, line: line)
    }
}

extension XCTWaiter {
    /// Waits for the expectations, and runs `loop` in the default mode in the meantime. Returns how the wait ended.
    ///
    /// `stop()` ends a run of the loop, but not the wait. If the thread's `RunLoopThread` is stopped, the loop does not run any more, and
    /// the wait goes on until the expectations are fulfilled or the time is up. Waits can be nested; an outer wait that times out does not
    /// interrupt an inner one. Predicate expectations are evaluated by Foundation's loop; for them the wait makes a pass of that loop every
    /// 10 ms. If no thread can be started, the wait does not begin: the current test fails, and the result is `.interrupted`.
    ///
    /// `timeout` is in seconds of real time, also if the loop is in manual time. On the loop's thread only (a precondition failure
    /// elsewhere). Calls out. Creates a thread. Counterpart of XCTest's `wait(for:timeout:enforceOrder:)`, which runs Foundation's loop.
    @available(*, noasync, message: "a wait blocks its thread; use await fulfillment(of:timeout:enforceOrder:)")
    @discardableResult
    public func wait(
        for expectations: [XCTestExpectation], timeout: TimeInterval, enforceOrder: Bool = false, running loop: EventLoop.RunLoop,
        file: StaticString = #filePath, line: Int = #line
    ) -> Result { /* DOES CALLOUT */
        precondition(loop.isCurrent, "a wait runs its loop, which belongs to another thread; wait on that thread, or pass .current")
        let alive = loop.keepAlive()
        defer { alive.cancel() }
        let polls = expectations.contains { $0 is XCTNSPredicateExpectation }
        let wait = WaitOnThread()
        let ending = endOfWait(wait, on: loop)
        defer { ending.invalidate() }
        // SAFETY: a waiter guards its state with a queue; XCTest's `fulfillment(of:)` waits on another thread, too.
        nonisolated(unsafe) let waiter = self
        let code = NativeThread.start {
            let timer = keepFoundationsLoop(polling: polls ? loop : nil)
            // XCTest's watchdog ends the process if the time is up before it begins.
            wait.end(with: waiter.waitOnFoundationsLoop(expectations, timeout < 0 ? 0 : timeout, enforceOrder, file, line))
            timer.invalidate()
            loop.perform {}
        }
        if code != 0 {
            XCTFail(
                "the wait has not begun, because no thread could be started for it: \(systemMessage(code))", file: file,
                line: UInt(clamping: line))
            return .interrupted
        }
        // Ends: XCTest's wait does, and its end ends the run. If the thread is stopping, runs return at once.
        while !wait.hasEnded && !loop.isOver { _ = loop.run(until: .distantFuture, returnAfterSourceHandled: true) }
        return wait.result()
    }

    #if canImport(Darwin)
    private func waitOnFoundationsLoop(
        _ expectations: [XCTestExpectation], _ timeout: TimeInterval, _ enforceOrder: Bool, _: StaticString, _: Int
    ) -> Result {
        wait(for: expectations, timeout: timeout, enforceOrder: enforceOrder)
    }
    #else
    private func waitOnFoundationsLoop(
        _ expectations: [XCTestExpectation], _ timeout: TimeInterval, _ enforceOrder: Bool, _ file: StaticString, _ line: Int
    ) -> Result {
        wait(for: expectations, timeout: timeout, enforceOrder: enforceOrder, file: file, line: line)
    }
    #endif
}

/// Ends the run of a wait that has ended. The wait's own thread wakes the loop once, and a nested run may perform that block: then the wait's own
/// run finds out here, in its next pass or before it sleeps: behind the other observers, which may make nested runs, too.
private func endOfWait(_ wait: WaitOnThread, on loop: EventLoop.RunLoop) -> EventLoop.RunLoop.Observer {
    let depth = loop.runDepth + 1
    let observer = EventLoop.RunLoop.Observer(
        activities: [.beforeTimers, .beforeWaiting], order: .max, label: "end of a wait"
    ) { [unowned loop] _, _ in
        if wait.hasEnded && loop.runDepth == depth { loop.perform {} }
    }
    loop.add(observer)
    return observer
}

/// Gives Foundation's loop of this thread something to wait for: without a timer or a source its runs return at once, and XCTest's wait runs
/// it again and again.
///
/// With `polled`, the timer has that loop make passes of Foundation's loop of its thread, where predicate expectations that were made there have their
/// timers: in real time, as these go by it, also if the loop is in manual time.
private func keepFoundationsLoop(polling polled: EventLoop.RunLoop?) -> Foundation.Timer {
    // One at a time: the loop may be busy.
    let isQueued = Flag()
    let timer = Foundation.Timer(timeInterval: polled == nil ? 1e9 : 0.01, repeats: true) { _ in
        guard let polled, isQueued.raise() else { return }
        polled.perform {
            isQueued.lower()
            _ = Foundation.RunLoop.current.run(mode: .default, before: .distantPast)
        }
    }
    Foundation.RunLoop.current.add(timer, forMode: .default)
    return timer
}

private final class Flag: Sendable {
    private let value = Atomic(false)
    /// False if it was raised already.
    func raise() -> Bool { !value.exchange(true, ordering: .acquiringAndReleasing) }
    func lower() { value.store(false, ordering: .releasing) }
}

/// The wait of another thread.
private final class WaitOnThread: Sendable {
    private let ended = DispatchSemaphore(value: 0)
    /// The raw value of the result, which is not Sendable. Zero, which is none, until the wait ends.
    private let outcome = Atomic(0)

    func end(with result: XCTWaiter.Result) {
        outcome.store(result.rawValue, ordering: .releasing)
        ended.signal()
    }

    var hasEnded: Bool { outcome.load(ordering: .acquiring) != 0 }

    /// Waits for the end.
    func result() -> XCTWaiter.Result {
        ended.wait()
        // Stored before the semaphore was signaled, from a result.
        return XCTWaiter.Result(rawValue: outcome.load(ordering: .acquiring))!
    }
}
