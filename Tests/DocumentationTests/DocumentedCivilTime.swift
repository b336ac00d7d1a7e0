// The code of docs/civil-time.md that the example cron does not have, compiled and run.

#if os(Linux)

import EventLoop
import EventLoopTestSupport
import Testing

@Suite(.timeLimit(.minutes(2))) struct DocumentedCivilTime {
    @Test func `a job of every day takes no time in a test`() throws {
        let said = try onFreshThread { loop in
            let trace = Trace()
            try runJobs(on: loop) { trace.add($0) }
            return trace.list
        }
        #expect(said == ["the job runs at 2026-03-28T03:00:00Z", "the job runs at 2026-03-29T03:00:00Z"])
    }
}

private func runJobs(on loop: RunLoop, _ report: @escaping @Sendable (String) -> Void) throws {
    let clock = RunLoop.ManualClock(autoAdvance: true)
    loop.use(clock)
    clock.wallTime = RunLoop.WallTime(nanosecondsSince1970: 1_774_656_000_000_000_000)  // 2026-03-28T00:00:00Z
    let timer = try RunLoop.WallTimer(fireAt: loop.wallTime + .seconds(3 * 3_600)) { timer in
        report("the job runs at \(loop.wallTime)")
        timer.nextFire = loop.wallTime + .seconds(86_400)
    }
    loop.add(timer)
    _ = loop.run(for: .seconds(2 * 86_400))
}

#endif
