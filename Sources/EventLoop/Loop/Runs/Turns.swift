// Step 9: which kind of what is ready is handled in this pass. Serving.swift serves sources, Firing.swift fires timers.

extension RunLoop {
    /// Handles the kind whose turn it is (rule 1.19). True when a source was handled. Other kinds stay ready for the next pass.
    @inline(__always) func handleReady(_ ready: Ready, _ frame: RunFrame, _ mode: ModeState) -> Bool { /* DOES CALLOUT */
        let hasOthers = !mode.owned.timers.isEmpty || !owned.pending.isDisjoint(with: .forEvents)
        if ready == .descriptors && !hasOthers {
            mode.owned.lastServed = .descriptors
            return mode.owned.pollerReference!.use { serveDescriptors(frame, mode, $0) }  // it has collected something
        }
        return (hasOthers || !ready.isEmpty) && handleInTurn(ready, frame, mode)
    }

    @inline(never) private func handleInTurn(_ ready: Ready, _ frame: RunFrame, _ mode: ModeState) -> Bool { /* DOES CALLOUT */
        let servedForeign = ready.contains(.foreign)
        if servedForeign { counters.sourcesHandled.increment() }
        let dueBy = mode.owned.timers.isEmpty ? nil : now().nanoseconds
        var kind = mode.owned.lastServed
        for _ in 0..<4 {
            kind = kind.next
            switch kind {
            case .timers:
                guard let dueBy, mode.owned.timers.hasDue(dueBy) else { continue }
                mode.owned.lastServed = .timers
                fireDueTimers(frame, mode, dueBy)
                return servedForeign
            case .descriptors:
                guard ready.contains(.descriptors) else { continue }
                mode.owned.lastServed = .descriptors
                if ready.contains(.polled) { return serveWithoutPoller(frame, mode) || servedForeign }
                return mode.owned.pollerReference!.use { serveDescriptors(frame, mode, $0) } || servedForeign
            case .messages:
                guard owned.pending.contains(.messages) else { continue }
                mode.owned.lastServed = .messages
                if serveMessages(frame, mode) { return true }  // or they were for another mode, or another loop was faster
            case .mainQueue:
                guard ready.contains(.mainQueue) || (owned.pending.contains(.mainQueueDrain) && servesMainQueue(in: mode))
                else { continue }
                mode.owned.lastServed = .mainQueue
                if hasPendingWork { carryOutPendingChanges(mode) }
                // The handle is level-triggered: a turn that is not taken now comes again.
                if drainMainQueue(mode, handleIsReadable: ready.contains(.mainQueue)) { return true }
            }
        }
        return servedForeign
    }
}
