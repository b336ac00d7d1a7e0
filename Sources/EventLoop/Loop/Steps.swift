// The run sequence. The numbers are the Guide's ("The Run Loop Sequence of Events"), and docs/run-sequence.md explains each.

extension RunLoop {
    /// One run of a mode: steps 1 and 10 around as many passes as it takes.
    func runPasses(_ frame: RunFrame, in mode: ModeState) -> RunResult { /* DOES CALLOUT */
        notifyObservers(.entry, in: mode)  // 1
        var result: RunResult? = runs.takeStop(frame) ? .stopped : nil
        while result == nil {  // ends: by a stop, the limit, an empty mode, or a source when the run returns after one
            result = runPass(frame, mode)
        }
        notifyObservers(.exit, in: mode)  // 10
        return result!  // the loop above ends with one
    }

    /// One pass: steps 2 to 9. Each step may call out; nothing that was read before a step is trusted after it.
    @inline(__always) private func runPass(_ frame: RunFrame, _ mode: ModeState) -> RunResult? { /* DOES CALLOUT */
        beginPass(mode)
        notifyObservers(.beforeTimers, in: mode)  // 2
        notifyObservers(.beforeSources, in: mode)  // 3
        frame.owned.sleepsEvenIfEmpty = performBlocks(in: mode) && frame.owned.sleepsAfterBlocks
        var handledSource = performCustomSources(frame, mode)  // 4
        if handledSource { performBlocks(in: mode) }
        if !handledSource && isEmpty(mode) && !frame.owned.sleepsEvenIfEmpty { return endOfPass(frame, mode, handledSource: false) }

        let mustNotSleep = handledSource || frame.owned.pollsOnly
        var ready = Ready()
        // If nobody observes steps 6 and 8, asking first and then waiting looks the same as one wait.
        if mustNotSleep || mode.observed.intersects([.beforeWaiting, .afterWaiting]) { ready = findReady(frame, mode) }  // 5
        if !mustNotSleep && ready.isEmpty {
            notifyObservers(.beforeWaiting, in: mode)  // 6
            ready = sleep(frame, mode)  // 7
            notifyObservers(.afterWaiting, in: mode)  // 8
        }
        if handleReady(ready, frame, mode) { handledSource = true }  // 9
        performBlocks(in: mode)
        return endOfPass(frame, mode, handledSource: handledSource)
    }

    /// Why the run ends with this pass; nil when it goes on. A stop that is not the reason stays for the exit.
    @inline(__always) private func endOfPass(_ frame: RunFrame, _ mode: ModeState, handledSource: Bool) -> RunResult? { /* DOES CALLOUT */
        finishPendingEnds(mode)
        if handledSource && frame.owned.returnsAfterSource { return .handledSource }
        if runs.takeStop(frame) { return .stopped }
        if frame.owned.pollsOnly || (frame.owned.limit != .max && frame.owned.limit <= now().nanoseconds) { return .timedOut }
        if !isEmpty(mode) { return nil }
        // Another thread may have ended the mode's last item since: its last callout comes before the run's end.
        finishPendingEnds(mode)
        return isEmpty(mode) ? .finished : nil
    }
}
