// Rules proved here (WorkReporter.swift), in manual time:
// - A loop that works is reported at the interval. A loop that does nothing is reported once more, and then is not woken.
// - What wakes the loop restarts the reports.
// - The last interval that was set counts, whichever threads set it. The end of the reports leaves nothing in the loop.
// - A loop that has ended may be reported: that is no mistake (rule 25.1).

import EventLoop
import EventLoopMetrics
import MetricsTestKit
import TestSupport
import Testing

/// Calls `body` with a loop in manual time that reports itself every 10 s while it works.
private func withReportedLoop(_ body: @escaping @Sendable (RunLoop, RunLoop.ManualClock, TestMetrics) throws -> Void) throws {
    try onFreshThread { loop in
        let (clock, system) = (RunLoop.ManualClock(), TestMetrics())
        loop.use(clock)
        let metrics = RunLoopMetrics(loop, name: "a", factory: system)
        metrics.reportWhileWorking(every: .seconds(10))
        try body(loop, clock, system)
        withExtendedLifetime(metrics) {}
    }
}

@Suite(.bounded) struct WorkReporterTests {
    @Test func `an idle loop is reported once and is not woken any more`() throws {
        let clock = RunLoop.ManualClock()
        let published = Box<RunLoop?>(nil)
        let thread = joinableThread { loop in
            loop.use(clock)
            loop.addIdleSource()
            published.value = loop
            return loop.run()
        }
        try waitUntil("the loop is there") { published.value != nil }
        let loop = try #require(published.value)
        try waitUntilAsleep(loop)
        let system = TestMetrics()
        let metrics = RunLoopMetrics(loop, name: "a", factory: system)
        metrics.reportWhileWorking(every: .seconds(10))
        for _ in 0..<4 { try advance(clock, loop, by: .seconds(10)) }
        let reports = system.utilizations().count
        #expect((1...2).contains(reports))
        try expectQuiet(clock, loop)
        #expect(system.utilizations().count == reports)

        // Work begins the reports again, and its end ends them.
        try loop.performAndWait {}
        try waitUntilAsleep(loop)
        for _ in 0..<4 { try advance(clock, loop, by: .seconds(10)) }
        #expect((reports + 1...reports + 2).contains(system.utilizations().count))
        try expectQuiet(clock, loop)
        #expect(try system.total("sources_handled_total") == 1)
        loop.perform { loop.stop() }
        try thread.join()
        withExtendedLifetime(metrics) {}
    }

    @Test func `a loop that works is reported at the interval`() throws {
        try onFreshThread { loop in
            loop.use(RunLoop.ManualClock(autoAdvance: true))
            let system = TestMetrics()
            let metrics = RunLoopMetrics(loop, name: "a", factory: system)
            metrics.reportWhileWorking(every: .seconds(10))
            loop.add(RunLoop.Timer(every: .seconds(1)) { _ in })
            #expect(loop.run(for: .seconds(105)) == .timedOut)
            #expect(system.utilizations().count == 10)
            let timersFired = try system.total("timers_fired_total")
            #expect(timersFired >= 109 && timersFired <= loop.statistics.timersFired)

            metrics.stopReporting()
            #expect(loop.run(for: .seconds(100)) == .timedOut)
            #expect(system.utilizations().count == 10)
            metrics.reportWhileWorking(every: .seconds(20))
            metrics.reportWhileWorking(every: .seconds(5))
            #expect(loop.run(for: .seconds(52)) == .timedOut)
            #expect(system.utilizations().count == 20)
        }
    }

    @Test func `a loop that never sleeps is reported again after a rest`() throws {
        try withReportedLoop { loop, clock, system in
            // Nothing but the report causes a pass, so the loop rests.
            clock.advance(by: .seconds(10))
            _ = loop.run(for: .zero)
            #expect(system.utilizations().count == 1)
            // It is ready whenever the loop looks.
            let (pipe, calls) = (Pipe(), Box(0))
            pipe.write()
            let source = try RunLoop.DescriptorSource(descriptor: pipe.readEnd, events: .read) { _, _ in
                clock.advance(by: .seconds(1))
                if calls.increment() == 45 { loop.stop() }
            }
            loop.add(source)
            #expect(loop.run() == .stopped)
            #expect(system.utilizations().count >= 4)
            source.invalidate()
        }
    }

    // The first step after the rest counted as the one in which a loop falls asleep.
    @Test func `a loop that runs in steps is reported after each work, and rests between`() throws {
        try withReportedLoop { loop, clock, system in
            for count in 1...3 {
                loop.performBlock {}
                _ = loop.run(for: .zero)
                // A host makes a step when a date of the loop has come.
                while let date = loop.nextTimerFire() {  // ends: the loop rests
                    clock.advance(by: clock.now.duration(to: date))
                    _ = loop.run(for: .zero)
                }
                let blocks = try system.total("blocks_performed_total")
                #expect(blocks == UInt64(count))
                #expect(system.utilizations().count <= 2 * count)
            }
        }
    }

    @Test func `releasing the metrics ends the reports, and the loop keeps nothing`() throws {
        try onFreshThread { loop in
            loop.use(RunLoop.ManualClock(autoAdvance: true))
            let system = TestMetrics()
            weak var released: RunLoopMetrics?
            do {
                let metrics = RunLoopMetrics(loop, name: "a", factory: system)
                released = metrics
                metrics.reportWhileWorking(every: .seconds(10))
            }
            #expect(released == nil)
            #expect(loop.run(for: .seconds(100)) == .finished)
            #expect(system.utilizations().isEmpty)
        }
    }

    @Test func `reporting a loop that has ended while it works gives no warning`() async {
        // The handler belongs to the process.
        await #expect(processExitsWith: .success) {
            let warnings = Box(0)
            RunLoop.setWarningHandler { _ in warnings.increment() }
            let loop = try onFreshThread { loop in loop }
            let metrics = RunLoopMetrics(loop, name: "a", factory: TestMetrics())
            metrics.reportWhileWorking(every: .seconds(10))
            metrics.invalidate()
            #expect(warnings.value == 0)
        }
    }

    @Test func `threads that set intervals at the same time leave nothing in the loop when the reports end`() throws {
        try onFreshThread { loop in
            let metrics = RunLoopMetrics(loop, name: "a", factory: TestMetrics())
            let setters = (0..<2).map { _ in
                plainThread { for _ in 0..<2_000 { metrics.reportWhileWorking(every: .seconds(10)) } }
            }
            for setter in setters { try setter.join() }
            metrics.stopReporting()
            #expect(loop.run(for: .zero) == .finished)
        }
    }
}

/// Nothing wakes the loop, however much time passes.
private func expectQuiet(_ clock: RunLoop.ManualClock, _ loop: RunLoop) throws {
    let before = loop.statistics
    for _ in 0..<20 { clock.advance(by: .seconds(10)) }
    try waitUntilAsleep(loop)
    #expect(loop.statistics.passes == before.passes && loop.statistics.wakeUps == before.wakeUps)
}

/// Moves the clock, and waits until the loop has served what is due and sleeps again.
private func advance(_ clock: RunLoop.ManualClock, _ loop: RunLoop, by duration: Duration) throws {
    try waitUntilAsleep(loop)
    clock.advance(by: duration)
    // A perform would be work. What is due has been served when no timer is due any more.
    try waitUntil("the loop has served its timers") { loop.isWaiting && !loop.debugDescription.contains("due since") }
}
