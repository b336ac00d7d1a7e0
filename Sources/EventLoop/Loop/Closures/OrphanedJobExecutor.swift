// Lifecycle of the thread: started with the first job, detached, and there until the process ends, or until a job ends it: then its exit handler
// (a pthread key) starts another one.

internal import CPlatform
internal import EventLoopLibC

/// The one thread of the process that runs the jobs of ended loops (rule 15.9), which cannot be refused: their tasks would wait for ever. It goes
/// from loop to loop and takes what each has queued, so that the order of a loop's jobs is kept across its end.
enum OrphanedJobExecutor {
    private struct State: Sendable {
        /// Ended loops that have jobs; each once.
        var loops: [RunLoop] = []
        /// The loop whose jobs the thread runs.
        var current: RunLoop?
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
        _ = (fresh.hasThread, exitKey)
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
        pthread_setspecific(exitKey, processMark)
        while true {  // ends: with the process, or inside a job
            let latch = Latch()
            let next = state.withLock { state -> RunLoop? in
                if state.loops.isEmpty {
                    state.latch = latch
                } else {
                    state.current = state.loops.removeFirst()
                }
                return state.current
            }
            if let next { runJobs(of: next) } else { _ = latch.wait(until: nil) }
        }
    }

    private static func runJobs(of loop: RunLoop) { /* DOES CALLOUT */
        loop.shared.preconditionOurs()
        LoopID.adopted = loop.id
        loop.shared.withLock { $0.jobs.swapJobs(with: &loop.owned.jobs.batch, loop.common) }
        while let job = loop.owned.jobs.next() {  // ends: each iteration removes one
            loop.callOutToJob(job)
            // The job may have forked: in the child, the other jobs are the parent's.
            loop.shared.preconditionOurs()
        }
        LoopID.adopted = 0
        // The caller holds the loop.
        state.withLock { $0.current = nil }
    }

    /// Its value on the thread says which process the thread was started in; it is not nil, so that the handler is called there.
    private static let exitKey: pthread_key_t = {
        var key = pthread_key_t()
        let code = pthread_key_create(&key) { pointer in
            let mark: UnsafeMutableRawPointer? = pointer
            OrphanedJobExecutor.threadWillEnd(mark)
        }
        precondition(code == 0, "pthread_key_create: \(code)")
        return key
    }()

    private static var processMark: UnsafeMutableRawPointer? { UnsafeMutableRawPointer(bitPattern: Int(ProcessMark().number) + 1) }

    /// A job ends the thread. Another thread runs the other jobs.
    private static func threadWillEnd(_ mark: UnsafeMutableRawPointer?) {
        LoopID.adopted = 0
        // In a child that a job has forked, the jobs are those of the child's own thread for them.
        guard mark == processMark else { return }
        guard let current = state.withLock({ $0.current.take() }) else { return }
        // The loop is adopted already for jobs that came meanwhile.
        if current.shared.withLock({ $0.jobs.putBack(&current.owned.jobs.batch, current.common) }) { adopt(current) }
        start()
    }
}
