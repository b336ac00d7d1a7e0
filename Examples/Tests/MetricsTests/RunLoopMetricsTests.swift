// Rules proved here (RunLoopMetrics.swift, LoopMeter.swift, SlowestCalloutsMeter.swift):
// - Every field of the statistics is a metric with the loop's name. Counters are incremented by what is new, and nothing is counted twice.
// - The metrics of a site that has left the list of the slowest callouts are destroyed, and so are all metrics by `invalidate()`.
// - A child of fork reports nothing.
// - The metrics system may call back, also in every call. A loop that is asked for in each of its reports keeps no other waiting.

import CoreMetrics
import EventLoop
import EventLoopMetrics
import MetricsTestKit
import TestSupport
import Testing

#if canImport(Glibc)
import Glibc
#else
import Darwin
#endif

extension TestMetrics {
    func total(_ name: String, loop: String = "a") throws -> UInt64 {
        UInt64(try expectCounter("eventloop_\(name)", [("loop", loop)]).totalValue)
    }
    func gauge(_ name: String, _ others: [(String, String)] = [], loop: String = "a") throws -> Double {
        try #require(try expectRecorder("eventloop_\(name)", [("loop", loop)] + others).lastValue)
    }
    func utilizations(loop: String = "a") -> [Double] {
        recorders(label: "eventloop_utilization", dimensions: [("loop", loop)]).first?.values ?? []
    }
}

/// A metrics system that asks for something when it gets the first value, as one does that collects values when it is read.
private final class AskingSystem: MetricsFactory, CounterHandler {
    let ask = Box<(@Sendable () -> Void)?>(nil)
    let increments = Box(0)

    func increment(by amount: Int64) {
        increments.increment()
        let question = ask.value
        ask.value = nil
        question?()
    }
    func reset() {}

    func makeCounter(label: String, dimensions: [(String, String)]) -> any CounterHandler { self }
    func makeRecorder(label: String, dimensions: [(String, String)], aggregate: Bool) -> any RecorderHandler { NOOPMetricsHandler.instance }
    func makeTimer(label: String, dimensions: [(String, String)]) -> any TimerHandler { NOOPMetricsHandler.instance }
    func destroyCounter(_ handler: any CounterHandler) {}
    func destroyRecorder(_ handler: any RecorderHandler) {}
    func destroyTimer(_ handler: any TimerHandler) {}
}

/// A metrics system that asks for something whenever it gets a value that is not a count.
private final class InsistingSystem: MetricsFactory, RecorderHandler {
    let ask = Box<(@Sendable () -> Void)?>(nil)
    let values = Box(0)

    func record(_ value: Int64) { record(Double(value)) }
    func record(_ value: Double) {
        // It gives up, so that a report without end fails the test.
        if values.increment() < 10_000 { ask.value?() }
    }

    func makeCounter(label: String, dimensions: [(String, String)]) -> any CounterHandler { NOOPMetricsHandler.instance }
    func makeRecorder(label: String, dimensions: [(String, String)], aggregate: Bool) -> any RecorderHandler { self }
    func makeTimer(label: String, dimensions: [(String, String)]) -> any TimerHandler { NOOPMetricsHandler.instance }
    func destroyCounter(_ handler: any CounterHandler) {}
    func destroyRecorder(_ handler: any RecorderHandler) {}
    func destroyTimer(_ handler: any TimerHandler) {}
}

/// A metrics system that notes which loops are reported, and asks for something in each report.
private final class NotingSystem: MetricsFactory {
    let reported = Trace()
    let ask = Box<(@Sendable () -> Void)?>(nil)

    /// Gets one value in each report of the loop.
    private final class LoopRecorder: RecorderHandler {
        let system: NotingSystem
        let name: String

        init(_ name: String, _ system: NotingSystem) { (self.name, self.system) = (name, system) }

        func record(_ value: Int64) { record(Double(value)) }
        func record(_ value: Double) {
            system.reported.add(name)
            // It gives up, so that a report without end fails the test.
            if system.reported.list.count < 10 { system.ask.value?() }
        }
    }

    func makeCounter(label: String, dimensions: [(String, String)]) -> any CounterHandler { NOOPMetricsHandler.instance }
    func makeRecorder(label: String, dimensions: [(String, String)], aggregate: Bool) -> any RecorderHandler {
        if label.hasSuffix("longest_pass_seconds") { return LoopRecorder(dimensions[0].1, self) }
        return NOOPMetricsHandler.instance
    }
    func makeTimer(label: String, dimensions: [(String, String)]) -> any TimerHandler { NOOPMetricsHandler.instance }
    func destroyCounter(_ handler: any CounterHandler) {}
    func destroyRecorder(_ handler: any RecorderHandler) {}
    func destroyTimer(_ handler: any TimerHandler) {}
}

/// Something of each kind that the statistics count. The timer comes from another thread, so that the loop has slept and the timer is late.
private func doSomeWork(_ loop: RunLoop) throws {
    loop.performBlock {}
    loop.perform {}
    let alive = loop.keepAlive()
    defer { alive.cancel() }
    let other = plainThread {
        try waitUntilAsleep(loop)
        loop.add(RunLoop.Timer(fireAt: .now) { _ in loop.stop() })
    }
    loop.run()
    try other.join()
}

@Suite(.bounded) struct RunLoopMetricsTests {
    @Test func `every field of the statistics is a metric with the loop's name`() throws {
        try onFreshThread { loop in
            let system = TestMetrics()
            let metrics = RunLoopMetrics(loop, name: "a", factory: system)
            try doSomeWork(loop)
            metrics.report()
            let statistics = loop.statistics
            #expect(try system.total("passes_total") == statistics.passes)
            #expect(try system.total("waits_total") == statistics.waits)
            #expect(try system.total("wakeups_total") == statistics.wakeUps)
            #expect(try system.total("sources_handled_total") == statistics.sourcesHandled)
            #expect(try system.total("timers_fired_total") == statistics.timersFired)
            #expect(try system.total("blocks_performed_total") == statistics.blocksPerformed)
            #expect(try system.total("jobs_performed_total") == statistics.jobsPerformed)
            #expect(try system.total("response_delays_total") == statistics.responseDelays.count)
            #expect(try system.total("late_timers_total") == statistics.timerLateness.count)
            #expect(statistics.timersFired == 1 && statistics.sourcesHandled == 1 && statistics.blocksPerformed == 1)
            // The processor's clock is calibrated at each reading.
            let waited = Double(try system.total("waiting_nanoseconds_total")),
                worked = Double(try system.total("working_nanoseconds_total"))
            #expect(waited > 0 && abs(waited * 1e-9 - statistics.timeWaiting / .seconds(1)) < 1e-3)
            #expect(worked > 0 && abs(worked * 1e-9 - statistics.timeWorking / .seconds(1)) < 1e-3)
            #expect(abs(try system.gauge("longest_pass_seconds") - statistics.longestPass / .seconds(1)) < 1e-3)
            for (quantile, percent) in [("0.5", 50.0), ("0.9", 90), ("0.99", 99), ("0.999", 99.9)] {
                for (name, histogram) in [("response_delay", statistics.responseDelays), ("timer_lateness", statistics.timerLateness)] {
                    let value = try system.gauge("\(name)_seconds", [("quantile", quantile)])
                    #expect(abs(value - histogram.percentile(percent) / .seconds(1)) < 1e-3, "\(name) \(quantile)")
                }
            }
            let latest = try system.gauge("timer_lateness_seconds", [("quantile", "1")])
            #expect(latest > 0 && abs(latest - statistics.timerLateness.maximum / .seconds(1)) < 1e-6)
            #expect(try system.gauge("timer_lateness_mean_seconds") > 0 && system.gauge("response_delay_mean_seconds") > 0)
            let utilization = try #require(system.utilizations().last)
            #expect(utilization > 0 && utilization < 1)
        }
    }

    // It waits in its host, so all of its own time is work.
    @Test func `the utilization of a loop that runs in steps is its share of real time`() throws {
        try onFreshThread { loop in
            let system = TestMetrics()
            let metrics = RunLoopMetrics(loop, name: "a", factory: system)
            loop.performBlock {}
            let start = ContinuousClock.now
            _ = loop.run(for: .zero)
            let ofSteps = ContinuousClock.now - start
            try waitUntil("the step is a small part of the time") { ContinuousClock.now - start > ofSteps * 20 }
            metrics.report()
            metrics.report()
            let utilizations = system.utilizations()
            #expect(utilizations.count == 2 && utilizations[0] > 0 && utilizations[0] < 0.1 && utilizations[1] == 0, "\(utilizations)")
        }
    }

    @Test func `a counter is incremented by what is new, by whomever the report is asked for`() throws {
        try onFreshThread { loop in
            let system = TestMetrics()
            let metrics = RunLoopMetrics(loop, name: "a", dimensions: [("host", "b")], factory: system)
            try doSomeWork(loop)
            let dimensions = [("loop", "a"), ("host", "b")]
            let passes = { try system.expectCounter("eventloop_passes_total", dimensions) }
            // Everything since the loop was made.
            metrics.report()
            #expect(try passes().totalValue == Int64(loop.statistics.passes))
            let threads = (0..<4).map { _ in plainThread { for _ in 0..<20 { metrics.report() } } }
            for thread in threads { try thread.join() }
            #expect(try passes().values.count == 1, "nothing was new")
            for _ in 0..<3 {
                try doSomeWork(loop)
                metrics.report()
                metrics.report()
            }
            #expect(try passes().totalValue == Int64(loop.statistics.passes))
            #expect(try passes().values.count == 4)
            #expect(try system.expectCounter("eventloop_timers_fired_total", dimensions).values == [1, 1, 1, 1])
        }
    }

    @Test func `the loops of a group have names of their own, and a loop that is there twice is counted once`() throws {
        let group = try RunLoopThreadGroup(count: 2)
        defer { group.shutdown() }
        let system = TestMetrics()
        let metrics = RunLoopMetrics(group, name: "server", prefix: "app", factory: system)
        try group.runLoops[1].performAndWait {}
        metrics.report()
        for name in ["server-0", "server-1"] {
            #expect(system.counters(label: "app_passes_total", dimensions: [("loop", name)]).count == 1)
        }
        #expect(system.counterTotal(label: "app_sources_handled_total", dimensions: [("loop", "server-1")]) == 1)
        #expect(system.counterTotal(label: "app_sources_handled_total", dimensions: [("loop", "server-0")]) == 0)

        let other = TestMetrics()
        RunLoopMetrics([("x", group.runLoops[1]), ("y", group.runLoops[1])], factory: other).report()
        #expect(other.counters(label: "eventloop_passes_total").count == 1)
        #expect(other.counterTotal(label: "eventloop_sources_handled_total") == 1)
    }

    @Test func `the slowest callouts have a metric for each site, without the labels of items`() throws {
        try onFreshThread { loop in
            let system = TestMetrics()
            let metrics = RunLoopMetrics(loop, name: "a", factory: system)
            for number in 0..<3 {
                loop.add(RunLoop.Timer(after: .milliseconds(1), label: "number \(number)") { _ in loop.stop() })
                loop.run()
                _ = loop.statistics.slowestCallouts
            }
            metrics.report()
            let gauges = system.recorders(label: "eventloop_slowest_callout_seconds")
            for gauge in gauges { #expect(gauge.dimensions.map(\.0) == ["loop", "kind", "site"]) }
            #expect(gauges.count == loop.statistics.slowestCallouts.count)
            loop.resetSlowestCallouts()
            metrics.report()
            #expect(system.recorders(label: "eventloop_slowest_callout_seconds").count == loop.statistics.slowestCallouts.count)
        }
    }

    @Test func `a site that has entered the list of the slowest callouts again goes on counting`() throws {
        try onFreshThread { loop in
            let system = TestMetrics()
            let metrics = RunLoopMetrics(loop, name: "a", factory: system)
            // From its first reading on there is a list.
            metrics.report()
            for count in [5, 2] {
                loop.resetSlowestCallouts()
                for _ in 0..<count { loop.performBlock {} }
                _ = loop.run(for: .zero)
                metrics.report()
            }
            #expect(system.counterTotal(label: "eventloop_slowest_callouts_total") == 7)
        }
    }

    @Test func `a loop that has ended is reported with its last values`() throws {
        let thread = try RunLoopThread(name: "short")
        let system = TestMetrics()
        let metrics = RunLoopMetrics(thread.runLoop, name: "a", factory: system)
        try thread.runLoop.performAndWait {}
        metrics.report()
        try thread.runLoop.performAndWait {}
        thread.stop()
        thread.join()
        metrics.report()
        metrics.report()
        #expect(try system.total("sources_handled_total") == thread.runLoop.statistics.sourcesHandled)
        #expect(thread.runLoop.statistics.sourcesHandled >= 2)
    }

    @Test func `the metrics system may ask for a report and end the reports while it gets one`() throws {
        try onFreshThread { loop in
            let system = AskingSystem()
            let metrics = RunLoopMetrics(loop, name: "a", factory: system)
            try doSomeWork(loop)
            system.ask.value = {
                metrics.report()
                metrics.invalidate()
            }
            metrics.report()
            let count = system.increments.value
            #expect(count > 1, "the report goes on")
            try doSomeWork(loop)
            metrics.report()
            #expect(system.increments.value == count)
        }
    }

    @Test func `a metrics system that asks for a report in every call of one gets one of each loop`() throws {
        try onFreshThread { loop in
            let system = InsistingSystem()
            try doSomeWork(loop)
            let metrics = RunLoopMetrics(loop, name: "a", factory: system)
            system.ask.value = { metrics.report() }
            for _ in 0..<2 { metrics.report() }
            // A report of one loop has about twenty.
            #expect(system.values.value > 20 && system.values.value < 100)
            system.ask.value = nil
        }
    }

    @Test func `what another thread asks for during a report is not waited for, and is reported after it`() throws {
        try onFreshThread { loop in
            let system = InsistingSystem()
            let metrics = RunLoopMetrics(loop, name: "a", factory: system)
            metrics.report()
            let values = system.values.value
            system.ask.value = {
                system.ask.value = nil
                _ = try? plainThread { metrics.report() }.join()
            }
            metrics.report()
            // Each report may have a value less: the share of the time since the one before.
            #expect(system.values.value >= 3 * values - 2)
        }
    }

    @Test func `a loop that another thread asks for during each of its reports keeps no other loop waiting`() throws {
        let ended = try onFreshThread { loop in loop }
        try onFreshThread { loop in
            let system = NotingSystem()
            let metrics = RunLoopMetrics([("a", loop), ("b", ended)], factory: system)
            system.ask.value = { _ = try? plainThread { metrics.report() }.join() }
            metrics.report()
            system.ask.value = nil
            #expect(system.reported.list.prefix(4) == ["a", "b", "a", "b"])
        }
    }

    @Test func `a child of fork reports nothing, and its parent goes on`() async {
        await #expect(processExitsWith: .success) {
            let loop = try onFreshThread { loop in loop }
            let system = InsistingSystem()
            let metrics = RunLoopMetrics(loop, name: "a", factory: system)
            metrics.report()
            let end = inForkedChild {
                let values = system.values.value
                metrics.report()
                metrics.reportWhileWorking()
                metrics.stopReporting()
                metrics.invalidate()
                return system.values.value == values ? 0 : 1
            }
            #expect(end.status == 0, "\(end)")
            let values = system.values.value
            metrics.report()
            #expect(system.values.value > values)
        }
    }

    @Test func `a child that the metrics system forks during a report reports no other loop`() async {
        await #expect(processExitsWith: .success) {
            let one = try onFreshThread { loop in loop }
            let other = try onFreshThread { loop in loop }
            let (system, child) = (NotingSystem(), Box<Int32>(-1))
            let metrics = RunLoopMetrics([("a", one), ("b", other)], factory: system)
            // The runtime has met the types of a report before the fork.
            metrics.report()
            system.ask.value = {
                system.ask.value = nil
                child.value = systemFork()
                if child.value == 0 { killLater() }
            }
            metrics.report()
            if child.value == 0 { _exit(system.reported.list == ["a", "b", "a"] ? 0 : 1) }
            var status: Int32 = -1
            while waitpid(child.value, &status, 0) < 0 && errno == EINTR {}
            #expect(status == 0 && system.reported.list == ["a", "b", "a", "b"])
        }
    }

    @Test func `invalidating destroys the metrics, and nothing is reported any more`() throws {
        try onFreshThread { loop in
            let system = TestMetrics()
            let metrics = RunLoopMetrics(loop, name: "a", factory: system)
            try doSomeWork(loop)
            metrics.report()
            #expect(!system.counters.isEmpty && !system.recorders.isEmpty)
            metrics.invalidate()
            #expect(system.counters.isEmpty && system.recorders.isEmpty)
            metrics.report()
            metrics.reportWhileWorking(every: .milliseconds(1))
            metrics.invalidate()
            #expect(system.counters.isEmpty && system.recorders.isEmpty)
        }
    }
}
