// Actors and tasks on the main loop, on the main thread (semantics 11 and 15):
//  - An actor on RunLoop.main runs on the main thread. It is not the main actor: a run nested in the code of one serves the other.
//  - If a run is nested in main-actor code, other main-actor code waits until that run has ended, and is not lost.

import EventLoop
import EventLoopTestSupport
import XCTest

// XCTest imports Foundation, which has a RunLoop of its own.
private typealias RunLoop = EventLoop.RunLoop

private actor MainLoopActor {
    private let loop = RunLoop.main
    nonisolated var unownedExecutor: UnownedSerialExecutor { loop.asUnownedSerialExecutor() }

    func run(_ body: @Sendable () -> Void) { body() }
}

/// Runs the loop in a synchronous function: the compiler does not let an async function run a loop.
private func runNested(_ loop: RunLoop) -> RunLoop.RunResult { loop.run(for: patience) }

final class MainExecutorTests: XCTestCase {
    private let loop = RunLoop.main

    func testAnActorOnTheMainLoopRunsOnTheMainThread() {
        let (trace, loop, actor) = (Trace(), loop, MainLoopActor())
        Task {
            for number in 1...3 { await actor.run { trace.add("\(number) \(loop.isCurrent)") } }
            loop.stop()
        }
        XCTAssertEqual(loop.run(for: patience), .stopped)
        XCTAssertEqual(trace.description, "1 true 2 true 3 true")
    }

    func testARunNestedInMainActorCodeServesActorsOfTheLoopButNotTheMainActor() {
        let (trace, loop, actor) = (Trace(), loop, MainLoopActor())
        Task { @MainActor in
            Task { @MainActor in trace.add("main actor") }
            // A detached task, because a plain Task would run on the main actor here.
            Task.detached {
                await actor.run {
                    trace.add("actor \(loop.runDepth)")
                    loop.stop()
                }
            }
            trace.add("\(runNested(loop))")
            await Task { @MainActor in trace.add("then") }.value
            loop.stop()
        }
        XCTAssertEqual(loop.run(for: patience), .stopped)
        XCTAssertEqual(trace.description, "actor 2 stopped main actor then")
    }

    func testARunNestedInAJobServesTheMainActorButNoJob() {
        let (trace, loop, actor) = (Trace(), loop, MainLoopActor())
        Task {
            await actor.run {
                Task { await actor.run { trace.add("job \(loop.runDepth)") } }
                Task { @MainActor in
                    trace.add("main actor \(loop.runDepth)")
                    loop.stop()
                }
                trace.add("\(runNested(loop))")
            }
            await actor.run { loop.stop() }
        }
        XCTAssertEqual(loop.run(for: patience), .stopped)
        XCTAssertTrue(trace.description.hasPrefix("main actor 2 stopped"), "\(trace)")
        XCTAssertFalse(trace.description.contains("job 2"), "\(trace)")
        // Serves the waiting work, which is not lost.
        _ = loop.run(for: .zero)
    }
}
