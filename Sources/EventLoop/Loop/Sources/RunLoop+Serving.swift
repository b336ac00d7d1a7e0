// How a ready source comes to its handler, for every kind of source. The batch is taken under no lock or a short one, then for each source:
//
// 1. Is it still a member of the mode? Anything may have been removed since the batch was taken; `removals` says so without the lock.
// 2. Claim it (`beginServing`): a source may be in several loops, and its handler never runs on two threads.
// 3. Call it (`call`): the source's core counts the calls in progress, and the end of a membership waits for them.
// 4. Release the claim (`endServing`), and notify loops that waited for it.
//
// A descriptor that the kernel reports is served from its registration, which has the source's core in it. The membership and the source
// object are touched only if something was removed, or the source is in several bases or loops.
//
// Other files make a source ready and wake the loop for it: Poller.collect for descriptors, CustomSource.signal, and RunLoop+Messages.swift
// for ports.

internal import CPlatform
import Synchronization

extension RunLoop {
    // MARK: Descriptors, and whatever else the kernel watches (step 9)

    @inline(never)
    func serveDescriptors(_ frame: RunFrame, _ mode: ModeState, _ poller: Poller) -> Bool { /* DOES CALLOUT */
        let generation = removals.generation
        // A source that was removed before the generation was read is unregistered here; a later removal changes the generation.
        if hasPendingWork {
            if hasWorkForSteps { carryOutPendingChanges(mode) }
            if isObserved { return serveBatch(frame, mode, poller, generation, Observed.self) }
        }
        return serveBatch(frame, mode, poller, generation, Unobserved.self)
    }

    @inline(__always)
    private func serveBatch<Observer: CalloutObserver>(
        _ frame: RunFrame, _ mode: ModeState, _ poller: Poller, _ generation: UInt64, _ observer: Observer.Type
    ) -> Bool { /* DOES CALLOUT */
        var batch = poller.beginBatch(onlyOne: frame.returnsAfterSource)
        frame.lostItsBatch = false
        var isHandled = false
        // Ends: each turn takes one off the ready list, and only a nested run adds any.
        while !frame.lostItsBatch, let entry = poller.takeNext(in: &batch) {
            // The owner and its source are alive while the registration is: the poller releases both after the batch.
            let registration = entry.registration
            guard removals.generation == generation || isMember(registration.owner, of: mode) else { continue }
            let core = registration.isOwnAndOnly ? registration.core : countServing(registration)
            if serve(core, registration.owner, entry.readiness, mode, observer) { isHandled = true }
        }
        // In this order: a handler may have ended what is stale, and then only the batch holds it.
        if !poller.stale.isEmpty { failStale(poller) }
        poller.endBatch()
        return isHandled
    }

    /// The core of a registration that is not its source's only one.
    @inline(never)
    private func countServing(_ registration: RegistrationPointer) -> SourceCorePointer {
        if registration.pointee.isInSeveralBases { countServing(registration.owner) }
        return registration.source
    }

    @inline(__always)
    func serve<Observer: CalloutObserver>(
        _ core: SourceCorePointer, _ membership: @autoclosure () -> SourceMembership, _ readiness: Readiness, _ mode: ModeState,
        _: Observer.Type
    ) -> Bool { /* DOES CALLOUT */
        guard core.pointee.rundown.isValid else {
            // Another thread invalidates it, and the loop has no change yet. Until then its descriptor would keep the loop from sleeping.
            suspendRegistrations(membership())
            return false
        }
        guard core.claimServing(for: id) || waitToServe(membership()) else { return false }
        let isHandled = call(core) {
            let span = Observer.open(self, mode, Source.calloutOfWatched(core))
            let isCalled = callOutToWatchedSource(core, readiness)
            Observer.close(self, span, isCalled: isCalled)
            return isCalled
        }
        if isHandled {
            counters.sourcesHandled.increment()
        } else {
            // A one-shot that found nothing to do is off the base and has not had its shot.
            updateRegistrations(membership())
        }
        return isHandled
    }

    @inline(never)
    private func waitToServe(_ membership: SourceMembership) -> Bool { membership.source.waitToServe(on: membership) }

    // MARK: Custom sources (step 4)

    /// Performs the custom sources that were signaled before the pass got here. With the first, if the run returns after a source, the walk
    /// ends. True if one was performed. The owner has taken `.signals`.
    @inline(__always)
    func performSignaled(_ frame: RunFrame, _ mode: ModeState) -> Bool { /* DOES CALLOUT */
        let generation = removals.generation
        owned.pending.remove(.signals)
        _ = shared.lockValue()
        let single = mode.signaled.takeSingle(inMode: mode.index)
        shared.unlock()
        if hasPendingWork || single == nil { return performSignals(beginningWith: single, frame, mode, generation) }
        let isHandled = single.unsafelyUnwrapped._withUnsafeGuaranteedRef { perform($0, mode, since: generation, Unobserved.self) }
        // The last reference may be here, and a deinit of the user's may run the loop.
        single.unsafelyUnwrapped.release()
        return isHandled
    }

    /// The same if there are several, or none, or if there is something to do before. `single` was taken, and is released here.
    @inline(never)
    private func performSignals(
        beginningWith single: Unmanaged<SourceMembership>?, _ frame: RunFrame, _ mode: ModeState, _ generation: UInt64
    ) -> Bool { /* DOES CALLOUT */
        if let single {
            frame.signals.fill { $0.append(single.takeRetainedValue()) }
        } else {
            shared.withLock { _ in
                frame.signals.fill { mode.signaled.takeAll(into: &$0, inMode: mode.index) }
            }
        }
        guard frame.signals.hasRest else { return false }
        if hasPendingWork { carryOutPendingChanges(mode) }
        let isHandled =
            isObserved ? performBatch(frame, mode, generation, Observed.self) : performBatch(frame, mode, generation, Unobserved.self)
        if frame.signals.hasRest { requeue(frame.signals.rest, in: mode) }
        while frame.signals.popLast() != nil {}  // ends: one goes a turn
        return isHandled
    }

    @inline(__always)
    private func performBatch<Observer: CalloutObserver>(
        _ frame: RunFrame, _ mode: ModeState, _ generation: UInt64, _ observer: Observer.Type
    ) -> Bool { /* DOES CALLOUT */
        var isHandled = false
        while frame.signals.hasRest {  // ends: the batch is fixed, and each turn takes one
            let isPerformed = frame.signals.takeNext()._withUnsafeGuaranteedRef { membership in
                perform(membership, mode, since: generation, observer)
            }
            guard isPerformed else { continue }
            isHandled = true
            if frame.returnsAfterSource { break }
        }
        return isHandled
    }

    @inline(__always)
    private func perform<Observer: CalloutObserver>(
        _ membership: SourceMembership, _ mode: ModeState, since generation: UInt64, _ observer: Observer.Type
    ) -> Bool { /* DOES CALLOUT */
        isStillMember(membership, of: mode, since: generation)
            ? perform(membership, mode, observer) : performIfBack(membership, mode, observer)
    }

    /// Performs a source that an earlier one of the walk has taken out of its last mode, if it is in the mode again by another membership.
    @inline(never)
    private func performIfBack<Observer: CalloutObserver>(_ membership: SourceMembership, _ mode: ModeState, _ observer: Observer.Type)
        -> Bool
    { /* DOES CALLOUT */
        guard let back = membership.source.existingMembership(of: self), isMember(back, of: mode) else { return false }
        return perform(back, mode, observer)
    }

    @inline(__always)
    private func perform<Observer: CalloutObserver>(_ membership: SourceMembership, _ mode: ModeState, _ observer: Observer.Type) -> Bool
    { /* DOES CALLOUT */
        Unmanaged.passUnretained(membership.custom)._withUnsafeGuaranteedRef { perform($0, membership, mode, observer) }
    }

    @inline(__always)
    private func perform<Observer: CalloutObserver>(
        _ source: CustomSource, _ membership: SourceMembership, _ mode: ModeState, _: Observer.Type
    ) -> Bool { /* DOES CALLOUT */
        guard source.isSignaled, source.beginServing(on: membership, id) else { return false }
        // Cleared before the call, so that a signal given during it is a new one; in several loops the first one gets it.
        guard source.signalWord.take() else {
            Source.endServing(source.core)
            return false
        }
        counters.sourcesHandled.increment()
        return call(source.core) {
            let span = Observer.open(self, mode, source.callout(.customSource, flow: FlowKey.signal(source)))
            callOutToCustomSource(source)
            Observer.close(self, span)
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
        guard source.core.claimServing(for: id) || waitForMessages(of: membership) else { return false }
        return call(source.core) {
            var isHandled = false
            let last = source.lastMessage
            if hasPendingWork { carryOutPendingChanges(mode) }
            while source.isValid && isStillMember(membership, of: mode, since: generation) {  // ends: at `last`
                let isDelivered =
                    isObserved
                    ? deliver(source, last, frame, mode, Observed.self) : deliver(source, last, frame, mode, Unobserved.self)
                guard isDelivered else { break }
                counters.sourcesHandled.increment()
                isHandled = true
                if frame.returnsAfterSource || runs.isStopRequested(frame) { break }
            }
            if source.core.pointee.servingDepth == 1 { source.returnMessages() }
            return isHandled
        }
    }

    @inline(__always)
    private func deliver<Observer: CalloutObserver>(
        _ source: Source, _ last: UInt64, _ frame: RunFrame, _ mode: ModeState, _: Observer.Type
    ) -> Bool { /* DOES CALLOUT */
        let span = Observer.open(self, mode, source.callout(.port, flow: FlowKey.messages(source)))
        let isCalled = callOutToPort(source, upTo: last, onlyOne: frame.returnsAfterSource)
        Observer.close(self, span, isCalled: isCalled)
        return isCalled
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

    /// Calls the handler of a source that this loop has claimed. Then ends the memberships that have died, and releases the claim.
    @inline(__always)
    func call(_ core: SourceCorePointer, _ body: () -> Bool) -> Bool { /* DOES CALLOUT */
        let isHandled = body()
        if core.pointee.hasEndingUses { endUsesAndServing(core) } else { Source.endServing(core) }
        return isHandled
    }

    /// Whether this thread is in the handler of a source. Owning thread only.
    func isServing(_ source: Source) -> Bool {
        // The claim of another loop's thread is never this loop's.
        source.core.pointee.servingLoop.load(ordering: .relaxed) == id
    }

    /// A membership of a source that is being served has died.
    func endUseAfterCalls(of source: Source) {
        source.core.pointee.hasEndingUses = true
        owned.endingUses.append(source)
    }

    /// The outermost call of a source's handler has returned. The batch keeps the source until the claim has ended, too.
    @inline(never)
    private func endUsesAndServing(_ core: SourceCorePointer) { /* DOES CALLOUT */
        // A nested call leaves it to the outermost one. Ends: only a callout that adds the source and removes it brings another turn.
        while core.pointee.hasEndingUses && core.pointee.servingDepth == 1 {
            core.pointee.hasEndingUses = false
            let ending = owned.endingUses.filter { $0.core == core }
            owned.endingUses.removeAll { $0.core == core }
            for source in ending { endUse(of: source) }
            withExtendedLifetime(ending) { finishItems() }
        }
        // If another thread ends the last use, it is releasing the handler by now. To ThreadSanitizer, changing one member of the core is a
        // change of the whole core, also of the handler's words.
        cplatform_begin_unrecorded_accesses()
        Source.endServing(core)
        cplatform_end_unrecorded_accesses()
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
        core.claimServing(for: id) || waitToServe(on: membership)
    }

    @inline(never)
    fileprivate func waitToServe(on membership: SourceMembership) -> Bool {
        while true {  // ends: with a claim, or with a place among those who wait
            if core.claimServing(for: membership.loop.id) { return true }
            let waits = state.withLock { state in
                // The serving thread looks for waiters after it has released the claim.
                if core.pointee.servingLoop.load(ordering: .sequentiallyConsistent) == 0 { return false }
                state.wait(membership)
                core.pointee.hasWaiters.store(true, ordering: .sequentiallyConsistent)
                return true
            }
            if waits {
                membership.loop.suspendRegistrations(membership)
                // It may have released the claim before it could see the waiter.
                if core.pointee.servingLoop.load(ordering: .sequentiallyConsistent) == 0 { wakeWaiters() }
                return false
            }
        }
    }

    @inline(__always)
    static func endServing(_ core: SourceCorePointer) {
        core.pointee.servingDepth &-= 1
        if core.pointee.servingDepth > 0 { return }
        core.pointee.servingLoop.store(0, ordering: .sequentiallyConsistent)
        if core.pointee.hasWaiters.load(ordering: .sequentiallyConsistent) { wakeWaiters(core) }
    }

    @inline(never)
    private static func wakeWaiters(_ core: SourceCorePointer) { borrowed(core).takeUnretainedValue().wakeWaiters() }

    /// The source of a core, for a caller that keeps it alive.
    @inline(__always)
    static func borrowed(_ core: SourceCorePointer) -> Unmanaged<RunLoop.Source> { .fromOpaque(core.pointee.object) }

    /// What a recording says of a call of a watched source.
    static func calloutOfWatched(_ core: SourceCorePointer) -> CalloutItem {
        borrowed(core)._withUnsafeGuaranteedRef { $0.callout($0.recordedKind) }
    }

    @inline(never)
    private func wakeWaiters() {
        let waiting = state.withLock { state -> [SourceMembership] in
            core.pointee.hasWaiters.store(false, ordering: .sequentiallyConsistent)
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

extension RegistrationPointer {
    /// The membership that is registered. The caller knows that it is alive.
    fileprivate var owner: SourceMembership { Unmanaged<SourceMembership>.fromOpaque(pointee.owner).takeUnretainedValue() }
}
