// The jobs of actors and tasks that wait for the loop. Senders append to one queue under the lock, and the owner runs another; they swap.

import Synchronization

/// A task's stretch up to its next suspension. Two words in contiguous memory: queueing one costs neither a closure nor an allocation of its own.
struct QueuedJob: Sendable {
    let job: UnownedJob
    let isPreference: Bool  // the task prefers the loop as its executor, and is not in an actor now
}

/// The jobs that wait. Together they are one of the things that keep the common modes from being empty. Under the loop's lock.
struct JobQueue: ~Copyable, Sendable {
    private var jobs = Deque<QueuedJob>()
    private var isHandedOver = false

    var isEmpty: Bool { jobs.isEmpty }
    var count: Int { jobs.count }

    /// `isElsewhere`: the loop's thread has run its last job, and the caller has the orphaned jobs' thread run this one if it `isFirst`.
    mutating func append(_ job: QueuedJob, _ common: ClosureQueues) -> (isFirst: Bool, isElsewhere: Bool) {
        let isFirst = jobs.isEmpty
        if isFirst { common.changePopulationLocked(by: 1) }
        jobs.append(job)
        return (isFirst, isHandedOver)
    }

    mutating func swapJobs(with batch: inout Deque<QueuedJob>, _ common: ClosureQueues) {
        if !jobs.isEmpty { common.changePopulationLocked(by: -1) }
        swap(&batch, &jobs)
    }

    /// Puts jobs that were not run before all others. True if there are some, and no others.
    mutating func putBack(_ rest: inout Deque<QueuedJob>, _ common: ClosureQueues) -> Bool {
        if rest.isEmpty { return false }
        let isFirst = jobs.isEmpty
        if isFirst { common.changePopulationLocked(by: 1) }
        rest.takeAll(from: &jobs)
        swap(&rest, &jobs)
        return isFirst
    }

    /// The loop's thread runs no more jobs. True if some are queued.
    mutating func handOver() -> Bool {
        isHandedOver = true
        return !jobs.isEmpty
    }
}

/// The batch of jobs that the owner runs. Owning thread only; after the loop's end, the orphaned jobs' thread.
struct JobRunner: ~Copyable {
    /// A job is on the stack: nested runs perform none.
    var isRunning = false
    /// Those that have not begun. They keep the common modes from being empty; a job on the stack does not.
    var batch = Deque<QueuedJob>()
    /// When a pass that had only jobs to do last asked the kernel, in real time.
    private var lastPoll: Int64 = 0

    @inline(__always) mutating func next() -> QueuedJob? { batch.isEmpty ? nil : batch.popFirst() }

    /// Whether the kernel was asked a moment ago. If it was not, it is taken to be asked now.
    mutating func hasPolledLately() -> Bool {
        let present = RunLoop.Instant.now.nanoseconds
        if present &- lastPoll < 20_000 { return true }
        lastPoll = present
        return false
    }
}

extension RunLoop {
    /// Queues a job for the next point of a pass in a common mode, and wakes the loop; for `OrphanedJobExecutor` if the loop has ended. Thread-safe.
    func enqueueJob(_ job: QueuedJob) {
        // The job may hold the last reference to the loop, and end before this call does.
        let isOnLoop = LoopID.current == id
        if !isOnLoop { _ = Unmanaged.passRetained(self) }
        defer { if !isOnLoop { Unmanaged.passUnretained(self).release() } }
        let (isFirst, isElsewhere) = shared.withLock { shared in
            common.countQueueingLocked()
            return shared.jobs.append(job, common)
        }
        if isElsewhere {
            if isFirst { OrphanedJobExecutor.adopt(self) }
        } else if isOnLoop && !waker.isWorking {
            notifyBetweenSteps(.jobs)
        } else {
            notify(.jobs)
        }
    }

    /// Runs the jobs that were queued when this begins (rule 15.1), unless a job is on the stack: jobs inside each other would break actor isolation.
    func performJobs(in mode: ModeState) { /* DOES CALLOUT */
        owned.pending.subtract(.jobs)
        if owned.jobs.isRunning || !mode.isCommon.load(ordering: .acquiring) { return }
        owned.jobs.isRunning = true
        shared.withLock { $0.jobs.swapJobs(with: &owned.jobs.batch, common) }
        if hasPendingWork { carryOutPendingChanges(mode) }
        while let job = owned.jobs.next() {  // ends: each iteration removes one
            counters.jobsPerformed.increment()
            let span = openSpan(mode, CalloutItem(kind: .job))
            callOutToJob(job)
            closeSpan(span)
        }
        owned.jobs.isRunning = false
    }

    /// Whether only jobs and messages keep the thread awake, and the kernel was asked a moment ago: asking would cost more than a short job.
    var mayPutOffPolling: Bool {
        let bits = owned.pending.subtracting(.observed)
        return !bits.isEmpty && bits.isSubset(of: [.jobs, .messages]) && owned.jobs.hasPolledLately()
    }
}
