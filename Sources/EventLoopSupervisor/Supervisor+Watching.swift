// Signs of life: WATCHDOG=1, as long as every watched loop makes progress.

public import EventLoop

extension RunLoop.Supervisor {
    /// Vouches for the loop: from now on the service manager gets a sign of life (WATCHDOG=1) twice in `watchdogInterval`, as long as every
    /// watched loop makes progress. No-op if the service manager does not wait for signs of life.
    ///
    /// A loop makes progress if it begins a pass or a sleep, or is asleep. A loop that is stuck in a callout makes none, and neither does
    /// one that nobody runs. If one loop makes none, the next sign of life comes as soon as it does; if it does not within
    /// `watchdogInterval`, the service manager ends this process, for systemd with SIGABRT. A loop that has ended is not watched any more.
    /// Without a watched loop there are no signs of life.
    ///
    /// The checks are made on a thread of the library's own, which sleeps in between; they wake no loop. To learn where a loop is stuck
    /// before the service manager acts, use a `Watchdog`. Watching a loop twice is watching it once. Thread-safe.
    /// - Throws: `.system` if the thread cannot be started.
    public func watch(_ loop: RunLoop) throws(RunLoop.SupervisorError) { try watch([loop]) }

    /// The same for several loops: `watch(group.runLoops)`.
    public func watch(_ loops: [RunLoop]) throws(RunLoop.SupervisorError) {
        guard let watchdogInterval, let notifier else { return }
        try pulse.watch(loops, every: watchdogInterval, notifier)
    }

    /// The loop's progress does not matter any more. No-op if it is not watched. Thread-safe.
    public func stopWatching(_ loop: RunLoop) { pulse.stopWatching(loop) }

    /// Ends the signs of life. Releasing the supervisor does the same. Loops that are watched later have them begin again. Thread-safe.
    public func stopWatching() { pulse.end() }
}
