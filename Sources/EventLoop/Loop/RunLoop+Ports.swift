// Step 9: what is ready is handled, one kind a pass; and the serving of descriptors.

import Synchronization

extension RunLoop {
    /// Handles the kind whose turn it is among those that are ready. True when a source was handled.
    ///
    /// The kinds take turns, so that neither a busy port starves timers nor the reverse. What is not handled stays, and the next pass
    /// finds it without sleeping.
    func handleReady(_ ready: Ready, in run: Activation) -> Bool { /* DOES CALLOUT */
        let mode = run.mode!  // a run has a mode
        if ready.servedForeign { counters.sourcesHandled.increment() }
        let dueBy = mode.timers.isEmpty ? nil : now().nanoseconds
        var kind = mode.lastServed
        for _ in 0..<3 {
            kind = kind.next
            switch kind {
            case .timers:
                guard let dueBy, mode.timers.hasDue(dueBy) else { continue }
                mode.lastServed = .timers
                fireDueTimers(run, dueBy)
                return ready.servedForeign
            case .ports:
                guard ready.ports else { continue }
                mode.lastServed = .ports
                return servePorts(run) || ready.servedForeign
            case .mainQueue:
                guard ready.mainQueue || (owned.owesMainQueueDrain && servesMainQueue(in: mode)) else { continue }
                mode.lastServed = .mainQueue
                // The handle is level-triggered: a turn that is not taken now comes again.
                if drainMainQueue(handleIsReadable: ready.mainQueue) { return true }
            }
        }
        return ready.servedForeign
    }

    private func servePorts(_ run: Activation) -> Bool { /* DOES CALLOUT */
        let mode = run.mode!  // a run has a mode
        let poller = mode.poller!  // what is ready was collected by it
        let generation = removals.load(ordering: .acquiring)
        // What was removed before the generation was read is unregistered here; what is removed after it changes the generation.
        takeAttention(mode)
        if owned.pending.contains(.changes) { applyChanges() }
        let stamp = poller.takeBatch(into: &run.ports, onlyOne: run.returnsAfterSource)
        run.nextPort = 0
        var isHandled = false
        var stale: [UnsafeRawPointer] = []
        while run.nextPort < run.ports.count {  // ends: the batch is fixed, and the index rises
            let entry = run.ports[run.nextPort]
            run.nextPort += 1
            guard let readiness = poller.redeem(entry, takenAt: stamp, stale: &stale) else { continue }
            // Its owner is alive while the registration is: the poller buries them together.
            let membership = Unmanaged<SourceMembership>.fromOpaque(entry.registration.pointee.owner)
            let served = membership._withUnsafeGuaranteedRef { membership in
                guard removals.load(ordering: .acquiring) == generation || isMember(membership, of: mode) else { return false }
                return serve(membership, readiness)
            }
            if served { isHandled = true }
        }
        if !stale.isEmpty { failStale(stale) }
        run.ports.removeAll(keepingCapacity: true)
        run.nextPort = 0
        poller.endBatch()
        return isHandled
    }

    private func serve(_ membership: SourceMembership, _ readiness: Readiness) -> Bool { /* DOES CALLOUT */
        let source = membership.source
        guard source.isValid, source.beginServing(on: membership) else { return false }
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
    func beginServing(on membership: SourceMembership) -> Bool {
        while true {  // ends: with a claim, or with a place among those who wait
            if claimServing(for: membership.loop.id) { return true }
            let waits = state.withLock { state in
                // The one who serves looks for waiters after it has let go.
                if servingLoop.load(ordering: .sequentiallyConsistent) == 0 { return false }
                state.waitingToServe.append(membership)
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

    private func claimServing(for id: UInt64) -> Bool {
        let (isClaimed, owner) = servingLoop.compareExchange(expected: 0, desired: id, ordering: .sequentiallyConsistent)
        // A nested run of the same thread may call the handler again.
        guard isClaimed || owner == id else { return false }
        servingDepth += 1
        return true
    }

    func endServing(on membership: SourceMembership) {
        servingDepth -= 1
        if servingDepth > 0 { return }
        servingLoop.store(0, ordering: .sequentiallyConsistent)
        if hasWaiters.load(ordering: .sequentiallyConsistent) { wakeWaiters() }
    }

    private func wakeWaiters() {
        let waiting = state.withLock { state -> [SourceMembership] in
            hasWaiters.store(false, ordering: .sequentiallyConsistent)
            defer { state.waitingToServe = [] }
            return state.waitingToServe
        }
        for waiting in waiting {
            if isWatched { waiting.loop.submit(.sourceChanged(waiting)) } else { waiting.loop.noteSignalAgain(waiting) }
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
            tellLoops()
        }
    }

    /// Arms a one-shot source for its next shot. Nothing for other triggers. Thread-safe.
    public func rearm() {
        guard trigger == .oneShot else { return }
        isArmed.store(true, ordering: .releasing)
        tellLoops()
    }

    private func tellLoops() {
        for membership in state.withLock({ $0.memberships }) { membership.loop.submit(.sourceChanged(membership)) }
    }
}
