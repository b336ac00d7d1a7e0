// Jobs of actors and tasks that live on the loop: queued by the Swift runtime, run at the points of a pass where blocks are.
//
// The queue is two arrays that change places: senders append to one under the lock, the owner runs the other. Both keep their memory, so
// a job posted to a working loop costs neither an allocation nor a system call.

import Synchronization

extension RunLoop {
    /// Queues a job for the next point of a pass in a common mode, and wakes the loop; for the loop's stand-in when it has ended. Thread-safe.
    func enqueueJob(_ job: QueuedJob) {
        preconditionNotForked()
        // The job may be what keeps the loop alive, and be over before this call is.
        let isOnLoop = LoopID.current == id
        if !isOnLoop { _ = Unmanaged.passRetained(self) }
        defer { if !isOnLoop { Unmanaged.passUnretained(self).release() } }
        let (isFirst, isElsewhere) = shared.withLock { shared -> (Bool, Bool) in
            let isFirst = shared.jobs.isEmpty
            // One place among what keeps the common modes from being empty stands for all that are queued.
            if isFirst && !shared.jobsGoElsewhere { jobPopulation.add(1, ordering: .acquiringAndReleasing) }
            shared.jobs.append(job)
            noteCommonQueueingLocked()
            return (isFirst, shared.jobsGoElsewhere)
        }
        if !isElsewhere { notify(.jobs) } else if isFirst { AfterEnd.visit(self) }
    }

    /// Runs the jobs that were queued when this begins, in order; what they queue waits for the next point, so that no storm of jobs starves
    /// sources and timers. Nothing in a mode that is not common, and nothing while a job is on the stack: one inside the other would
    /// break the isolation of their actor.
    func performJobs(in mode: ModeState) { /* DOES CALLOUT */
        owned.pending.remove(.jobs)
        if owned.isPerformingJobs || !mode.isCommon.load(ordering: .acquiring) { return }
        performJobBatch { if hasNews { carryOutNews(mode) } }
    }

    /// As `performJobs`, whatever the mode. `carryOutChanges` is called between taking the jobs and running them.
    func performJobBatch(_ carryOutChanges: () -> Void) { /* DOES CALLOUT */
        assert(!owned.isPerformingJobs, "no job inside another")
        var batch = ContiguousArray<QueuedJob>()
        swap(&batch, &owned.spareJobs)
        shared.withLock { swap(&batch, &$0.jobs) }
        owned.isPerformingJobs = true
        carryOutChanges()
        for index in batch.indices {
            // What has not begun keeps the common modes from being empty; a job on the stack does not.
            if index == batch.count - 1 { jobPopulation.subtract(1, ordering: .acquiringAndReleasing) }
            counters.jobsPerformed.increment()
            callOutToJob(batch[index])
        }
        owned.isPerformingJobs = false
        batch.removeAll(keepingCapacity: true)
        swap(&batch, &owned.spareJobs)
    }

    /// Whether nothing but jobs and messages keeps the thread from sleeping, and the kernel was asked a moment ago. A pass that has no more
    /// to do than a short job would otherwise spend most of its time on asking. Nobody observes the sleep then, or step 5 would have asked.
    var mayPutOffPolling: Bool {
        if owned.pending.isEmpty || !owned.pending.isSubset(of: [.jobs, .messages]) { return false }
        let present = Instant.now.nanoseconds
        if present &- owned.lastPoll < 20_000 { return true }
        owned.lastPoll = present
        return false
    }

    /// The loop has ended, and its thread passes its isolation checks no more: what is queued, and what will come, is run elsewhere.
    func handOverJobs() {
        let hasLeft = shared.withLock { shared in
            shared.jobsGoElsewhere = true
            return !shared.jobs.isEmpty
        }
        if hasLeft { AfterEnd.visit(self) }
    }

    /// Takes the jobs of a loop that has ended. On the stand-in's thread only.
    func takeLeftJobs() -> ContiguousArray<QueuedJob> {
        shared.withLock { shared in
            defer { shared.jobs = [] }
            return shared.jobs
        }
    }
}
