// The watchdog on the main loop, on the main thread (semantics 23.1): a block of the main queue that takes too long is reported.

import Dispatch
import EventLoop
import EventLoopObserving
import EventLoopTestSupport
import Testing
import XCTest

// XCTest imports Foundation, which has a RunLoop of its own.
private typealias RunLoop = EventLoop.RunLoop

final class WatchdogOnMainTests: XCTestCase {
    private func stallsDuring(
        of kind: RunLoop.Recording.Kind, _ plant: (_ stalled: @escaping @Sendable () -> Void) -> Void
    ) -> [RunLoop.Watchdog.Stall] {
        let loop = RunLoop.main
        let stalls = Box<[RunLoop.Watchdog.Stall]>([])
        let watchdog = RunLoop.Watchdog(threshold: .milliseconds(5)) { stall in
            if stall.kind == kind { stalls.change { $0.append(stall) } }
        }
        watchdog.watch(loop)
        // From its next pass on the loop publishes what it calls.
        _ = loop.run(for: .zero)
        plant {
            do { try waitUntil("the stall is reported") { !stalls.value.isEmpty } } catch { XCTFail("\(error)") }
            loop.stop()
        }
        XCTAssertEqual(loop.run(for: patience), .stopped)
        watchdog.invalidate()
        return stalls.value
    }

    func testABlockOfTheMainQueueIsReported() throws {
        let stalls = stallsDuring(of: .mainQueue) { stalled in DispatchQueue.main.async(execute: stalled) }
        XCTAssertEqual(stalls.count, 1)
        XCTAssert(stalls.first?.loop === RunLoop.main)
    }

    func testATimerOfTheMainLoopIsReportedWithTheStackOfTheMainThread() throws {
        let stalls = stallsDuring(of: .timer) { stalled in
            RunLoop.main.add(RunLoop.Timer(after: .zero, label: "planted") { _ in stalled() })
        }
        XCTAssertEqual(stalls.map(\.label), ["planted"])
    }
}
