// Lifecycle of the thread: started with the first job, detached, and there until the process ends, or until a job ends it and another one is started.

internal import CPlatform

/// The one thread of the process that runs the jobs of ended loops (rule 15.9), in order. They cannot be refused: their tasks would wait for ever.
enum OrphanedJobExecutor {
    private struct State: Sendable {
        /// Ended loops that have jobs; each once.
        var loops: [RunLoop] = []
        var hasThread = false
        /// The thread waits for it while there are no jobs.
        var latch: Latch?
    }
    private static let state = LoopLock(State())

    /// Has the thread run the jobs of `loop`, which has ended. Thread-safe.
    static func adopt(_ loop: RunLoop) {
        let (latch, mustStart) = state.withLock { state -> (Latch?, Bool) in
            state.loops.append(loop)
            defer { (state.latch, state.hasThread) = (nil, true) }
            return (state.latch, !state.hasThread)
        }
        latch?.open()
        if mustStart { start() }
    }

    static func hold() {
        _ = fresh.hasThread
        _ = state.lockValue()
    }

    /// For `clear`.
    private static let fresh = State()
    /// Between `hold` and `release`.
    static func clear() { state.lockedValue().initialize(to: fresh) }
    static func release() { state.unlock() }

    private static func start() {
        let code = NativeThread.start { runJobs() }
        precondition(code == 0, "no thread could be started for the jobs of actors whose run loop has ended: errno \(code)")
    }

    private static func runJobs() { /* DOES CALLOUT */
        cplatform_name_this_thread("ended loops")
        blockSignals()
        while true {  // ends: with the process, or inside a job
            let latch = Latch()
            let next = state.withLock { state -> RunLoop? in
                if !state.loops.isEmpty { return state.loops.removeFirst() }
                state.latch = latch
                return nil
            }
            if let next { runJobs(of: next) } else { _ = latch.wait(until: nil) }
        }
    }

    private static func runJobs(of loop: RunLoop) { /* DOES CALLOUT */
        loop.shared.preconditionOurs()
        CallInProgress.begin(by: loop) { jobHasEndedThread(of: loop) }
        LoopID.adopted = loop.id
        loop.shared.withLock { $0.jobs.swapJobs(with: &loop.owned.jobs.batch, loop.common) }
        while let job = loop.owned.jobs.next() {  // ends: each iteration removes one
            loop.callOutToJob(job)
            loop.shared.preconditionOurs()  // the job may have forked: in the child, the other jobs are the parent's
        }
        LoopID.adopted = 0
        CallInProgress.end(by: loop)
    }

    /// Another thread runs the other jobs. In a child that a job has forked, they are those of the parent's thread.
    private static func jobHasEndedThread(of loop: RunLoop) {
        LoopID.adopted = 0
        guard loop.isOurs else { return }
        // The loop is adopted already for jobs that came meanwhile.
        if loop.shared.withLock({ $0.jobs.putBack(&loop.owned.jobs.batch, loop.common) }) { adopt(loop) }
        start()
    }
}
