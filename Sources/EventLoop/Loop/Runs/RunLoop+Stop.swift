// Stopping a run, from anywhere. `RunStack` decides which run a stop ends.

extension RunLoop {
    /// Ends the innermost run in progress. When none is in progress nothing happens, unless `sticky`: then the next run ends at once
    /// with `.stopped`, without notifying observers.
    ///
    /// The pass in progress is completed, without sleeping. A stop acts on the run that is innermost at the moment of the call; two
    /// stops before one is noticed end one run. A run that returns `.handledSource` uses up an ordinary stop; a sticky one is kept for
    /// the next run. Any thread, and any signal handler: it takes no lock, allocates nothing, keeps errno. In a forked child it does
    /// nothing. See `CFRunLoopStop`.
    public func stop(sticky: Bool = false) {
        // Touches atomics and writes to a descriptor, and nothing else: no lock, no allocation, no count of references to anything that
        // could end. That makes it right in signal handlers.
        if belongsToParentProcess { return }
        // A stop that waits for the next run is a reason for a host to make it.
        if runs.requestStop(sticky: sticky) || (sticky && waker.isHosted) { waker.wakeUp() }
    }

    /// Takes the stop that was kept for the next run, unless that run is refused: no loop runs in `.common`.
    @inline(__always)
    func takePendingStop(for name: Mode) -> Bool { runs.hasPendingStop && name != .common && runs.takePendingStop() }

    /// A run has ended with a sticky stop that came too late for it: the stop applies to the outer run; if there is none, it is kept for the
    /// next run.
    @inline(never)
    func passOnStickyStop() {
        if runs.depth == 0 { runs.keepStop() } else { stop(sticky: true) }
    }
}
