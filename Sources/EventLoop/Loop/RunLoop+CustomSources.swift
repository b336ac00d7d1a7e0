// Step 4: signals and performs.

import Synchronization

extension RunLoop.CustomSource {
    /// Marks the source as ready to be performed. Wakes nobody: follow it with the loop's `wakeUp()`.
    ///
    /// Signals before the perform are one; a signal given while the source is being performed is a new one. On an invalid source
    /// nothing happens. Thread-safe. See `CFRunLoopSourceSignal`.
    public func signal() {
        guard isValid, let claim = signalWord.claim() else { return }
        if !isValid {
            signalWord.take()
            return
        }
        recordSignalTime()
        // A loop's lock inside the source's: never the other way round. It spares a copy of the list.
        _ = state.withLockUnlessInherited { state in
            state.forEachMembership { $0.loop.noteSignal($0) }
        }
        // Not before: whoever finds the signal enqueued relies on it, and may wake the loop at once.
        signalWord.markEnqueued(claim)
    }
}

extension RunLoop {
    fileprivate func noteSignal(_ membership: SourceMembership) {
        if belongsToParentProcess { return }
        shared.withLock { shared in
            if membership.isDead { return }
            membership.modes.forEach { shared.lendMode($0) { LoopShared.queue(membership, in: $0) } }
        }
        mark(.signals)
    }

    /// Notes a signal again that another loop's thread was in the way of.
    func noteSignalAgain(_ membership: SourceMembership) {
        noteSignal(membership)
        notify(.signals)
    }

    /// Performs what is queued for the mode by `perform`, then the custom sources that were signaled before this pass got here. True
    /// when something was performed. When the run returns after a source, the walk ends with the first.
    @inline(__always)
    func performCustomSources(_ run: Activation, _ mode: ModeState) -> Bool { /* DOES CALLOUT */
        hasNews && performWithNews(run, mode)
    }

    @inline(never)
    private func performWithNews(_ run: Activation, _ mode: ModeState) -> Bool { /* DOES CALLOUT */
        takeAttention(mode)
        let performed = performQueued(in: mode)
        if performed && run.returnsAfterSource { return true }
        return performSignaled(run, mode) || performed
    }

    private func performSignaled(_ run: Activation, _ mode: ModeState) -> Bool { /* DOES CALLOUT */
        takeAttention(mode)
        guard owned.pending.contains(.signals) else { return false }
        let stamp = removals.load(ordering: .acquiring)
        guard takeSignaled(run, mode) else { return false }
        if hasNews { carryOutNews(mode) }
        var isHandled = false
        while run.nextSignal < run.signals.count {  // ends: the batch is fixed, and the index rises
            // Lent: nobody takes anything out of a run's own list before the walk is over.
            let membership = Unmanaged.passUnretained(run.signals[run.nextSignal])
            run.nextSignal += 1
            let isPerformed = membership._withUnsafeGuaranteedRef { membership in
                if removals.load(ordering: .acquiring) == stamp || isMember(membership, of: mode) { return perform(membership) }
                return performIfBack(membership, mode)
            }
            guard isPerformed else { continue }
            isHandled = true
            if run.returnsAfterSource { break }
        }
        if run.nextSignal < run.signals.count { requeue(run.signals[run.nextSignal...], in: mode) }
        while run.signals.popLast() != nil {}  // ends: one goes a turn
        run.nextSignal = 0
        return isHandled
    }

    /// Takes the mode's list into the run, in the order in which it is performed. False when there is nothing.
    private func takeSignaled(_ run: Activation, _ mode: ModeState) -> Bool {
        owned.pending.remove(.signals)
        shared.withLock { _ in
            swap(&run.signals, &mode.signaled)
            var isStale = false
            for index in run.signals.indices {
                run.signals[index].queuedModes.remove(mode.index)
                if !run.signals[index].custom.isSignaled { isStale = true }
            }
            // Performed in another mode or loop: a signal that comes now is for the next pass.
            if isStale { run.signals.removeAll { !$0.custom.isSignaled } }
            if run.signals.count > 1 { run.signals.sort { $0.custom.goesBefore($1.custom) } }
        }
        run.nextSignal = 0
        return !run.signals.isEmpty
    }

    /// Performs a source that an earlier one of the walk has taken out of its last mode, if it is in the mode again by another membership.
    private func performIfBack(_ membership: SourceMembership, _ mode: ModeState) -> Bool { /* DOES CALLOUT */
        guard let back = membership.source.existingMembership(of: self), isMember(back, of: mode) else { return false }
        return perform(back)
    }

    private func perform(_ membership: SourceMembership) -> Bool { /* DOES CALLOUT */
        Unmanaged.passUnretained(membership.custom)._withUnsafeGuaranteedRef { perform($0, membership) }
    }

    @inline(__always)
    private func perform(_ source: CustomSource, _ membership: SourceMembership) -> Bool { /* DOES CALLOUT */
        // Cleared before the call, so that a signal given during it is a new one; in several loops the first one gets it.
        guard source.isSignaled, source.beginServing(on: membership, id) else { return false }
        defer { source.endServing(on: membership) }
        guard source.signalWord.take() else { return false }
        counters.sourcesHandled.increment()
        membership.callsInProgress += 1
        callOutToCustomSource(source)
        endCall(membership)
        return true
    }

    /// Gives sources that the walk did not reach back to the mode's list.
    func requeue(_ rest: ArraySlice<SourceMembership>, in mode: ModeState) {
        shared.withLock { _ in
            for membership in rest where !membership.isDead && membership.modes.contains(mode.index) && membership.custom.isSignaled {
                LoopShared.queue(membership, in: mode)
            }
        }
        owned.pending.insert(.signals)
    }

    func isMember(_ membership: SourceMembership, of mode: ModeState) -> Bool {
        shared.withLock { _ in !membership.isDead && membership.modes.contains(mode.index) }
    }

    /// A call of a source's handler has returned.
    func endCall(_ membership: SourceMembership) {
        membership.callsInProgress -= 1
        if membership.endsAfterCalls && membership.callsInProgress == 0 {
            membership.endsAfterCalls = false
            endUse(of: membership.source)
            finishItems()
        }
    }
}

extension SourceMembership {
    /// Only custom sources are signaled by hand.
    var custom: RunLoop.CustomSource { unsafeDowncast(source, to: RunLoop.CustomSource.self) }
}
