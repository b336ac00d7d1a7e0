// The main loop, on the main thread (semantics 1.4, 1.5, 9.1, 11.1 to 11.5; decision 7):
//  - RunLoop.main is the main thread's current loop.
//  - While the main loop runs in a common mode, it serves DispatchQueue.main and @MainActor; in any other mode, it defers both.
//  - A run in a common mode never returns `finished`; a run in any other mode does if the mode is empty.
//  - The main queue counts as a handled source, and takes turns with timers and descriptors.
//  - A main-queue block does not interrupt another: a run nested in a block serves everything else, and nothing is lost.
//
// XCTest runs synchronous tests on the main thread; Swift Testing does not.

import Dispatch
import EventLoop
import EventLoopTestSupport
import Testing
import XCTest

#if canImport(Glibc)
import Glibc
#else
import Darwin
#endif

// XCTest imports Foundation, which has a RunLoop and a Pipe of its own.
private typealias RunLoop = EventLoop.RunLoop
private typealias Pipe = EventLoopTestSupport.Pipe

final class MainRunLoopTests: XCTestCase {
    private let loop = RunLoop.main

    override func tearDown() {
        // Blocks that a failed test left on the main queue must not run in the next test.
        _ = loop.run(for: .zero)
    }

    /// Runs the main loop in the default mode until it is stopped, and fails if no stop comes in time.
    private func runUntilStopped(file: StaticString = #filePath, line: UInt = #line) {
        XCTAssertEqual(loop.run(for: patience), .stopped, file: file, line: line)
    }

    // MARK: Identity

    func testMainIsTheMainThreadsCurrentLoop() throws {
        XCTAssertTrue(RunLoop.main === RunLoop.current)
        XCTAssertTrue(RunLoop.main.isCurrent)
        XCTAssertTrue(RunLoop.main.isValid)
    }

    func testMainIsTheSameFromAnotherThreadAndNotItsOwn() throws {
        let seen = try onFreshThread { loop in
            (ObjectIdentifier(RunLoop.main), ObjectIdentifier(loop), RunLoop.main.isCurrent)
        }
        XCTAssertEqual(seen.0, ObjectIdentifier(RunLoop.main))
        XCTAssertNotEqual(seen.1, ObjectIdentifier(RunLoop.main))
        XCTAssertFalse(seen.2)
    }

    // MARK: The main queue

    func testMainQueueBlocksRunInACommonMode() {
        let trace = Trace()
        let loop = loop
        for number in 1...3 { DispatchQueue.main.async { trace.add("\(number) \(loop.isCurrent) \(loop.currentMode!)") } }
        DispatchQueue.main.async { loop.stop() }
        runUntilStopped()
        XCTAssertEqual(trace.description, "1 true default 2 true default 3 true default")
    }

    func testMainQueueBlocksWaitWhileAnotherModeRuns() {
        let trace = Trace()
        let loop = loop
        let alive = loop.keepAlive(forMode: "private")
        DispatchQueue.main.async {
            trace.add("block")
            loop.stop()
        }
        trace.add("private \(loop.run(mode: "private", for: .milliseconds(20)))")
        alive.cancel()
        runUntilStopped()
        XCTAssertEqual(trace.description, "private timedOut block")
    }

    func testMainQueueBlocksRunInAModeThatWasMadeCommon() {
        let trace = Trace()
        let loop = loop
        loop.addCommonMode("made common")
        DispatchQueue.main.async {
            trace.add("\(loop.currentMode!)")
            loop.stop()
        }
        trace.add("\(loop.run(mode: "made common", for: patience))")
        XCTAssertEqual(trace.description, "made common stopped")
    }

    func testABlockFromAnotherThreadEndsTheWait() throws {
        let loop = loop
        let other = plainThread {
            try waitUntilAsleep(loop)
            DispatchQueue.main.async { loop.stop() }
        }
        runUntilStopped()
        try other.join()
    }

    func testMainQueueBlocksQueueMoreOfThem() {
        let trace = Trace()
        let loop = loop
        @Sendable func hop(_ left: Int) {
            DispatchQueue.main.async {
                trace.add("\(left)")
                if left == 0 { loop.stop() } else { hop(left - 1) }
            }
        }
        hop(5)
        runUntilStopped()
        XCTAssertEqual(trace.description, "5 4 3 2 1 0")
    }

    func testSyncOntoTheMainQueueAndAfterDelay() throws {
        let trace = Trace()
        let loop = loop
        let other = plainThread {
            DispatchQueue.main.sync { trace.add("sync \(loop.isCurrent)") }
            DispatchQueue.main.asyncAfter(deadline: .now() + .milliseconds(5)) {
                trace.add("after")
                loop.stop()
            }
        }
        runUntilStopped()
        try other.join()
        XCTAssertEqual(trace.description, "sync true after")
    }

    func testTheMainQueueCountsAsAHandledSource() {
        let trace = Trace()
        let observer = trace.observe(loop)
        defer { observer.invalidate() }
        DispatchQueue.main.async { trace.add("block") }
        trace.add("-> \(loop.run(for: patience, returnAfterSourceHandled: true))")
        XCTAssertEqual(trace.description, "E T S block X -> handledSource")
    }

    func testAPollServesTheMainQueue() {
        let trace = Trace()
        DispatchQueue.main.async { trace.add("block") }
        trace.add("-> \(loop.run(for: .zero))")
        XCTAssertEqual(trace.description, "block -> timedOut")
    }

    // MARK: Finished

    func testTheMainLoopIsNeverFinishedInACommonMode() {
        loop.addCommonMode("common and empty")
        XCTAssertEqual(loop.run(for: .milliseconds(10)), .timedOut)
        XCTAssertEqual(loop.run(mode: "common and empty", for: .milliseconds(10)), .timedOut)
        XCTAssertEqual(loop.run(for: .zero), .timedOut)
    }

    func testTheMainLoopIsFinishedInAnEmptyModeThatIsNotCommon() {
        XCTAssertEqual(loop.run(mode: "not common and empty", for: patience), .finished)
    }

    func testWhatEmptiesACommonModeDoesNotFinishTheMainLoop() {
        let trace = Trace()
        loop.add(RunLoop.Timer(after: .milliseconds(2)) { _ in trace.add("timer") })
        trace.add("-> \(loop.run(for: .milliseconds(10)))")
        XCTAssertEqual(trace.description, "timer -> timedOut")
    }

    // MARK: The main actor

    func testMainActorTasksRunOnTheMainThread() {
        let trace = Trace()
        let loop = loop
        Task { @MainActor in
            trace.add("task \(loop.isCurrent)")
            await Task.yield()
            trace.add("resumed \(loop.isCurrent)")
            loop.stop()
        }
        runUntilStopped()
        XCTAssertEqual(trace.description, "task true resumed true")
    }

    func testATaskHopsToTheMainActorAndBack() {
        let trace = Trace()
        let loop = loop
        Task.detached { await MainRunLoopTests.hop(trace, loop) }
        runUntilStopped()
        XCTAssertEqual(trace.description, "detached false main true back false 42")
    }

    private static func hop(_ trace: Trace, _ loop: RunLoop) async {
        trace.add("detached \(loop.isCurrent)")
        let sum = await onMain(trace)
        trace.add("back \(loop.isCurrent) \(sum)")
        loop.stop()
    }

    @MainActor private static func onMain(_ trace: Trace) -> Int {
        trace.add("main \(RunLoop.main.isCurrent)")
        return 42
    }

    func testMainActorTasksWaitWhileAnotherModeRuns() {
        let trace = Trace()
        let loop = loop
        let alive = loop.keepAlive(forMode: "private")
        Task { @MainActor in
            trace.add("task")
            loop.stop()
        }
        trace.add("private \(loop.run(mode: "private", for: .milliseconds(20)))")
        alive.cancel()
        runUntilStopped()
        XCTAssertEqual(trace.description, "private timedOut task")
    }

    // MARK: Nested runs

    func testANestedRunFromAMainQueueBlockServesTimersButNotTheNextBlock() {
        let trace = Trace()
        let loop = loop
        DispatchQueue.main.async {
            trace.add("1(")
            loop.add(RunLoop.Timer(after: .milliseconds(2)) { _ in trace.add("timer") })
            loop.perform { trace.add("perform") }
            _ = loop.run(for: .milliseconds(20))
            trace.add(")1")
        }
        DispatchQueue.main.async {
            trace.add("2")
            loop.stop()
        }
        runUntilStopped()
        XCTAssertEqual(trace.description, "1( perform timer )1 2")
    }

    func testANestedRunFromAMainQueueBlockDoesNotSpinWhileBlocksWait() {
        let loop = loop
        let passes = Locked<UInt64>(0)
        DispatchQueue.main.async {
            let alive = loop.keepAlive()
            let before = loop.statistics.passes
            _ = loop.run(for: .milliseconds(20))
            let made = loop.statistics.passes - before
            passes.withLock { $0 = made }
            alive.cancel()
        }
        DispatchQueue.main.async { loop.stop() }
        runUntilStopped()
        XCTAssertLessThanOrEqual(passes.withLock { $0 }, 3)
    }

    func testANestedRunFromAMainQueueBlockHandlesNoSourceByLeavingTheNextBlockAlone() {
        let trace = Trace()
        let loop = loop
        DispatchQueue.main.async {
            let before = loop.statistics.sourcesHandled
            let result = loop.run(for: .milliseconds(10), returnAfterSourceHandled: true)
            trace.add("\(result) \(loop.statistics.sourcesHandled - before)")
        }
        DispatchQueue.main.async { loop.stop() }
        runUntilStopped()
        XCTAssertEqual(trace.description, "timedOut 0")
    }

    func testABlockQueuedDuringANestedRunOfAnotherIsNotForgotten() {
        let trace = Trace()
        let loop = loop
        DispatchQueue.main.async {
            loop.add(
                RunLoop.Timer(after: .milliseconds(1)) { _ in
                    DispatchQueue.main.async {
                        trace.add("queued inside")
                        loop.stop()
                    }
                })
            // Long enough for the nested run to see that the handle is readable, and to remove it from the wait.
            trace.add("nested \(loop.run(for: .milliseconds(20)))")
        }
        runUntilStopped()
        XCTAssertEqual(trace.description, "nested timedOut queued inside")
    }

    func testNothingIsLostBehindNestedRuns() {
        let trace = Trace()
        let loop = loop
        for number in 0..<50 {
            DispatchQueue.main.async {
                if number % 5 == 0 { _ = loop.run(for: .microseconds(100)) }
                trace.add("\(number)")
                if number == 49 { loop.stop() }
            }
        }
        runUntilStopped()
        XCTAssertEqual(trace.list, (0..<50).map(String.init))
    }

    func testANestedRunFromATimerServesTheMainQueue() {
        let trace = Trace()
        let loop = loop
        loop.add(
            RunLoop.Timer(after: .milliseconds(1)) { _ in
                trace.add("timer(")
                DispatchQueue.main.async {
                    trace.add("block")
                    loop.stop()
                }
                trace.add("\(loop.run(for: patience)) )")
                loop.stop()
            })
        runUntilStopped()
        XCTAssertEqual(trace.description, "timer( block stopped )")
    }

    // MARK: From threads

    func testPerformAndWaitOnTheMainLoopFromAThread() throws {
        let loop = loop
        let other = plainThread {
            defer { loop.stop(sticky: true) }
            return try (0..<3).map { number in try loop.performAndWait { loop.isCurrent ? number : -1 } }
        }
        runUntilStopped()
        XCTAssertEqual(try other.join(), [0, 1, 2])
    }

    func testPerformAndWaitOnTheMainThreadItselfIsInline() throws {
        XCTAssertEqual(try RunLoop.main.performAndWait { 42 }, 42)
    }

    // MARK: Turns

    func testTheMainQueueTimersAndDescriptorsTakeTurns() throws {
        let trace = Trace()
        let loop = loop
        let pipe = EventLoopTestSupport.Pipe()
        pipe.write()
        @Sendable func call(_ word: String) {
            trace.add(word)
            if trace.list.count == 30 { loop.stop() }
        }
        let source = try RunLoop.DescriptorSource(descriptor: pipe.readEnd, events: .read) { _, _ in
            withExtendedLifetime(pipe) { call("port") }
        }
        let timer = RunLoop.Timer(fireAt: .distantPast, interval: .seconds(1)) { timer in
            call("timer")
            timer.nextFire = .now
        }
        let goesOn = Box(true)
        @Sendable func queue() {
            DispatchQueue.main.async {
                guard goesOn.value else { return }
                call("queue")
                queue()
            }
        }
        loop.add(source)
        loop.add(timer)
        queue()
        runUntilStopped()
        goesOn.value = false
        source.invalidate()
        timer.invalidate()
        let words = trace.list
        // All three are always ready, so each comes once in any three turns.
        for start in 0..<words.count - 2 { XCTAssertEqual(Set(words[start..<start + 3]).count, 3, "\(words)") }
    }

    func testABusyMainQueueDoesNotStarveLimitStopOrPerform() throws {
        let trace = Trace()
        let loop = loop
        let goesOn = Box(true)
        @Sendable func queue() {
            DispatchQueue.main.async { if goesOn.value { queue() } }
        }
        queue()
        trace.add("\(loop.run(for: .milliseconds(10)))")
        let other = plainThread {
            try loop.performAndWait { trace.add("perform") }
            loop.stop(sticky: true)
        }
        trace.add("\(loop.run(for: patience))")
        try other.join()
        goesOn.value = false
        XCTAssertEqual(trace.description, "timedOut perform stopped")
    }
}
