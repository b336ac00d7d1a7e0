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
        let (batch, stamp) = poller.takeBatch(onlyOne: run.returnsAfterSource)
        let generation = removals.load(ordering: .acquiring)
        var isHandled = false
        var stale: [UnsafeRawPointer] = []
        for entry in batch {
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
        poller.endBatch(batch)
        return isHandled
    }

    private func serve(_ membership: SourceMembership, _ readiness: Readiness) -> Bool { /* DOES CALLOUT */
        let source = membership.source
        guard source.isValid, source.beginServing(on: membership) else { return false }
        membership.callsInProgress += 1
        let isHandled = callOutToPort(source, readiness)
        endCall(membership)
        source.endServing(on: membership)
        if isHandled { counters.sourcesHandled.increment() }
        return isHandled
    }
}

// MARK: - A source in several loops

extension RunLoop.Source {
    /// Whether this loop's thread may call the handler now. False when another thread is in it: then this loop hears no more of the
    /// source until that call has returned.
    fileprivate func beginServing(on membership: SourceMembership) -> Bool {
        if !isInSeveralLoops.load(ordering: .acquiring) { return true }
        let isFree = state.withLock { state in
            if state.servingLoopID == 0 || state.servingLoopID == membership.loop.id {
                state.servingLoopID = membership.loop.id
                state.servingDepth += 1
                return true
            }
            state.waitingToServe.append(membership)
            return false
        }
        if !isFree { membership.loop.suspendRegistrations(membership) }
        return isFree
    }

    fileprivate func endServing(on membership: SourceMembership) {
        if !isInSeveralLoops.load(ordering: .acquiring) { return }
        let waiting = state.withLock { state -> [SourceMembership] in
            guard state.servingLoopID == membership.loop.id else { return [] }
            state.servingDepth -= 1
            if state.servingDepth > 0 { return [] }
            state.servingLoopID = 0
            defer { state.waitingToServe = [] }
            return state.waitingToServe
        }
        for waiting in waiting { waiting.loop.submit(.sourceChanged(waiting)) }
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
