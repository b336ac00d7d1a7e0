// Step 9: what is ready is handled, one kind a pass; and the serving of descriptors.

import Synchronization

extension RunLoop {
    /// Handles the kind whose turn it is among those that are ready. True when a source was handled.
    ///
    /// The kinds take turns, so that neither a busy port starves timers nor the reverse. What is not handled stays, and the next pass
    /// finds it without sleeping.
    @inline(__always)
    func handleReady(_ ready: Ready, _ run: Activation, _ mode: ModeState) -> Bool { /* DOES CALLOUT */
        if ready == .ports && mode.timers.isEmpty && owned.owed.isEmpty {
            mode.lastServed = .ports
            return mode.pollerReference!._withUnsafeGuaranteedRef { servePorts(run, mode, $0) }  // it has collected something
        }
        if ready.isEmpty && mode.timers.isEmpty && owned.owed.isEmpty { return false }
        return handleInTurn(ready, run, mode)
    }

    @inline(never)
    private func handleInTurn(_ ready: Ready, _ run: Activation, _ mode: ModeState) -> Bool { /* DOES CALLOUT */
        let servedForeign = ready.contains(.foreign)
        if servedForeign { counters.sourcesHandled.increment() }
        let dueBy = mode.timers.isEmpty ? nil : now().nanoseconds
        var kind = mode.lastServed
        for _ in 0..<4 {
            kind = kind.next
            switch kind {
            case .timers:
                guard let dueBy, mode.timers.hasDue(dueBy) else { continue }
                mode.lastServed = .timers
                fireDueTimers(run, mode, dueBy)
                return servedForeign
            case .ports:
                guard ready.contains(.ports) else { continue }
                mode.lastServed = .ports
                if ready.contains(.polled) { return serveWithoutPoller(run, mode) || servedForeign }
                return mode.pollerReference!._withUnsafeGuaranteedRef { servePorts(run, mode, $0) } || servedForeign
            case .messages:
                guard owned.owed.contains(.messages) else { continue }
                mode.lastServed = .messages
                // They may have been for another mode, or another loop was faster.
                if serveMessages(run, mode) { return true }
            case .mainQueue:
                guard ready.contains(.mainQueue) || (owned.owed.contains(.mainQueueDrain) && servesMainQueue(in: mode)) else { continue }
                mode.lastServed = .mainQueue
                if hasNews { carryOutNews(mode) }
                // The handle is level-triggered: a turn that is not taken now comes again.
                if drainMainQueue(handleIsReadable: ready.contains(.mainQueue)) { return true }
            }
        }
        return servedForeign
    }

    @inline(never)
    private func servePorts(_ run: Activation, _ mode: ModeState, _ poller: Poller) -> Bool { /* DOES CALLOUT */
        let generation = removals.load(ordering: .acquiring)
        // What was removed before the generation was read is unregistered here; what is removed after it changes the generation.
        if hasNews { carryOutNews(mode) }
        var batch = poller.beginBatch(onlyOne: run.returnsAfterSource)
        run.lostItsBatch = false
        var isHandled = false
        // Ends: each turn takes one off the ready list, and nothing is put there but by a nested run.
        while !run.lostItsBatch, let entry = poller.takeNext(in: &batch) {
            // Its owner is alive while the registration is: the poller retires them together.
            let served = Unmanaged<SourceMembership>.fromOpaque(entry.registration.pointee.owner)._withUnsafeGuaranteedRef {
                guard removals.load(ordering: .acquiring) == generation || isMember($0, of: mode) else { return false }
                return serve($0, entry.readiness)
            }
            if served { isHandled = true }
        }
        // In this order: a handler may have ended what is stale, and then only the batch holds it.
        if !poller.stale.isEmpty { failStale(poller) }
        poller.endBatch()
        return isHandled
    }

    @inline(__always)
    func serve(_ membership: SourceMembership, _ readiness: Readiness) -> Bool { /* DOES CALLOUT */
        let source = membership.source
        if membership.isInSeveralBases { noteServing(membership) }
        guard source.isValid else {
            // Another thread invalidates it and has not told the loop yet. Until then its descriptor would keep the loop from sleeping.
            suspendRegistrations(membership)
            return false
        }
        guard source.beginServing(on: membership, id) else { return false }
        membership.callsInProgress += 1
        let isHandled = callOutToPort(source, readiness)
        endCall(membership)
        source.endServing(on: membership)
        if isHandled {
            counters.sourcesHandled.increment()
        } else {
            // A one-shot that found nothing to do is off the base and has not had its shot.
            updateRegistrations(membership)
        }
        return isHandled
    }
}

// MARK: - A source in several loops

extension RunLoop.Source {
    /// Whether this loop's thread may call the handler now. False when another thread is in it: then this loop hears no more of the
    /// source until that call has returned.
    ///
    /// One word says which loop is in the handler and how deep; only the loser of a claim takes the lock.
    @inline(__always)
    func beginServing(on membership: SourceMembership, _ id: UInt64) -> Bool {
        claimServing(for: id) || waitToServe(on: membership)
    }

    @inline(never)
    func waitToServe(on membership: SourceMembership) -> Bool {
        while true {  // ends: with a claim, or with a place among those who wait
            if claimServing(for: membership.loop.id) { return true }
            let waits = state.withLock { state in
                // The one who serves looks for waiters after it has let go.
                if servingLoop.load(ordering: .sequentiallyConsistent) == 0 { return false }
                state.wait(membership)
                hasWaiters.store(true, ordering: .sequentiallyConsistent)
                return true
            }
            if waits {
                membership.loop.suspendRegistrations(membership)
                // It may have let go before it could see the waiter.
                if servingLoop.load(ordering: .sequentiallyConsistent) == 0 { wakeWaiters() }
                return false
            }
        }
    }

    @inline(__always)
    func claimServing(for id: UInt64) -> Bool {
        let (isClaimed, owner) = servingLoop.compareExchange(expected: 0, desired: id, ordering: .sequentiallyConsistent)
        // A nested run of the same thread may call the handler again.
        guard isClaimed || owner == id else { return false }
        servingDepth += 1
        return true
    }

    @inline(__always)
    func endServing(on membership: SourceMembership) {
        servingDepth -= 1
        if servingDepth > 0 { return }
        servingLoop.store(0, ordering: .sequentiallyConsistent)
        if hasWaiters.load(ordering: .sequentiallyConsistent) { wakeWaiters() }
    }

    @inline(never)
    private func wakeWaiters() {
        let waiting = state.withLock { state -> [SourceMembership] in
            hasWaiters.store(false, ordering: .sequentiallyConsistent)
            return state.takeWaiting()
        }
        for waiting in waiting {
            switch kind {
            case .watched, .descriptor: waiting.loop.submitRewatch(of: waiting)
            case .messages: waiting.loop.noteMessages(waiting)
            case .custom: waiting.loop.noteSignalAgain(waiting)
            }
        }
    }
}

// MARK: - Changes of what a descriptor source watches for

extension RunLoop.DescriptorSource {
    /// What the source is to be told of. Setting it takes effect before the loop waits next; from another thread it wakes the loop.
    /// Empty: the source stays in its modes and is silent. Thread-safe.
    public var events: Events {
        get { Events(rawValue: wanted.load(ordering: .acquiring)) }
        set {
            if wanted.exchange(newValue.rawValue, ordering: .acquiringAndReleasing) == newValue.rawValue { return }
            watchDidChange()
        }
    }

    /// Arms a one-shot source for its next shot. Nothing for other triggers. Thread-safe.
    public func rearm() {
        guard trigger == .oneShot else { return }
        isArmed.store(true, ordering: .releasing)
        watchDidChange()
    }
}

extension RunLoop.Source {
    /// Has every loop that the source is in look at `watch` again.
    func watchDidChange() {
        for membership in state.withLock({ $0.memberships }) { membership.loop.submitRewatch(of: membership) }
    }
}
