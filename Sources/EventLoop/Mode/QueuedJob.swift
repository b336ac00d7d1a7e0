// A job of an actor or a task that waits for its loop's thread.

/// A task's stretch up to its next suspension, given to a loop to run.
///
/// Two words in contiguous memory, so that queueing one costs neither a closure nor an allocation of its own.
struct QueuedJob: Sendable {
    let job: UnownedJob
    /// The task prefers the loop as its executor, and is not in an actor now.
    let isPreference: Bool
}
