// How a ready source comes to its handler, for every kind of source. The batch is taken under no lock or a short one, then for each source:
//
// 1. Is it still a member of the mode? Anything may have been removed since the batch was taken; `removals` says so without the lock.
// 2. Claim it (`beginServing`): a source may be in several loops, and its handler never runs on two threads.
// 3. Call it (`call`): the membership counts the calls in progress, so that its end waits for them.
// 4. Release the claim (`endServing`), and notify loops that waited for it.
//
// Other files make a source ready and wake the loop for it: Poller.collect for descriptors, CustomSource.signal, and RunLoop+Messages.swift
// for ports.

import Synchronization

extension RunLoop {
    // MARK: Descriptors, and whatever else the kernel watches (step 9)

    @inline(never)
    func serveDescriptors(_ frame: RunFrame, _ mode: ModeState, _ poller: Poller) -> Bool { /* DOES CALLOUT */
        let generation = removals.generation
        // A source that was removed before the generation was read is unregistered here; a later removal changes the generation.
        if hasPendingWork { carryOutPendingChanges(mode) }
        var batch = poller.beginBatch(onlyOne: frame.returnsAfterSource)
        frame.lostItsBatch = false
        var isHandled = false
        // Ends: each turn takes one off the ready list, and only a nested run adds any.
        while !frame.lostItsBatch, let entry = poller.takeNext(in: &batch) {
            // Its owner is alive while the registration is: the poller frees both after the batch.
            let served = Unmanaged<SourceMembership>.fromOpaque(entry.registration.pointee.owner)._withUnsafeGuaranteedRef {
                isStillMember($0, of: mode, since: generation) && serve($0, entry.readiness)
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
        if membership.isInSeveralBases { countServing(membership) }
        guard source.isValid else {
            // Another thread invalidates it, and the loop has no change yet. Until then its descriptor would keep the loop from sleeping.
            suspendRegistrations(membership)
            return false
        }
        guard source.beginServing(on: membership, id) else { return false }
        let isHandled = call(source, membership) { callOutToWatchedSource(source, readiness) }
        if isHandled {
            counters.sourcesHandled.increment()
        } else {
            // A one-shot that found nothing to do is off the base and has not had its shot.
            updateRegistrations(membership)
        }
        return isHandled
    }

    // MARK: Custom sources (step 4)

    /// Performs the custom sources that were signaled before the pass got here. With the first, if the run returns after a source, the walk
    /// ends. True if one was performed.
    func performSignaled(_ frame: RunFrame, _ mode: ModeState) -> Bool { /* DOES CALLOUT */
        takeAttention(mode)
        guard owned.pending.contains(.signals) else { return false }
        let generation = removals.generation
        owned.pending.remove(.signals)
        shared.withLock { _ in
            frame.signals.fill { mode.signaled.takeAll(into: &$0, inMode: mode.index) }
        }
        guard frame.signals.hasRest else { return false }
        if hasPendingWork { carryOutPendingChanges(mode) }
        var isHandled = false
        while frame.signals.hasRest {  // ends: the batch is fixed, and each turn takes one
            let isPerformed = frame.signals.takeNext()._withUnsafeGuaranteedRef { membership in
                isStillMember(membership, of: mode, since: generation) ? perform(membership) : performIfBack(membership, mode)
            }
            guard isPerformed else { continue }
            isHandled = true
            if frame.returnsAfterSource { break }
        }
        if frame.signals.hasRest { requeue(frame.signals.rest, in: mode) }
        while frame.signals.popLast() != nil {}  // ends: one goes a turn
        return isHandled
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
        guard source.isSignaled, source.beginServing(on: membership, id) else { return false }
        // Cleared before the call, so that a signal given during it is a new one; in several loops the first one gets it.
        guard source.signalWord.take() else {
            source.endServing(on: membership)
            return false
        }
        counters.sourcesHandled.increment()
        return call(source, membership) {
            callOutToCustomSource(source)
            return true
        }
    }

    /// Gives sources that the walk did not reach back to the mode's list.
    func requeue(_ rest: ArraySlice<SourceMembership>, in mode: ModeState) {
        shared.withLock { _ in
            for membership in rest where !membership.isDead && membership.modes.contains(mode.index) && membership.custom.isSignaled {
                mode.enqueueSignalLocked(of: membership)
            }
        }
        owned.pending.insert(.signals)
    }

    // MARK: Ports (step 9)

    /// Delivers what the ports of the mode have: one message if the run returns after a source, otherwise what was there when the port's
    /// turn came. Ends with a stop. True if a message was delivered.
    @inline(never)
    func serveMessages(_ frame: RunFrame, _ mode: ModeState) -> Bool { /* DOES CALLOUT */
        // A thread that removes a port takes it out of the lists; one that does so from here on increments the count.
        let generation = removals.generation
        if hasPendingWork { carryOutPendingChanges(mode) }
        owned.pending.takeMessages()
        var isHandled = false
        var isLeft = false
        let step = owned.messageSteps.next()
        var turns: Int?
        // Ends: there are as many turns as there were ports at the beginning.
        while let membership = shared.withLock({ _ in mode.messaged.takeTurn(inStep: step, mode: mode.index, &turns) }) {
            if serveMessages(of: membership, frame, mode, generation) { isHandled = true }
            if membership.source.hasMessage { isLeft = true }
            if runs.isStopRequested(frame) || (isHandled && frame.returnsAfterSource) {
                // Not for nothing: what is sent after the sleep waits for the next pass.
                isLeft = isLeft || shared.withLock { _ in mode.messaged.hasMessage }
                break
            }
        }
        if isLeft { owned.pending.insert(.messages) }
        return isHandled
    }

    private func serveMessages(of membership: SourceMembership, _ frame: RunFrame, _ mode: ModeState, _ generation: UInt64) -> Bool
    { /* DOES CALLOUT */
        let source = membership.source
        guard source.claimServing(for: id) || waitForMessages(of: membership) else { return false }
        return call(source, membership) {
            var isHandled = false
            let last = source.lastMessage
            if hasPendingWork { carryOutPendingChanges(mode) }
            while source.isValid && isStillMember(membership, of: mode, since: generation) {  // ends: at `last`
                guard callOutToPort(source, upTo: last, onlyOne: frame.returnsAfterSource) else { break }
                counters.sourcesHandled.increment()
                isHandled = true
                if frame.returnsAfterSource || runs.isStopRequested(frame) { break }
            }
            if source.servingDepth == 1 { source.returnMessages() }
            return isHandled
        }
    }

    /// Another thread is in the handler. The port leaves this loop's lists until that call has returned, and only then does the loop
    /// join the waiters: the other way round it could be notified in between.
    @inline(never)
    private func waitForMessages(of membership: SourceMembership) -> Bool {
        shared.withLock { shared in
            shared.modes.forEach { $0.messaged.remove(membership, inMode: $0.index) }
        }
        guard membership.source.waitToServe(on: membership) else { return false }
        enqueueMessagesAndWake(membership)
        return true
    }

    // MARK: Every kind

    /// Whether a source is in the mode, for one that was in it at `generation`.
    @inline(__always)
    private func isStillMember(_ membership: SourceMembership, of mode: ModeState, since generation: UInt64) -> Bool {
        removals.generation == generation || isMember(membership, of: mode)
    }

    func isMember(_ membership: SourceMembership, of mode: ModeState) -> Bool {
        shared.withLock { _ in !membership.isDead && membership.modes.contains(mode.index) }
    }

    /// Calls the handler of a source that this loop has claimed. Then ends the membership if it has died, and releases the claim.
    @inline(__always)
    func call(_ source: Source, _ membership: SourceMembership, _ body: () -> Bool) -> Bool { /* DOES CALLOUT */
        membership.callsInProgress += 1
        let isHandled = body()
        endCall(membership)
        source.endServing(on: membership)
        return isHandled
    }

    /// A call of a source's handler has returned.
    private func endCall(_ membership: SourceMembership) { /* DOES CALLOUT */
        membership.callsInProgress -= 1
        if membership.endsAfterCalls && membership.callsInProgress == 0 {
            membership.endsAfterCalls = false
            endUse(of: membership.source)
            finishItems()
        }
    }
}

// MARK: - A source in several loops

extension RunLoop.Source {
    /// Whether this loop's thread may call the handler now. False when another thread is in it: then the source is silent in
    /// this loop until that call has returned.
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
                // The serving thread looks for waiters after it has released the claim.
                if servingLoop.load(ordering: .sequentiallyConsistent) == 0 { return false }
                state.wait(membership)
                hasWaiters.store(true, ordering: .sequentiallyConsistent)
                return true
            }
            if waits {
                membership.loop.suspendRegistrations(membership)
                // It may have released the claim before it could see the waiter.
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
            case .watched, .descriptor, .guest: waiting.loop.submitRewatch(of: waiting)
            case .messages: waiting.loop.enqueueMessagesAndWake(waiting)
            case .custom: waiting.loop.enqueueSignalAndWake(waiting)
            }
        }
    }
}
