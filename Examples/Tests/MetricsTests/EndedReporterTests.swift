// Rules proved here (RunLoopMetrics.swift): if the metrics system ends its thread in a call of a report, the other loops are reported all the same,
// later reports go on, and nothing is counted twice. If it does so as it destroys a metric, the others are destroyed.

import CoreMetrics
import EventLoop
import EventLoopMetrics
import TestSupport
import Testing

#if canImport(Glibc)
import Glibc
#else
import Darwin
#endif

/// A metrics system that adds up the counts, and ends the thread that brings it the first.
private final class EndingSystem: MetricsFactory {
    let sums = Box<[String: Int64]>([:])
    let hasEnded = Box(false)

    private final class Sum: CounterHandler {
        let system: EndingSystem
        let name: String

        init(_ name: String, _ system: EndingSystem) { (self.name, self.system) = (name, system) }

        func increment(by amount: Int64) {
            let name = name
            system.sums.change { $0[name, default: 0] += amount }
            if system.hasEnded.value { return }
            system.hasEnded.value = true
            endThread()
        }
        func reset() {}
    }

    func makeCounter(label: String, dimensions: [(String, String)]) -> any CounterHandler { Sum("\(label) \(dimensions[0].1)", self) }
    func makeRecorder(label: String, dimensions: [(String, String)], aggregate: Bool) -> any RecorderHandler { NOOPMetricsHandler.instance }
    func makeTimer(label: String, dimensions: [(String, String)]) -> any TimerHandler { NOOPMetricsHandler.instance }
    func destroyCounter(_ handler: any CounterHandler) {}
    func destroyRecorder(_ handler: any RecorderHandler) {}
    func destroyTimer(_ handler: any TimerHandler) {}
}

/// A metrics system that counts its metrics, and ends the thread with each that it destroys.
private final class UnmakingSystem: MetricsFactory {
    let made = Box(0)
    let destroyed = Box(0)

    private func make() -> NOOPMetricsHandler {
        made.increment()
        return NOOPMetricsHandler.instance
    }

    private func destroyOne() {
        destroyed.increment()
        endThread()
    }

    func makeCounter(label: String, dimensions: [(String, String)]) -> any CounterHandler { make() }
    func makeRecorder(label: String, dimensions: [(String, String)], aggregate: Bool) -> any RecorderHandler { make() }
    func makeTimer(label: String, dimensions: [(String, String)]) -> any TimerHandler { make() }
    func destroyCounter(_ handler: any CounterHandler) { destroyOne() }
    func destroyRecorder(_ handler: any RecorderHandler) { destroyOne() }
    func destroyTimer(_ handler: any TimerHandler) { destroyOne() }
}

/// Returns nothing, so that no code behind a call of it is unreachable.
private func endThread() { pthread_exit(nil) }

/// What the frames of an ended thread held is leaked, which the leak detector finds, and neither sanitizer follows a thread that unwinds.
@Suite(.bounded, .enabled(if: !isUnderAddressSanitizer && !isUnderThreadSanitizer)) struct EndedReporterTests {
    private func endedLoop() throws -> RunLoop {
        try onFreshThread { loop in
            loop.performBlock {}
            _ = loop.run(for: .zero)
            return loop
        }
    }

    @Test(arguments: [true, false])
    func `a metrics system that ends its thread in a report gets the other loops and the next reports`(hasLoop: Bool) throws {
        let (one, other, system) = (try endedLoop(), try endedLoop(), EndingSystem())
        let metrics = RunLoopMetrics([("a", one), ("b", other)], factory: system)
        if hasLoop {
            let thread = try RunLoopThread(name: "ends")
            thread.runLoop.perform { metrics.report() }
            #expect(thread.join(timeout: patience), "the thread ends")
        } else {
            plainThread { metrics.report() }.detach()
        }
        func sum(_ name: String, _ loop: String) -> UInt64 { UInt64(system.sums.value["eventloop_\(name) \(loop)"] ?? 0) }
        try waitUntil("the other loop is reported") { sum("blocks_performed_total", "b") == other.statistics.blocksPerformed }
        #expect(sum("blocks_performed_total", "a") == 0, "the report of the first loop has ended with its thread")
        metrics.report()
        try waitUntil("the next report") { sum("blocks_performed_total", "a") == one.statistics.blocksPerformed }
        for (loop, name) in [(one, "a"), (other, "b")] {
            #expect(loop.statistics.blocksPerformed > 0 && sum("blocks_performed_total", name) == loop.statistics.blocksPerformed)
            #expect(sum("passes_total", name) == loop.statistics.passes, "nothing is counted twice")
        }
    }

    @Test(arguments: [true, false])
    func `a metrics system that ends its thread with each metric that it destroys gets all of them`(hasLoop: Bool) throws {
        let (one, other, system) = (try endedLoop(), try endedLoop(), UnmakingSystem())
        let metrics = RunLoopMetrics([("a", one), ("b", other)], factory: system)
        metrics.report()
        let made = system.made.value
        #expect(made > 30)
        if hasLoop {
            let thread = try RunLoopThread(name: "ends")
            thread.runLoop.perform { metrics.invalidate() }
            #expect(thread.join(timeout: patience), "the thread ends")
        } else {
            plainThread { metrics.invalidate() }.detach()
        }
        try waitUntil("every metric is destroyed") { system.destroyed.value >= made }
        // Does nothing: none is left.
        metrics.invalidate()
        #expect(system.destroyed.value == made)
    }
}
