// Reports a loop at an interval while it works, and leaves it alone while it sleeps.

#if Metrics

import EventLoop

/// Has a timer while the loop works. If nothing but that timer has caused a pass between two of its dates, the timer is replaced by an
/// observer, which restarts it when the loop works for another reason.
///
/// Owned by its `RunLoopMetrics`; the loop has weak references only. The timer and the observer are made on the loop's thread, except for
/// the first timer.
final class WorkReporter: Sendable {
    private let loop: RunLoop
    private let interval: Duration
    private let state: LoopLock<State>

    private struct State {
        // `weak let` would need a compiler newer than the manifest asks for.
        weak var metrics: RunLoopMetrics?
        var timer: RunLoop.Timer?
        var observer: RunLoop.Observer?
        /// At the last date of the timer, or at its start.
        var passes: UInt64 = 0
        var isStopped = false
    }

    init(_ loop: RunLoop, every interval: Duration, for metrics: RunLoopMetrics) {
        (self.loop, self.interval) = (loop, interval)
        state = LoopLock(State(metrics: metrics))
    }

    func start() {
        let passes = loop.statistics.passes
        // In the loop's time, whichever thread this is.
        let first = loop.clock.now.advanced(by: interval)
        let timer = RunLoop.Timer(fireAt: first, interval: interval, label: "report of metrics") { [weak self] _ in self?.report() }
        let isWanted = state.withLock { state in
            if state.isStopped { return false }
            state.timer = timer
            state.observer = nil
            state.passes = passes
            return true
        }
        if isWanted { loop.add(timer, forMode: .common) } else { timer.invalidate() }
    }

    func stop() {
        let (timer, observer) = state.withLock { state in
            defer { state = State(isStopped: true) }
            return (state.timer, state.observer)
        }
        timer?.invalidate()
        observer?.invalidate()
    }

    /// On the loop's thread, when the timer fires.
    private func report() {
        // Outside the lock, because it may be the last reference.
        state.withLock { $0.metrics }?.report(loop)
        let passes = loop.statistics.passes
        let hasWorked = state.withLock { state in
            defer { state.passes = passes }
            // One pass is the timer's own.
            return passes > state.passes + 1
        }
        if !hasWorked { rest() }
    }

    /// Replaces the timer by an observer of the next work.
    ///
    /// Not of a wake-up: a loop that finds work whenever it looks does not sleep. The first pass from now on is the one in which an idle loop
    /// falls asleep; when another one begins, or another run, something has happened. A loop in a host has a run for each step.
    private func rest() {
        let passes = loop.statistics.passes
        let observer = RunLoop.Observer(activities: [.entry, .beforeTimers], label: "report of metrics") { [weak self] observer, activity in
            guard let self, activity == .entry || loop.statistics.passes > passes + 1 else { return }
            observer.invalidate()
            start()
        }
        let (timer, isStopped) = state.withLock { state in
            defer { if !state.isStopped { (state.timer, state.observer) = (nil, observer) } }
            return (state.timer, state.isStopped)
        }
        timer?.invalidate()
        if !isStopped { loop.add(observer, forMode: .common) }
    }
}

#endif
