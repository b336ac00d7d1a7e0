// The statistics of loops for swift-metrics.

#if Metrics

internal import CPlatform
public import CoreMetrics
public import EventLoop

/// Reports the statistics of loops to a metrics system. Every metric has the dimension `loop`, the loop's name.
///
/// | Metric (after `prefix_`) | Kind | Field of `RunLoop.Statistics` |
/// |---|---|---|
/// | `passes_total`, `waits_total`, `wakeups_total` | counter | `passes`, `waits`, `wakeUps` |
/// | `sources_handled_total`, `timers_fired_total`, `blocks_performed_total`, `jobs_performed_total` | counter | of these names |
/// | `waiting_nanoseconds_total`, `working_nanoseconds_total` | counter | `timeWaiting`, `timeWorking` |
/// | `response_delays_total`, `late_timers_total` | counter | `responseDelays.count`, `timerLateness.count` |
/// | `response_delay_seconds` with `quantile`: 0.5, 0.9, 0.99, 0.999, 1 | gauge | percentiles and maximum of `responseDelays` |
/// | `timer_lateness_seconds`, likewise | gauge | of `timerLateness` |
/// | `response_delay_mean_seconds`, `timer_lateness_mean_seconds` | gauge | their means |
/// | `longest_pass_seconds` | gauge | `longestPass` |
/// | `slowest_callout_seconds`, with `kind` and `site` | gauge | `slowestCallouts` |
/// | `slowest_callouts_total`, with `kind` and `site` | counter | the number of callouts of that site, `SlowCallout.count` |
/// | `utilization` | recorder | the share of the time since the last report, or since this object was made, that the loop worked: 0 to 1 |
///
/// A counter is incremented by what has come since the last report of this object, and by everything since the loop was made in the first
/// report. So a loop belongs into one object only: a second one would count everything twice. Gauges are about the time since the loop
/// was made, as the statistics are.
///
/// Thread-safe. The metrics system may call it, too. While a thread reports, other calls leave what they ask for to that thread, and return. What
/// the metrics system asks for in a call of the report is part of that report. If it ends the thread in such a call (`pthread_exit`), the other loops
/// are reported as the thread ends, and what is left of this loop's report comes with the next one. Every metric is destroyed all the same. A child
/// of `fork` reports nothing: the loops are its parent's.
public final class RunLoopMetrics: Sendable {
    private let state: LoopLock<State>
    private let mark = ProcessMark()

    private struct State: Sendable {
        var loops: [RunLoop]
        /// Of the loops, until they are destroyed.
        var meters: [LoopMeter]
        var reporters: [WorkReporter] = []
        var isInvalid = false
        /// The thread that reports; nil if none does. Zero where threads have no numbers.
        var reporter: Int32?
        /// Of the report of each loop.
        var progress: [Progress]
        /// Behind the loop that was reported last: one that is asked for during each of its reports keeps no other waiting.
        var turn = 0

        /// What the reporter does next. Nil if there is nothing: then the next call reports.
        mutating func nextStep() -> Step? {
            if let index = progress[turn...].firstIndex(of: .due) ?? progress.firstIndex(of: .due) {
                progress[index] = .begun
                turn = index + 1
                return .report(meters[index])
            }
            // Nothing becomes due any more.
            if isInvalid, let meter = meters.popLast() { return .destroy(meter) }
            reporter = nil
            for index in progress.indices { progress[index] = .idle }
            return nil
        }
    }

    private enum Progress: Sendable { case idle, due, begun }

    private enum Step: Sendable {
        case report(LoopMeter)
        case destroy(LoopMeter)
    }

    /// Metrics of one loop.
    ///
    /// - Parameters:
    ///   - loop: the loop.
    ///   - name: the value of the dimension `loop`.
    ///   - prefix: what the labels of the metrics begin with, followed by an underscore.
    ///   - dimensions: further dimensions of every metric.
    ///   - factory: makes the metrics; by default the one that the metrics system was bootstrapped with.
    public convenience init(
        _ loop: RunLoop, name: String, prefix: String = "eventloop", dimensions: [(String, String)] = [],
        factory: any MetricsFactory = MetricsSystem.factory
    ) {
        self.init([(name, loop)], prefix: prefix, dimensions: dimensions, factory: factory)
    }

    /// Metrics of the loops of a group, which are named as its threads are: `name-0`, `name-1` and so on.
    public convenience init(
        _ group: RunLoopThreadGroup, name: String = "loop", prefix: String = "eventloop", dimensions: [(String, String)] = [],
        factory: any MetricsFactory = MetricsSystem.factory
    ) {
        self.init(
            group.runLoops.enumerated().map { ("\(name)-\($0)", $1) }, prefix: prefix, dimensions: dimensions, factory: factory)
    }

    /// Metrics of several loops. A loop that is there twice is reported once, under its first name.
    public init(
        _ loops: [(name: String, loop: RunLoop)], prefix: String = "eventloop", dimensions: [(String, String)] = [],
        factory: any MetricsFactory = MetricsSystem.factory
    ) {
        var meters: [LoopMeter] = []
        for (name, loop) in loops where !meters.contains(where: { $0.loop === loop }) {
            let labels = MetricLabels(prefix: prefix, dimensions: [("loop", name)] + dimensions, factory: factory)
            meters.append(LoopMeter(loop, labels))
        }
        state = LoopLock(State(loops: meters.map { $0.loop }, meters: meters, progress: meters.map { _ in .idle }))
    }

    deinit { stopReporting() }

    // MARK: Reporting

    /// Reports all loops now. Call it whenever the metrics system is about to be read, or from a timer. A loop that has ended is reported with its
    /// last values. Wakes no loop, except in the first report: from then on each loop times its callouts, for `slowestCallouts`.
    public func report() { report { _ in true } }

    func report(_ loop: RunLoop) { report { $0 === loop } }

    private func report(_ isWanted: (RunLoop) -> Bool) {
        carryOut { state in
            // A metrics system that asks in every call of a report would otherwise have its thread report for ever.
            let isInReport = state.reporter != 0 && state.reporter == cplatform_thread_id()
            for (index, loop) in state.loops.enumerated() where isWanted(loop) && !(isInReport && state.progress[index] == .begun) {
                state.progress[index] = .due
            }
        }
    }

    /// The metrics system is the program's code. It may have locks that other threads hold while they ask for a report, so nothing of it is called
    /// under the lock, and no call waits for another one's report.
    private func carryOut(_ wish: (inout State) -> Void) { /* DOES CALLOUT */
        if !mark.isOurs { return }
        let isReporter = state.withLock { state -> Bool in
            wish(&state)
            if state.reporter != nil { return false }
            state.reporter = cplatform_thread_id()
            return true
        }
        // Nobody else would take the steps that are left, because the others rely on this thread.
        if isReporter { CallInProgress.callForEach({ self.state.withLock { $0.nextStep() } }, call) }
    }

    private func call(_ step: Step) { /* DOES CALLOUT */
        switch step {
        case .report(let meter): meter.report()
        case .destroy(let meter): meter.destroy()
        }
    }

    /// From now on each loop reports itself every `interval` of its time, on its own thread, while it works. A loop that has done nothing
    /// since its last report sleeps undisturbed: it reports once more after its work, and then not before something else has woken it. So
    /// an idle process has no wake-ups for metrics.
    ///
    /// The loops must run in a common mode. A second call replaces the interval.
    public func reportWhileWorking(every interval: Duration = .seconds(10)) {
        precondition(interval > .zero, "loops report at an interval, and it is \(interval); pass a positive one")
        if !mark.isOurs { return }
        // In one step: of two calls at the same time, the later one stops the reporters of the other.
        let reporters = state.withLock { state -> (former: [WorkReporter], next: [WorkReporter]) in
            if state.isInvalid { return ([], []) }
            let former = state.reporters
            state.reporters = state.loops.map { WorkReporter($0, every: interval, for: self) }
            return (former, state.reporters)
        }
        for reporter in reporters.former { reporter.stop() }
        for reporter in reporters.next { reporter.start() }
    }

    /// Ends what `reportWhileWorking` began.
    public func stopReporting() {
        if !mark.isOurs { return }
        let former = state.withLock { state in
            defer { state.reporters = [] }
            return state.reporters
        }
        for reporter in former { reporter.stop() }
    }

    /// Ends the reports, and destroys the metrics in the metrics system, which may drop their values. The loops can then be reported by
    /// another object. If another thread reports at this moment, it destroys them behind its report, perhaps after this has returned; an object whose
    /// metrics have the same names must be made later.
    public func invalidate() {
        if !mark.isOurs { return }
        // In one step: no call of `reportWhileWorking` comes between.
        let former = state.withLock { state in
            // The meters retain the loops.
            defer { (state.loops, state.reporters, state.isInvalid) = ([], [], true) }
            return state.reporters
        }
        for reporter in former { reporter.stop() }
        carryOut { _ in }
    }
}

#endif
