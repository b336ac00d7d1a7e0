import Synchronization

extension RunLoop {
    /// The libevent base that serves `mode`, for C libraries that register their own events on it. Owning thread only; not `.common`.
    ///
    /// Their events keep the mode from being empty and count as handled sources; their callbacks run inside the wait, before
    /// the observers of `.afterWaiting` are notified, and their timers run on libevent's own coarse clock (up to 4 ms early). A nested run of the same mode
    /// inside such a callback is a precondition failure; of another mode it works. Events must be freed on this thread
    /// before it ends (`RunLoopThread`'s `teardown`, once nothing holds the thread). Traps when the process has no descriptors left for a base, nor any in reserve. The pointer
    /// is an `event_base`.
    public func withEventBase<R, Failure>(
        forMode mode: Mode = .default, _ body: (OpaquePointer) throws(Failure) -> R
    ) throws(Failure) -> R {
        // First, because every caller is on another thread then, and the next precondition would blame the thread.
        precondition(
            !hasEnded.load(ordering: .acquiring),
            "withEventBase was called on a run loop that has ended, and its bases with it; use a C library's events before the loop's thread ends"
        )
        preconditionOnLoop("withEventBase")
        precondition(mode != .common, "withEventBase takes one mode; .common stands for several, so name the one you mean")
        let state = shared.withLock { $0.modes.makeLocked(mode) }
        guard let poller = state.owned.poller ?? makePoller(state) else {
            preconditionFailure(
                "withEventBase could not make an event base for run loop mode \"\(mode)\": the process has no descriptors left")
        }
        poller.hostForeignEvents()
        defer { didChangeSleep() }
        return try body(poller.state.base.raw)
    }
}
