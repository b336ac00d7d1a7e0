// Reports likely mistakes: runs of modes with nothing in them, and refused items and closures.

import Synchronization

/// Counts runs that returned `.finished` at once, one after another. A pass in between ends the series; the loop counts its passes anyway.
struct FinishedRuns {
    /// So many in a row, in less than a second, are a mistake.
    static let limit = 1_000
    private var count = 0
    /// The loop's count of passes during the series.
    private var passes: UInt64 = 0
    private var start = RunLoop.Instant(nanoseconds: 0)

    /// True if this run is the last of a series that is a mistake.
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

    // MARK: Refusals. Callers may ignore the results of `add` and `perform`. Each function returns false, that result.
    @inline(never) func refuseClosure(_ site: CreationSite) -> Bool { /* DOES CALLOUT */
        if isRefusalLikelyMistake {
            Warnings.report(
                .refusedClosure, label: nil, site: site,
                "a closure will not be performed, because \(reasonForRefusal); check the result of perform, or keep the thread alive")
        }
        return false
    }

    @inline(never) func refuse(_ source: Source) -> Bool { /* DOES CALLOUT */
        refuse("a source (\(source.typeDescription))", isValid: source.isValid, in: "a loop with another clock", source.label, source.site)
    }

    @inline(never) func refuse(_ timer: Timer) -> Bool { /* DOES CALLOUT */
        // A timer of the library's: it has fired, or was cancelled, before the library has added it to all of its modes.
        if timer.state.endsWithLoop && !timer.isValid { return false }
        return refuse("a timer", isValid: timer.isValid, timer.label, timer.site)
    }

    @inline(never) func refuse(_ observer: Observer) -> Bool { /* DOES CALLOUT */
        refuse("an observer", isValid: observer.isValid, observer.label, observer.site)
    }

    /// `holder`: where a valid item must be that a loop refuses.
    private func refuse(
        _ item: String, isValid: Bool, in holder: String = "another loop", _ label: String?, _ site: CreationSite
    ) -> Bool { /* DOES CALLOUT */
        let reason: String
        if !isValid {
            reason = "it is invalid; \(item == "a timer" ? "a timer that fires once is invalid after it has fired; " : "")make a new one"
        } else if shared.withLock({ $0.phase != .ended }) {
            // Under the lock, as `add` decides: `hasEnded` is set a little later.
            reason = "it is in \(holder); remove it there first, or make one for each loop"
        } else if isRefusalLikelyMistake {
            reason = "\(reasonForRefusal); check the result of add, or keep the thread alive"
        } else {
            return false
        }
        Warnings.report(.refusedItem, label: label, site: site, "\(item) was not added to a run loop, because \(reason)")
        return false
    }

    /// Whether the loop's `RunLoopThread` was stopped. A precondition failure for a loop of the parent process.
    var wasToldToEnd: Bool { shared.withLock { $0.drain.isRequested } }

    /// A thread that is stopping refuses work in every program that ends in an orderly way: only callers that go on regardless are reported.
    private var isRefusalLikelyMistake: Bool {
        shared.withLock { shared in
            guard shared.drain.isRequested else { return true }
            shared.refusals = min(shared.refusals + 1, Warnings.ordinaryRefusals)
            return shared.refusals == Warnings.ordinaryRefusals
        }
    }

    private var reasonForRefusal: String { wasToldToEnd ? "the loop's RunLoopThread was stopped" : "the loop has ended with its thread" }
}
