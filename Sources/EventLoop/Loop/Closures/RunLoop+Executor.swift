/// Actors and tasks can live on a run loop: `nonisolated var unownedExecutor: UnownedSerialExecutor { loop.asUnownedSerialExecutor() }`. An actor
/// refers to its executor without holding it: keep the loop in a property of the actor. Rules 15.1 to 15.9 say when its jobs run.
extension RunLoop: SerialExecutor, TaskExecutor {
    /// Called by the Swift runtime: has the loop run a job of an actor, or of a task that prefers the loop. Thread-safe; no system call and
    /// in steady state no allocation when the loop is working, one system call when it sleeps. Traps in a child process, for an inherited loop.
    public func enqueue(_ job: consuming ExecutorJob) { enqueueJob(QueuedJob(job: UnownedJob(job), isPreference: false)) }

    // A witness of its own for the second protocol: with that above, a preferring task would go through the queue for each nonisolated function.
    #if compiler(>=6.0) && compiler(<6.5)
    /// Called by the Swift runtime: as `enqueue`, for code of a task that prefers the loop, outside any actor.
    @_implements(TaskExecutor,enqueue(_:))
    public func _enqueuePreferring(_ job: consuming ExecutorJob) { enqueueJob(QueuedJob(job: UnownedJob(job), isPreference: true)) }
    #endif

    /// The value that an actor on this loop returns from `unownedExecutor`. It does not hold the loop.
    public func asUnownedSerialExecutor() -> UnownedSerialExecutor { UnownedSerialExecutor(ordinary: self) }
    /// The value for `withTaskExecutorPreference`. It does not hold the loop.
    public func asUnownedTaskExecutor() -> UnownedTaskExecutor { UnownedTaskExecutor(ordinary: self) }
    /// Two loops are never one context.
    public func isSameExclusiveExecutionContext(other: RunLoop) -> Bool { self === other }
    /// Whether the caller may assume to be isolated to an actor on this loop, as `assumeIsolated` asks. Thread-safe; two loads.
    ///
    /// True on the loop's thread, in plain handlers too, and in the jobs of an ended loop. In a handler no job of the loop is running, unless a
    /// *nested* run calls it inside a job: code that does that answers for what handlers assume.
    public func isIsolatingCurrentContext() -> Bool? { isIsolatingCaller }

    /// Traps unless `isIsolatingCurrentContext()` is true.
    public func checkIsolated() {
        precondition(
            isIsolatingCaller,
            "this code is isolated to an actor on another run loop than the calling thread's; await the actor, or hand the work over with perform"
        )
    }
}
