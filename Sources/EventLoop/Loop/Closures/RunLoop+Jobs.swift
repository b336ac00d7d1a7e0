// Jobs of actors and tasks that live on the loop: queued by the Swift runtime, run at the points of a pass where blocks are.

import Synchronization

extension RunLoop {
    /// Queues a job for the next point of a pass in a common mode, and wakes the loop; for `OrphanedJobExecutor` if the loop has ended. Thread-safe.
    func enqueueJob(_ job: QueuedJob) {
        preconditionNotForked()
        // The job may be what keeps the loop alive, and be over before this call is.
        let isOnLoop = LoopID.current == id
        if !isOnLoop { _ = Unmanaged.passRetained(self) }
        defer { if !isOnLoop { Unmanaged.passUnretained(self).release() } }
        let (isFirst, isElsewhere) = shared.withLock { shared in
            common.countQueueingLocked()
            return shared.jobs.append(job, pendingJobs)
        }
        if !isElsewhere { notify(.jobs) } else if isFirst { OrphanedJobExecutor.adopt(self) }
    }

    /// Runs the jobs that were queued when this begins, in order; what they queue waits for the next point, so that no storm of jobs starves
    /// sources and timers. Nothing in a mode that is not common, and nothing while a job is on the stack: one inside the other would
    /// break the isolation of their actor.
    func performJobs(in mode: ModeState) { /* DOES CALLOUT */
        owned.pending.remove(.jobs)
        if owned.jobs.isRunning || !mode.isCommon.load(ordering: .acquiring) { return }
        performJobBatch(mode) { if hasPendingWork { carryOutPendingChanges(mode) } }
    }

    /// As `performJobs`, whatever the mode. `carryOutChanges` is called between taking the jobs and running them.
    func performJobBatch(_ mode: ModeState, _ carryOutChanges: () -> Void) { /* DOES CALLOUT */
        var batch = owned.jobs.begin()
        shared.withLock { $0.jobs.swapJobs(with: &batch) }
        carryOutChanges()
        if isObserved { perform(batch, mode, Observed.self) } else { perform(batch, mode, Unobserved.self) }
        owned.jobs.end(&batch)
    }

    @inline(__always)
    private func perform<Observer: CalloutObserver>(_ batch: ContiguousArray<QueuedJob>, _ mode: ModeState, _: Observer.Type)
    { /* DOES CALLOUT */
        for index in batch.indices {
            if index == batch.count - 1 { pendingJobs.endBatch() }
            counters.jobsPerformed.increment()
            let span = Observer.open(self, mode, CalloutItem(kind: .job))
            callOutToJob(batch[index])
            Observer.close(self, span)
        }
    }

    /// Whether nothing but jobs and messages keeps the thread from sleeping, and the kernel was asked a moment ago. A pass that has no more
    /// to do than a short job would otherwise spend most of its time on asking. Nobody observes the sleep then, or step 5 would have asked.
    var mayPutOffPolling: Bool {
        let bits = owned.pending.bits.subtracting(.observed)
        if bits.isEmpty || !bits.isSubset(of: [.jobs, .messages]) { return false }
        return owned.jobs.hasPolledLately()
    }

    /// The loop has ended, and its thread passes its isolation checks no more: what is queued, and what will come, is run elsewhere.
    func handOverJobs() {
        if shared.withLock({ $0.jobs.handOver() }) { OrphanedJobExecutor.adopt(self) }
    }

    /// Takes the jobs of a loop that has ended. On the thread of `OrphanedJobExecutor` only.
    func takeLeftJobs() -> ContiguousArray<QueuedJob> {
        shared.withLock { $0.jobs.takeAll() }
    }
}
