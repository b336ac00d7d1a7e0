// Steps 5 and 7: asking the kernel, and sleeping.

import Synchronization

extension RunLoop {
    /// What step 9 can choose from.
    struct Ready {
        var ports = false
        var mainQueue = false
        /// A C library's callback ran inside the wait.
        var servedForeign = false

        var hasPort: Bool { ports || mainQueue || servedForeign }
    }

    /// Whether somebody is told of steps 6 and 8. If nobody is, asking first and waiting then cannot be told from one wait.
    func observesSleep(_ mode: ModeState) -> Bool {
        mode.observedActivities.load(ordering: .relaxed) & (Activity.beforeWaiting.rawValue | Activity.afterWaiting.rawValue) != 0
    }

    /// Asks the kernel without waiting. Nobody but C libraries on the mode's base is called.
    func findReady(_ run: Activation) -> Ready {
        takeAttention(run.mode)
        if owned.pending.contains(.changes) { applyChanges() }
        guard let poller = pollerForWaiting(run.mode, mayStayWithout: true) else { return Ready() }
        return ready(after: poller.poll(), poller)
    }

    /// Sleeps until something happens in the mode, the limit passes, or somebody wakes the thread; does not sleep when there is
    /// something to do already.
    func sleep(_ run: Activation) -> Ready {
        // No callouts from here to the end of the wait: what a handler would change now could be slept over.
        let mode = run.mode!  // a run has a mode
        takeAttention(mode)
        if owned.pending.contains(.changes) { applyChanges() }
        let poller = pollerForWaiting(mode, mayStayWithout: false)!  // nil only when it may stay without
        while true {  // ends: with an event, the limit, a wake-up; a turn without any is a stale edge of the kernel's
            sleepState.store(SleepState.asleep, ordering: .sequentiallyConsistent)
            takeAttention(mode)
            if isReasonToStayAwake(run) {
                sleepState.store(SleepState.working, ordering: .sequentiallyConsistent)
                return ready(after: poller.poll(), poller)
            }
            let limit = min(run.limit, mode.timers.nextWake())
            let outcome = wait(poller, until: limit)
            let wasWoken = sleepState.exchange(SleepState.working, ordering: .sequentiallyConsistent) == SleepState.woken
            let ready = ready(after: outcome, poller)
            if wasWoken {
                counters.wakeUps.increment()
                // A timer that another thread has added may be due at step 9.
                takeAttention(mode)
                if owned.pending.contains(.changes) { applyChanges() }
            }
            if wasWoken || ready.hasPort || (limit != .max && limit <= now().nanoseconds) { return ready }
        }
        // Callouts again.
    }

    private func wait(_ poller: Poller, until limit: Int64) -> Poller.Outcome {
        counters.waits.increment()
        if let clock = owned.manualClock { return wait(poller, until: limit, on: clock) }
        counters.beginWaiting()
        defer { counters.endWaiting() }
        return poller.wait(until: limit)
    }

    private func ready(after outcome: Poller.Outcome, _ poller: Poller) -> Ready {
        Ready(ports: !poller.ready.isEmpty, mainQueue: outcome.mainQueueIsReady, servedForeign: outcome.servedForeign)
    }

    /// Whether there is something to do in this mode now. On the owning thread, after `takeAttention`.
    private func isReasonToStayAwake(_ run: Activation) -> Bool {
        if run.isStopRequested || isTerminating.load(ordering: .acquiring) || owned.pending.contains(.wake) || isEmpty(run.mode)
            || !run.mode.poller!.ready.isEmpty
        {
            return true
        }
        if owned.pending.isDisjoint(with: .queues) { return false }
        // What was told of may be for other modes; whoever adds to it tells again, and a run of another mode looks anew.
        owned.pending.subtract(.queues)
        owned.pending.formUnion(queuedWork(run.mode))
        return !owned.pending.isDisjoint(with: .queues)
    }

    /// The mode's base, made when it is first needed: at the first sleep, or when there is something that the kernel could report.
    func pollerForWaiting(_ mode: ModeState, mayStayWithout: Bool) -> Poller? {
        if let poller = mode.poller {
            // The mode may have become a common one after its base was made.
            if isMainLoop && servesMainQueue(in: mode) { watchMainQueue(poller) }
            if mayStayWithout && !poller.watchesAnything { return nil }
            return poller
        }
        let hasWatches = servesMainQueue(in: mode) || mode.watchedSources.load(ordering: .acquiring) > 0
        if mayStayWithout && !hasWatches { return nil }
        return makePoller(mode)
    }
}
