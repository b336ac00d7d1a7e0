// Steps 5 and 7: polling the kernel, and sleeping.

import Synchronization

extension Poller.WaitResult {
    /// Sources were collected, or the serving step must fail some.
    static var descriptors: Self { .stale }
    /// A port of the running mode has messages. Only step 5 says so: afterwards `owned.pending` does.
    static let messages = Self(rawValue: 1 << 3)
    /// The descriptors are in `owned.polled`, because the mode has no base.
    static let polled = Self(rawValue: 1 << 4)
}

extension RunLoop {
    /// What step 9 can choose from: one byte, which is passed from step to step.
    typealias Ready = Poller.WaitResult

    /// Step 5. Calls out only to guest loops, and to C libraries that have events on the mode's base.
    @inline(__always) func findReady(_ frame: RunFrame, _ mode: ModeState) -> Ready { /* DOES CALLOUT */
        mode.hasGuestLoops ? findReadyBesideGuestLoops(mode) : askKernel(mode, mayServeLeftover: frame.owned.returnsAfterSource)
    }

    @inline(__always) func sleep(_ frame: RunFrame, _ mode: ModeState) -> Ready { /* DOES CALLOUT */
        mode.hasGuestLoops ? sleepBesideGuestLoops(frame, mode) : sleep(frame, mode, until: .max)
    }

    /// Asks the kernel without waiting. Calls out only to C libraries that have events on the mode's base.
    @inline(__always) func askKernel(_ mode: ModeState, mayServeLeftover: Bool = false) -> Ready {
        shared.preconditionOurs()
        let messages: Ready = hasPendingWork && findMessages(mode) ? .messages : []
        if mayServeLeftover && hasLeftover(mode) { return messages.union(.descriptors) }
        counters.poll()
        guard preparePoller(mode, mayStayWithout: true) else {
            // The mode needs no base, or it cannot have one that watches everything.
            let lacksBase = mode.owned.pollerReference == nil ? mayHaveWatches(mode) : servesMainQueue(in: mode)
            return lacksBase ? findReadyWithoutPoller(mode).union(messages) : messages
        }
        return mode.owned.pollerReference!.use { ready(after: $0.poll(), $0) }.union(messages)
    }

    /// Whether a source that an earlier run has left is still ready.
    @inline(never) private func hasLeftover(_ mode: ModeState) -> Bool {
        mode.owned.pollerReference?.use { !isMainLoop && !$0.ready.isEmpty && $0.hasVerifiedLeftover() } ?? false
    }

    /// Sleeps until something happens in the mode, the run's limit or `latest` passes, or the thread is woken.
    @inline(__always) func sleep(_ frame: RunFrame, _ mode: ModeState, until latest: Int64) -> Ready { /* DOES CALLOUT */
        shared.preconditionOurs()
        if owned.pending.contains(.passEnd) { callPassEndListeners() }
        // Sources that fail end here, which calls out: the look behind `beginSleep` finds what that leaves. No callout from there to the wait's end.
        if hasPendingWork {
            if hasWork(.forSteps) { carryOutPendingChanges(mode) }
            if isObserved { return sleepObserved(frame, mode, until: latest) }
        }
        guard preparePoller(mode, mayStayWithout: false) else { return sleepWithoutPoller(frame, mode, until: latest) }
        return mode.owned.pollerReference!.use { sleep(frame, mode, $0, until: latest) }
    }

    @inline(__always) func sleep(_ frame: RunFrame, _ mode: ModeState, _ poller: Poller, until latest: Int64) -> Ready { /* DOES CALLOUT */
        while true {  // ends: with an event, the limit, a wake-up; an iteration without any is a stale edge of the kernel's
            waker.beginSleep()
            if !poller.ready.isEmpty || isReasonToStayAwake(frame, mode) {
                waker.stayAwake()
                if poller.ready.isEmpty && mayPutOffPolling { return Ready() }  // the kernel must be asked again about leftovers
                if frame.owned.returnsAfterSource && hasLeftover(mode) { return .descriptors }
                counters.poll()
                return ready(after: poller.poll(), poller)
            }
            let limit = min(min(frame.owned.limit, latest), mode.owned.timers.nextWake())
            let outcome = wait(poller, until: limit)
            let wasWoken = waker.endSleep()
            let ready = ready(after: outcome, poller)
            if wasWoken { didWakeUp(mode) }
            if wasWoken || !ready.isEmpty || (limit != .max && limit <= now().nanoseconds) { return ready }
        }
    }

    @inline(never) func didWakeUp(_ mode: ModeState) { /* DOES CALLOUT */
        counters.wakeUps.increment()
        carryOutPendingChanges(mode)  // a timer that another thread has added may be due at step 9
    }

    @inline(__always) private func wait(_ poller: Poller, until limit: Int64) -> Poller.WaitResult {
        counters.waits.increment()
        counters.endWork()
        defer { counters.endWaiting() }
        if let clock = time.manualClock { return wait(poller, until: limit, on: clock) }
        return poller.wait(until: limit)
    }

    @inline(__always) private func ready(after outcome: Poller.WaitResult, _ poller: Poller) -> Ready {
        poller.ready.isEmpty ? outcome : outcome.union(.descriptors)
    }

    /// Makes the mode's base when there is something that the kernel could report, or to sleep. False if none is needed, or descriptors are lacking.
    @inline(__always) func preparePoller(_ mode: ModeState, mayStayWithout: Bool) -> Bool { /* DOES CALLOUT */
        if let reference = mode.owned.pollerReference, !isMainLoop { return !mayStayWithout || reference.use { $0.watchesAnything } }
        return preparePollerSlowly(mode, mayStayWithout: mayStayWithout)
    }

    private func preparePollerSlowly(_ mode: ModeState, mayStayWithout: Bool) -> Bool { /* DOES CALLOUT */
        if let poller = mode.owned.poller {
            if servesMainQueue(in: mode) && !watchMainQueue(poller) { return false }  // the mode may have become a common one
            return !mayStayWithout || poller.watchesAnything
        }
        if mayStayWithout && !mayHaveWatches(mode) { return false }
        return makePoller(mode) != nil
    }

    private func mayHaveWatches(_ mode: ModeState) -> Bool {
        servesMainQueue(in: mode) || mode.watchedSources.load(ordering: .acquiring) > 0
    }

    // MARK: A run inside the wait, in a callback of a C library
    @inline(never) func suspendWait() {
        counters.endWaiting()
        if waker.endSleep() { counters.wakeUps.increment() }
    }

    /// Ends the wait: nobody has written to the loop while it worked, and the nested run may have taken attention bits and set dates.
    @inline(never) func resumeWait() {
        counters.endWork()
        waker.beginSleep()
        waker.channel.wake()
    }
}
