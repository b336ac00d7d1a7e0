// The end of a thread inside a handler (`pthread_exit`, `pthread_cancel`): this does what the lost frames would have done, as far as others see it.

extension RunLoop {
    /// Ends every call and run that the thread is in. If a callout ends the thread again, another call does the rest: each thing is taken out first.
    func endCallsInProgress() { /* DOES CALLOUT */
        let wasAsleep = waker.isSleeping  // the thread may have been cancelled in its sleep
        waker.stayAwake()
        if runs.depth > 0 {
            if wasAsleep { counters.endWaiting() }
            counters.endWork()
            runs.terminate()  // no run continues, and no base is waited on again
        }
        modeTable.forEach { $0.owned.poller?.abandon() }
        owned.changeBatch.abandon()
        (owned.hosting.isStepping, owned.hosting.isMakingCallouts) = (false, false)
        endFrames()
        owned.observation?.use {
            $0.closeRuns(deeperThan: 0)
            $0.spans.removeAll()
            $0.endWorking()
        }
        _ = shared.withLock { $0.jobs.putBack(&owned.jobs.batch, common) }
        applyChanges()  // items that were removed in their own calls are held for the end of these
        endCallsOfSources()
        endCallsOfObservers()
        while let ticket = owned.performing?.takeUnretainedValue() {  // ends: each iteration removes one
            owned.performing = ticket.outer
            ticket.workWasAbandoned()
        }
    }

    private func endFrames() { /* DOES CALLOUT */
        while let frame = runs.abandonInnermost() {  // ends: each iteration removes one
            if let timer = frame.owned.timers.reached, timer.isFiring { endFiring(of: timer) }
            // One at a time: these may be the last references, and a deinit is a callout.
            while frame.owned.timers.popLast() != nil {}
            while frame.owned.signals.popLast() != nil {}
        }
    }

    /// A source that has left the loop in its call is one of `endingUses`.
    func endCallsOfSources() { /* DOES CALLOUT */
        let memberships = shared.withLock { $0.sources.filter { _ in true } }
        for source in memberships.map(\.source) + owned.endingUses where isServing(source) {
            source.core.pointee.servingDepth = 1
            _ = call(source.core) {
                source.endAbandonedCalls()
                return false
            }
        }
    }
}
