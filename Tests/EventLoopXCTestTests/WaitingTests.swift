// Rules proved here, for waits of XCTest that run this package's loop (docs/testing.md):
// - The wait ends when the expectations are fulfilled, by this loop or by another thread, and serves the loop in the meantime.
// - XCTest decides what counts: the number of fulfillments, their order, inverted expectations, the time limit.
// - A wait for which no thread can be started fails the test, and returns.
// - A stop ends a run, not the wait. A wait may be nested, and be made on any thread that runs a loop.
//
// XCTest runs synchronous tests on the main thread.

import EventLoop
import EventLoopTestSupport
import EventLoopXCTest
import XCTest

private typealias RunLoop = EventLoop.RunLoop
private typealias Timer = EventLoop.RunLoop.Timer

/// Long enough for any machine. A wait that takes as long has failed.
private let patience: TimeInterval = 60

final class WaitingTests: XCTestCase {
    func testATimerOfTheLoopFulfillsAnExpectation() {
        let fired = expectation(description: "fired")
        RunLoop.main.add(Timer(after: .milliseconds(1)) { _ in fired.fulfill() })
        wait(for: [fired], timeout: patience, running: .main)
        XCTAssertNil(RunLoop.main.currentMode)
    }

    func testAnotherThreadFulfillsAnExpectation() {
        let heard = expectation(description: "heard")
        Thread.detachNewThread { heard.fulfill() }
        XCTAssertEqual(XCTWaiter().wait(for: [heard], timeout: patience, running: .current), .completed)
    }

    func testTheMainQueueAndTheMainActorAreServed() {
        let (queue, actor) = (expectation(description: "queue"), expectation(description: "actor"))
        DispatchQueue.main.async { queue.fulfill() }
        Task { @MainActor in actor.fulfill() }
        XCTAssertEqual(XCTWaiter().wait(for: [queue, actor], timeout: patience, running: .main), .completed)
    }

    func testAnExpectationThatIsFulfilledAlreadyEndsTheWait() {
        let done = XCTestExpectation(description: "done")
        done.fulfill()
        XCTAssertEqual(XCTWaiter().wait(for: [done], timeout: patience, running: .main), .completed)
        XCTAssertEqual(XCTWaiter().wait(for: [], timeout: patience, running: .main), .completed)
    }

    func testAWaitTimesOut() {
        let never = XCTestExpectation(description: "never")
        XCTAssertEqual(XCTWaiter().wait(for: [never], timeout: 0.01, running: .main), .timedOut)
    }

    func testAWaitThatTimesOutIsRecordedAsAFailureOfTheTest() {
        let never = XCTestExpectation(description: "never")
        let line = #line + 2
        let failure = recordedFailure {
            wait(for: [never], timeout: 0.01, running: .main)
        }
        XCTAssertEqual(failure?.line, line)
        XCTAssertTrue(failure?.text.contains("unfulfilled expectations: never") ?? false, failure?.text ?? "no failure")
    }

    func testCountsOrderAndInversionAreTheOnesOfXCTest() {
        let twice = XCTestExpectation(description: "twice")
        twice.expectedFulfillmentCount = 2
        for delay in [1, 2] { RunLoop.main.add(Timer(after: .milliseconds(delay)) { _ in twice.fulfill() }) }
        XCTAssertEqual(XCTWaiter().wait(for: [twice], timeout: patience, running: .main), .completed)

        let (first, second) = (XCTestExpectation(description: "first"), XCTestExpectation(description: "second"))
        RunLoop.main.perform {
            second.fulfill()
            first.fulfill()
        }
        XCTAssertEqual(
            XCTWaiter().wait(for: [first, second], timeout: patience, enforceOrder: true, running: .main), .incorrectOrder)

        let unwanted = XCTestExpectation(description: "unwanted")
        unwanted.isInverted = true
        RunLoop.main.perform { unwanted.fulfill() }
        XCTAssertEqual(XCTWaiter().wait(for: [unwanted], timeout: patience, running: .main), .invertedFulfillment)
    }

    func testAStopDoesNotEndTheWait() {
        let fired = XCTestExpectation(description: "fired")
        RunLoop.main.perform {
            RunLoop.main.stop()
            RunLoop.main.add(Timer(after: .milliseconds(1)) { _ in fired.fulfill() })
        }
        XCTAssertEqual(XCTWaiter().wait(for: [fired], timeout: patience, running: .main), .completed)
    }

    func testAWaitMayBeNested() {
        let (outer, inner) = (XCTestExpectation(description: "outer"), XCTestExpectation(description: "inner"))
        RunLoop.main.perform {
            RunLoop.main.add(Timer(after: .milliseconds(1)) { _ in inner.fulfill() })
            XCTAssertEqual(XCTWaiter().wait(for: [inner], timeout: patience, running: .main), .completed)
            outer.fulfill()
        }
        XCTAssertEqual(XCTWaiter().wait(for: [outer], timeout: patience, running: .main), .completed)
    }

    // A nested run takes the perform with which the end of the outer wait wakes the loop.

    func testAWaitThatEndsDuringANestedRunOfATimerReturns() throws {
        try waitWhile { nested in RunLoop.current.perform(after: .milliseconds(1), nested) }
    }

    /// A pass performs it behind its first observers, and may sleep afterwards.
    func testAWaitThatEndsDuringANestedRunOfABlockReturns() throws {
        try waitWhile { nested in RunLoop.current.performBlock(nested) }
    }

    /// The last callout before the sleep.
    func testAWaitThatEndsDuringANestedRunOfAnObserverReturns() throws {
        try waitWhile { nested in
            RunLoop.current.add(RunLoop.Observer(activities: .beforeWaiting, repeats: false, order: 1) { _, _ in nested() })
        }
    }

    /// Waits for an expectation on a loop without a main queue, where the perform is the only source. `arrange` has a handler of this run call
    /// its argument, which fulfills the expectation and runs the loop until it has handled the perform.
    private func waitWhile(_ arrange: @Sendable (@escaping @Sendable () -> Void) -> Void) throws {
        let thread = try RunLoopThread(name: "waiting")
        defer { thread.stop() }
        let isCompleted = try thread.runLoop.performAndWait {
            let outer = XCTestExpectation(description: "outer")
            arrange {
                outer.fulfill()
                XCTAssertEqual(RunLoop.current.run(until: .distantFuture, returnAfterSourceHandled: true), .handledSource)
            }
            return XCTWaiter().wait(for: [outer], timeout: patience, running: .current) == .completed
        }
        XCTAssertTrue(isCompleted)
    }

    func testAWaitThatTimesOutDuringANestedWaitReturns() {
        let (never, inner) = (XCTestExpectation(description: "never"), XCTestExpectation(description: "inner"))
        RunLoop.main.perform(after: .milliseconds(1)) {
            RunLoop.main.perform(after: .milliseconds(200)) { inner.fulfill() }
            XCTAssertEqual(XCTWaiter().wait(for: [inner], timeout: patience, running: .main), .completed)
        }
        XCTAssertEqual(XCTWaiter().wait(for: [never], timeout: 0.05, running: .main), .timedOut)
    }

    /// XCTest waits on Foundation's loop of a thread of its own; a loop with nothing in it would not sleep.
    func testAWaitSleeps() {
        let never = XCTestExpectation(description: "never")
        let before = processorSeconds()
        XCTAssertEqual(XCTWaiter().wait(for: [never], timeout: 0.5, running: .main), .timedOut)
        XCTAssertLessThan(processorSeconds() - before, 0.25)
    }

    func testAWaitForANegativeTimeTimesOut() {
        for _ in 0..<50 {
            let never = XCTestExpectation(description: "never")
            XCTAssertEqual(XCTWaiter().wait(for: [never], timeout: -1, running: .main), .timedOut)
        }
    }

    /// Of all threads of the process.
    private func processorSeconds() -> Double {
        var time = timespec()
        clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time)
        return Double(time.tv_sec) + Double(time.tv_nsec) / 1e9
    }

    func testPredicateExpectationsAreEvaluated() {
        let tank = Tank()
        let isFull = XCTNSPredicateExpectation(predicate: NSPredicate { object, _ in (object as? Tank)?.isFull ?? false }, object: tank)
        RunLoop.main.add(Timer(after: .milliseconds(20)) { _ in tank.fill() })
        XCTAssertEqual(XCTWaiter().wait(for: [isFull], timeout: patience, running: .main), .completed)
    }

    func testPredicateExpectationsAreEvaluatedInRealTimeOnALoopInManualTime() throws {
        for clock in [RunLoop.ManualClock(), RunLoop.ManualClock(autoAdvance: true)] {
            let thread = try RunLoopThread(name: "waiting", setup: { $0.use(clock) })
            defer { thread.stop() }
            let start = clock.now
            let isCompleted = try thread.runLoop.performAndWait {
                let tank = Tank()
                tank.fill()
                let predicate = NSPredicate { object, _ in (object as? Tank)?.isFull ?? false }
                let isFull = XCTNSPredicateExpectation(predicate: predicate, object: tank)
                return XCTWaiter().wait(for: [isFull], timeout: patience, running: .current) == .completed
            }
            XCTAssertTrue(isCompleted)
            XCTAssertEqual(clock.now, start)
        }
    }

    func testTheLoopOfAnotherThreadCanWaitForIt() throws {
        let thread = try RunLoopThread(name: "waiting")
        defer { thread.stop() }
        let isCompleted = try thread.runLoop.performAndWait {
            let fired = XCTestExpectation(description: "fired")
            RunLoop.current.add(Timer(after: .milliseconds(1)) { _ in fired.fulfill() })
            return XCTWaiter().wait(for: [fired], timeout: patience, running: .current) == .completed
        }
        XCTAssertTrue(isCompleted)
    }

    func testAThreadThatIsToldToStopWaitsForTheRestOfTheTime() throws {
        let thread = try RunLoopThread(name: "waiting")
        let ended = expectation(description: "ended")
        thread.runLoop.perform {
            let never = XCTestExpectation(description: "never")
            RunLoop.current.perform { thread.stop() }
            XCTAssertEqual(XCTWaiter().wait(for: [never], timeout: 0.05, running: .current), .timedOut)
            ended.fulfill()
        }
        wait(for: [ended], timeout: patience, running: .main)
    }

    #if os(Linux)
    func testAWaitForWhichNoThreadCanBeStartedFails() {
        let never = XCTestExpectation(description: "never")
        var result = XCTWaiter.Result.completed
        let line = #line + 2
        let failure = recordedFailure {
            withoutNewThreads { result = XCTWaiter().wait(for: [never], timeout: patience, running: .main) }
        }
        XCTAssertEqual(result, .interrupted)
        XCTAssertEqual(failure?.line, line)
        let text = failure?.text ?? "no failure"
        XCTAssertTrue(text.contains("no thread could be started") && text.contains("EAGAIN"), text)
    }
    #endif

    // MARK: A test whose failures are caught

    private struct Failure {
        let text: String
        let line: Int
    }

    private var caught: [Failure]?

    /// Calls `body`, and returns the first failure that it records, which does not count.
    private func recordedFailure(_ body: () -> Void) -> Failure? {
        caught = []
        body()
        defer { caught = nil }
        return caught?.first
    }

    override func recordFailure(withDescription description: String, inFile path: String, atLine line: Int, expected: Bool) {
        if caught == nil { return super.recordFailure(withDescription: description, inFile: path, atLine: line, expected: expected) }
        caught?.append(Failure(text: description, line: line))
    }
}

private final class Tank: NSObject, @unchecked Sendable {
    // SAFETY: the main thread fills the tank and evaluates the predicate.
    private(set) var isFull = false

    func fill() { isFull = true }
}
