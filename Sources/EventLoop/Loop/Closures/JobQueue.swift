// The jobs of actors and tasks that wait for the loop.
//
// The queue is two arrays that change places: senders append to one under the lock, the owner runs the other. Both keep their memory, so
// a job posted to a working loop costs neither an allocation nor a system call.

import Synchronization

/// How many batches of jobs have some that have not begun: they keep the common modes from being empty. Any thread.
struct PendingJobs: ~Copyable, Sendable {
    private let batches = Atomic<Int>(0)

    var isEmpty: Bool { batches.load(ordering: .acquiring) <= 0 }

    /// The first job of a batch is queued.
    fileprivate func beginBatch() { batches.add(1, ordering: .acquiringAndReleasing) }

    /// The last job of a batch begins. A job on the stack keeps no mode from being empty.
    func endBatch() { batches.subtract(1, ordering: .acquiringAndReleasing) }
}

/// The jobs that wait, in the order in which they came. Under the loop's lock.
struct JobQueue: Sendable {
    private var jobs: ContiguousArray<QueuedJob> = []
    private var goElsewhere = false

    var isEmpty: Bool { jobs.isEmpty }
    var count: Int { jobs.count }

    /// `isElsewhere`: the loop's thread has run its last job, and the caller has the orphaned jobs' thread run this one if it `isFirst`.
    mutating func append(_ job: QueuedJob, _ pending: borrowing PendingJobs) -> (isFirst: Bool, isElsewhere: Bool) {
        let isFirst = jobs.isEmpty
        // One batch stands for all jobs that are queued.
        if isFirst && !goElsewhere { pending.beginBatch() }
        jobs.append(job)
        return (isFirst, goElsewhere)
    }

    /// Exchanges the queue for an empty array, which keeps its memory.
    mutating func swapJobs(with batch: inout ContiguousArray<QueuedJob>) { swap(&batch, &jobs) }

    mutating func takeAll() -> ContiguousArray<QueuedJob> {
        defer { jobs = [] }
        return jobs
    }

    /// The loop's thread runs no more jobs. True if some are queued.
    mutating func handOver() -> Bool {
        goElsewhere = true
        return !jobs.isEmpty
    }
}

/// The batch of jobs that the owner runs. Owning thread only.
struct JobRunner {
    /// A job is on the stack: nested runs perform none.
    private(set) var isRunning = false
    /// Emptied, and kept for its memory.
    private var spare: ContiguousArray<QueuedJob> = []
    /// When a pass that had only jobs to do last asked the kernel, in real time.
    private var lastPoll: Int64 = 0

    mutating func begin() -> ContiguousArray<QueuedJob> {
        assert(!isRunning, "no job inside another")
        isRunning = true
        var batch = ContiguousArray<QueuedJob>()
        swap(&batch, &spare)
        return batch
    }

    mutating func end(_ batch: inout ContiguousArray<QueuedJob>) {
        isRunning = false
        batch.removeAll(keepingCapacity: true)
        swap(&batch, &spare)
    }

    /// Whether the kernel was asked a moment ago. If it was not, it is taken to be asked now.
    mutating func hasPolledLately() -> Bool {
        let present = RunLoop.Instant.now.nanoseconds
        if present &- lastPoll < 20_000 { return true }
        lastPoll = present
        return false
    }
}
