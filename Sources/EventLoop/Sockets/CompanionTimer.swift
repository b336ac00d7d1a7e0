// A timer that goes where a source goes: deadlines, and pauses between two tries.

/// Fires some time after it was started, in whatever modes the source is in, in each of its loops by that loop's time.
///
/// It is in no mode that the source is not in, so it keeps nothing alive by itself. It need not be told of the loops' ends: a loop that ends
/// takes its sources out of their modes. Thread-safe. It calls `fire` on a loop's thread, in a mode of the source.
final class CompanionTimer: Sendable {
    private struct State: Sendable {
        /// Nil: not started.
        var delay: Duration?
        /// By the loops' ids. Not the loops themselves: one that has ended should not be held by what it was in.
        var timers: [UInt64: RunLoop.Timer] = [:]
    }
    private let state: ForkAwareMutex<State>
    private let label: String

    /// With a delay: begins to run in each loop when the source is first added to it.
    init(_ label: String, startingWhenAdded delay: Duration? = nil) {
        self.label = label
        state = ForkAwareMutex(State(delay: delay))
    }

    /// Fires `delay` from now, and not when it would have fired before.
    func start(_ delay: Duration, for source: RunLoop.Source, _ fire: @escaping @Sendable (RunLoop) -> Void) {
        endTimers { $0.delay = delay }
        for (loop, modes) in source.places {
            for mode in modes { join(loop, mode, source, fire) }
        }
        // Invalidated meanwhile: nobody would stop it.
        if !source.isValid { stop() }
    }

    /// Fires no more. A second call does nothing.
    func stop() { endTimers { $0.delay = nil } }

    private func endTimers(_ change: (inout State) -> Void) {
        let timers = state.withLockUnlessInherited { state in
            change(&state)
            defer { state.timers = [:] }
            return state.timers
        }
        for timer in (timers ?? [:]).values { timer.invalidate() }
    }

    /// The source has gained a mode.
    func join(_ loop: RunLoop, _ mode: RunLoop.Mode, _ source: RunLoop.Source, _ fire: @escaping @Sendable (RunLoop) -> Void) {
        guard let delay = state.withLock({ $0.delay }) else { return }
        let date = loop.timeForOthers().advanced(by: delay).nanoseconds
        let new = RunLoop.Timer(
            date: date, interval: 0, tolerance: 0, order: 0, isOnDemand: true, endsWithLoop: true, label: label, site: source.site
        ) { _ in fire(RunLoop.threadsLoop()) }
        let timer = state.withLock { state -> RunLoop.Timer? in
            if state.delay == nil { return nil }
            if let timer = state.timers[loop.id] { return timer }
            state.timers[loop.id] = new
            return new
        }
        guard let timer else { return }
        loop.add(timer, forMode: mode)
        // Another thread may have taken the source out meanwhile, and its `leave` have come first.
        if !loop.contains(source, forMode: mode) { loop.remove(timer, forMode: mode) }
    }

    /// The source has lost a mode.
    func leave(_ loop: RunLoop, _ mode: RunLoop.Mode, _ source: RunLoop.Source) {
        guard let timer = state.withLock({ $0.timers[loop.id] }) else { return }
        loop.remove(timer, forMode: mode)
        // As above, the other way round.
        if loop.contains(source, forMode: mode) { loop.add(timer, forMode: mode) }
    }
}
