// A job of an actor or a task that waits for its loop's thread.

/// A task's stretch up to its next suspension, given to a loop to run.
///
/// Two words in contiguous memory, so that queueing one costs neither a closure nor an allocation of its own.
struct QueuedJob: Sendable {
    let job: UnownedJob
    /// The task prefers the loop as its executor, and is not in an actor now.
    let isPreference: Bool

    /// Runs it on the calling thread, which is the loop's, or acts for it after its end.
    ///
    /// A job that came by preference runs as code of the loop *and* isolated to it. Calls into the loop's actors then need no hop on the way
    /// in, one on the way out: that is what makes them cheap, and it is right, because the loop runs one job at a time. A job of an actor runs
    /// isolated only: told a preference that its task does not have, the runtime would send it through the queue again at every `await`
    /// that returns to the actor.
    func run(on loop: RunLoop) { /* DOES CALLOUT */
        if isPreference {
            job.runSynchronously(isolatedTo: loop.asUnownedSerialExecutor(), taskExecutor: loop.asUnownedTaskExecutor())
        } else {
            job.runSynchronously(on: loop.asUnownedSerialExecutor())
        }
    }
}
