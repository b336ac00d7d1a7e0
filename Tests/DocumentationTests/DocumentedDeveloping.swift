// The test that docs/developing.md shows, compiled and run.

import EventLoop
import EventLoopTestSupport
import Testing

@Suite struct TimerTests {
    @Test func `a timer is never early, and a quiet run waits for it`() throws {
        let trace = Trace()
        try onFreshThread { loop in
            loop.use(RunLoop.ManualClock(autoAdvance: true))
            trace.observe(loop)
            loop.add(RunLoop.Timer(fireAt: RunLoop.Instant(nanoseconds: 5_000_000)) { _ in trace.add("timer") })
            #expect(loop.run(for: .milliseconds(10)) == .finished)
        }
        #expect(trace.description == "E T S W A timer X")
    }
}
