// The metrics of one loop.

#if Metrics

import CoreMetrics
import EventLoop

/// How the metrics of one loop are made.
struct MetricLabels: Sendable {
    let prefix: String
    let dimensions: [(String, String)]
    let factory: any MetricsFactory

    func counter(_ name: String, _ others: [(String, String)] = []) -> DeltaCounter {
        DeltaCounter(Counter(label: "\(prefix)_\(name)", dimensions: dimensions + others, factory: factory))
    }
    func gauge(_ name: String, _ others: [(String, String)] = []) -> Gauge {
        Gauge(label: "\(prefix)_\(name)", dimensions: dimensions + others, factory: factory)
    }
    func recorder(_ name: String) -> Recorder {
        Recorder(label: "\(prefix)_\(name)", dimensions: dimensions, aggregate: true, factory: factory)
    }
}

/// A metric, as far as its end goes.
protocol DestroyableMetric {
    func destroy()
}

extension Recorder: DestroyableMetric {}
extension DeltaCounter: DestroyableMetric {}

extension [any DestroyableMetric] {
    /// Destroys each metric, also if the metrics system ends the thread in one of these calls.
    func destroyAll() { /* DOES CALLOUT */
        var left = self[...]
        CallInProgress.callForEach({ left.popFirst() }, { $0.destroy() })
    }
}

/// A counter of which the total is known.
///
/// An object, because a call of the metrics system may end its thread: what was reported by then is still known.
final class DeltaCounter: Sendable {
    private let counter: Counter
    private let reported = LoopLock<UInt64>(0)

    init(_ counter: Counter) { self.counter = counter }

    func report(_ total: UInt64) {
        let difference = reported.withLock { reported -> UInt64 in
            // Times are converted from the processor's units at each reading, and can be a little less than at the last one.
            guard total > reported else { return 0 }
            defer { reported = total }
            return total - reported
        }
        if difference > 0 { counter.increment(by: Int64(clamping: difference)) }
    }

    /// The same for a total that may have begun again at zero since the last report: then all of it is new.
    func report(restarting total: UInt64) {
        reported.withLock { reported in if total < reported { reported = 0 } }
        report(total)
    }

    func destroy() { counter.destroy() }
}

/// The percentiles of a histogram, as gauges.
private struct HistogramMeter: Sendable {
    private static let quantiles: [(name: String, percent: Double)] = [("0.5", 50), ("0.9", 90), ("0.99", 99), ("0.999", 99.9), ("1", 100)]

    private let count: DeltaCounter
    private let mean: Gauge
    private let gauges: [Gauge]

    init(_ labels: MetricLabels, _ name: String, count: String) {
        self.count = labels.counter(count)
        mean = labels.gauge("\(name)_mean_seconds")
        gauges = Self.quantiles.map { labels.gauge("\(name)_seconds", [("quantile", $0.name)]) }
    }

    func report(_ histogram: RunLoop.Histogram) {
        count.report(histogram.count)
        mean.record(histogram.mean.inSeconds)
        for (gauge, quantile) in zip(gauges, Self.quantiles) {
            gauge.record((quantile.percent == 100 ? histogram.maximum : histogram.percentile(quantile.percent)).inSeconds)
        }
    }

    var metrics: [any DestroyableMetric] {
        let gauges: [any DestroyableMetric] = gauges
        return gauges + [mean, count]
    }
}

/// The share of real time that a loop worked.
///
/// Not its share of `timeWaiting` and `timeWorking`: a hosted loop waits in its host, outside of its runs.
private final class UtilizationMeter: DestroyableMetric, Sendable {
    private let recorder: Recorder
    /// At the last report.
    private let reported: LoopLock<(time: ContinuousClock.Instant, worked: Duration)>

    init(_ recorder: Recorder, worked: Duration) {
        self.recorder = recorder
        reported = LoopLock((.now, worked))
    }

    /// `isBusy`: a callout that has not returned counts later, with the time that it has taken by then.
    func report(worked: Duration, isBusy: Bool) {
        let now = ContinuousClock.now
        let share = reported.withLock { reported -> Double? in
            if isBusy && worked <= reported.worked { return nil }
            defer { reported = (now, worked) }
            return (worked - reported.worked) / max(now - reported.time, .nanoseconds(1))
        }
        if let share { recorder.record(min(max(share, 0), 1)) }
    }

    func destroy() { recorder.destroy() }
}

/// What one loop's statistics were at the last report, and its metrics.
struct LoopMeter: Sendable {
    let loop: RunLoop
    private let labels: MetricLabels
    private let counters: [DeltaCounter]
    private let waiting, working: DeltaCounter
    private let longestPass: Gauge
    private let utilization: UtilizationMeter
    private let responseDelays, timerLateness: HistogramMeter
    private let slowest: SlowestCalloutsMeter

    /// The order is that of `counters`.
    private static let counts: [(name: String, value: @Sendable (RunLoop.Statistics) -> UInt64)] = [
        ("passes_total", { $0.passes }), ("waits_total", { $0.waits }), ("wakeups_total", { $0.wakeUps }),
        ("sources_handled_total", { $0.sourcesHandled }), ("timers_fired_total", { $0.timersFired }),
        ("blocks_performed_total", { $0.blocksPerformed }), ("jobs_performed_total", { $0.jobsPerformed }),
    ]

    init(_ loop: RunLoop, _ labels: MetricLabels) {
        self.loop = loop
        self.labels = labels
        counters = Self.counts.map { labels.counter($0.name) }
        waiting = labels.counter("waiting_nanoseconds_total")
        working = labels.counter("working_nanoseconds_total")
        longestPass = labels.gauge("longest_pass_seconds")
        utilization = UtilizationMeter(labels.recorder("utilization"), worked: loop.statistics.timeWorking)
        responseDelays = HistogramMeter(labels, "response_delay", count: "response_delays_total")
        timerLateness = HistogramMeter(labels, "timer_lateness", count: "late_timers_total")
        slowest = SlowestCalloutsMeter(labels)
    }

    func report() {
        let statistics = loop.statistics
        for (index, count) in Self.counts.enumerated() { counters[index].report(count.value(statistics)) }
        waiting.report(statistics.timeWaiting.inNanoseconds)
        working.report(statistics.timeWorking.inNanoseconds)
        utilization.report(worked: statistics.timeWorking, isBusy: !loop.isCurrent && loop.currentMode != nil && !loop.isWaiting)
        longestPass.record(statistics.longestPass.inSeconds)
        responseDelays.report(statistics.responseDelays)
        timerLateness.report(statistics.timerLateness)
        slowest.report(statistics.slowestCallouts)
    }

    func destroy() { /* DOES CALLOUT */
        var metrics: [any DestroyableMetric] = [waiting, working, longestPass, utilization]
        metrics += counters as [any DestroyableMetric]
        metrics += responseDelays.metrics + timerLateness.metrics + slowest.takeMetrics()
        metrics.destroyAll()
    }
}

extension Duration {
    var inSeconds: Double { self / .seconds(1) }

    /// Rounded down; zero if negative, and at most what fits.
    var inNanoseconds: UInt64 {
        let (seconds, attoseconds) = components
        guard seconds >= 0, attoseconds >= 0 else { return 0 }
        let (whole, overflow) = UInt64(seconds).multipliedReportingOverflow(by: 1_000_000_000)
        return overflow ? .max : whole &+ UInt64(attoseconds / 1_000_000_000)
    }
}

#endif
