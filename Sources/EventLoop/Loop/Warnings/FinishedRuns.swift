import Synchronization

/// Counts runs that returned `.finished` at once, one after another. A pass in between ends the series; the loop counts its passes anyway.
struct FinishedRuns {
    /// So many in a row, in less than a second, are a mistake.
    static let limit = 1_000
    private var count = 0
    /// The loop's count of passes during the series.
    private var passes: UInt64 = 0
    private var start = RunLoop.Instant(nanoseconds: 0)

    /// Counts a run. Returns true if it is the last of a series that is a mistake.
    mutating func isTooMany(passes: UInt64, now: () -> RunLoop.Instant) -> Bool {
        if count == 0 || passes != self.passes { (count, self.passes, start) = (0, passes, now()) }
        count += 1
        if count < Self.limit { return false }
        count = 0
        return start.duration(to: now()) < .seconds(1)
    }
}

extension RunLoop {
    /// The result of a run that makes no pass because its mode is empty, or is none. On the loop's thread; reports likely mistakes.
    @inline(never)
    @discardableResult
    func finishWithoutPass(_ name: Mode, _ mode: ModeState?) -> RunResult { /* DOES CALLOUT */
        if name == .common {
            Warnings.report(
                .runOfCommonModes, loop: id, mode: name,
                "run(mode: .common) returned .finished at once, because a loop runs in a single mode; run one of the common modes, "
                    + "such as .default")
        } else if wasNeverUsed(mode) {
            Warnings.report(
                .runOfUnusedMode, loop: id, mode: name,
                "a run of the mode \(quoted(name.rawValue)) returned .finished at once, because nothing was ever in it; add a source or a "
                    + "timer first, or keep the mode alive with keepAlive(forMode:)")
        }
        guard runs.depth <= 1, owned.finishedRuns.isTooMany(passes: counters.passes.current, now: { .now }) else { return .finished }
        Warnings.report(
            .repeatedFinishedRuns, loop: id, mode: nil,
            "\(FinishedRuns.limit) runs in a row returned .finished at once, last of the mode \(quoted(name.rawValue)), which uses a whole "
                + "processor; leave the loop when a run returns .finished, or keep the mode alive with keepAlive(forMode:)")
        return .finished
    }

    /// Whether nothing was ever in the mode. Of the default mode, which always exists, it is known only until the loop has made a pass.
    private func wasNeverUsed(_ mode: ModeState?) -> Bool {
        guard let mode else { return true }
        guard mode.index == 0, counters.passes.current == 0 else { return false }
        return shared.withLock { _ in mode.locked.timerSlots.wasNeverUsed && mode.locked.observers.isEmpty }
    }
}
