// A bug that a review found in a source that another thread takes out of its loop while the loop's thread serves it.

import EventLoopTestSupport
import Testing

@testable import EventLoop

@Suite(.bounded) struct RemovedMeanwhileTests {
    #if os(Linux)
    /// In no loop, the timer went by the system's clock.
    @Test func `a wall timer that has left its last loop when it is served does not fire, and keeps its date`() throws {
        let (trace, date) = (Trace(), RunLoop.WallTime(nanosecondsSince1970: 978_307_200_000_000_000))
        let timer = try RunLoop.WallTimer(fireAt: date) { _ in trace.add("fired") }
        let isHandled = timer.serve(.read)
        #expect(!isHandled && timer.nextFire == date && trace.take() == "")
        timer.invalidate()
    }
    #endif
}
