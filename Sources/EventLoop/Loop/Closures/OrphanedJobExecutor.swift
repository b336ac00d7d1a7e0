// Runs the jobs of loops that have ended, one after another. A job cannot be refused: its task would wait for ever.
//
// Lifecycle of the thread: started with the first such job, detached, and there until the process ends.

internal import CPlatform
internal import EventLoopLibC

/// The one thread of the process that runs the jobs of ended loops. On it the isolation checks of the loop whose job it runs pass.
///
/// It goes from loop to loop and takes what each has queued, so that the order of a loop's jobs is kept across its end.
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

    /// For `release(inChild:)`.
    private static let fresh = State()

    static func release(inChild: Bool) {
        if inChild { state.lockedValue().initialize(to: fresh) }
        state.unlock()
    }

    private static func start() {
        let code = NativeThread.start { runJobs() }
        precondition(code == 0, "no thread could be started for the jobs of actors whose run loop has ended: errno \(code)")
    }

    private static func runJobs() { /* DOES CALLOUT */
        cplatform_name_this_thread("ended loops")
        blockSignals()
        while true {  // ends: with the process
            let latch = Latch()
            let loops = state.withLock { state -> [RunLoop] in
                if state.loops.isEmpty { state.latch = latch }
                defer { state.loops = [] }
                return state.loops
            }
            if loops.isEmpty { _ = latch.wait(until: nil) }
            for loop in loops { runJobs(of: loop) }
        }
    }

    private static func runJobs(of loop: RunLoop) { /* DOES CALLOUT */
        loop.preconditionOurs()
        LoopID.adopted = loop.id
        for job in loop.takeLeftJobs() { loop.callOutToJob(job) }
        LoopID.adopted = 0
    }
}
