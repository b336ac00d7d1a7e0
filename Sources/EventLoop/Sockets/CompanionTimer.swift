/// Fires at a date or after a delay, in each loop that the source is in, by that loop's time. Thread-safe. Calls `fire` on a loop's thread.
///
/// It is only in modes in which the source is, so it keeps no mode from being empty, and an ending loop removes it together with the source.
final class CompanionTimer: Sendable {
    /// Returns the date in a loop's time, or nil if the timer is for no date there.
    typealias Date = @Sendable (RunLoop) -> RunLoop.Instant?

    private final class Start: Sendable {
        let date: Date
        init(_ date: @escaping Date) { self.date = date }
    }
    private struct State: Sendable {
        /// Nil if not started. A timer that was made for an earlier start is not used.
        var start: Start?
        /// By the loops' ids, so that the timer does not retain a loop that has ended.
        var timers: [UInt64: RunLoop.Timer] = [:]
    }
    private let state: LoopLock<State>
    private let label: String

    /// With a delay, the timer starts in each loop when the source is first added to that loop.
    init(_ label: String, startingWhenAdded delay: Duration? = nil) {
        self.label = label
        state = LoopLock(State(start: delay.map { Start(CompanionTimer.after($0)) }))
    }

    static func after(_ delay: Duration) -> Date { { $0.now().advanced(by: delay) } }

    /// Fires at the date that `date` returns for each loop, instead of at its former date.
    func start(_ date: @escaping Date, for source: RunLoop.Source, _ fire: @escaping @Sendable () -> Void) {
        end(startingWith: Start(date))
        for (loop, modes) in source.loopsAndModes { for mode in modes { join(loop, mode, source, fire) } }
        if !source.isValid { stop() }  // if it was invalidated meanwhile, no other call stops the timer
    }

    /// Cancels it. No-op if not started.
    func stop() { end(startingWith: nil) }
    private func end(startingWith start: Start?) {
        for timer in (state.exchange(State(start: start))?.timers ?? [:]).values { timer.invalidate() }
    }

    /// The source was added to a mode. `fire` is made only if the timer is started.
    func join(_ loop: RunLoop, _ mode: RunLoop.Mode, _ source: RunLoop.Source, _ fire: @autoclosure () -> @Sendable () -> Void) {
        let start = state.withLock { $0.start }
        guard let date = start?.date(loop) else { return }
        let fire = fire()
        let timer = state.withLock { state -> RunLoop.Timer? in
            if state.start !== start { return nil }
            if let timer = state.timers[loop.id] { return timer }
            let new = RunLoop.Timer(date: date.nanoseconds, isOnDemand: true, endsWithLoop: true, label: label, site: source.site) { _ in
                fire()
            }
            state.timers[loop.id] = new
            return new
        }
        if let timer, timer.isValid { move(timer, loop, mode, source, isMember: true) }
    }

    /// The source was removed from a mode.
    func leave(_ loop: RunLoop, _ mode: RunLoop.Mode, _ source: RunLoop.Source) {
        if let timer = state.withLock({ $0.timers[loop.id] }) { move(timer, loop, mode, source, isMember: false) }
    }

    private func move(_ timer: RunLoop.Timer, _ loop: RunLoop, _ mode: RunLoop.Mode, _ source: RunLoop.Source, isMember: Bool) {
        if isMember { loop.add(timer, forMode: mode) } else { loop.remove(timer, forMode: mode) }
        // Another thread may have moved the source meanwhile, and its call may have come first. Ends when no thread moves it.
        let isMemberNow = loop.contains(source, forMode: mode)
        if isMemberNow != isMember { move(timer, loop, mode, source, isMember: isMemberNow) }
    }
}
