// Serving ready sources of every kind. The owner takes a batch. It claims each source, checks that it is still in the mode, so that a removal that
// returned before the claim is seen (Tests/Models/removal.pml), calls it, and releases the claim.

internal import CPlatform
import Synchronization

extension RunLoop {
    // MARK: Descriptors, and whatever else the kernel watches (step 9)
    @inline(never) func serveDescriptors(_ frame: RunFrame, _ mode: ModeState, _ poller: Poller) -> Bool { /* DOES CALLOUT */
        let generation = removals.load(ordering: .acquiring)
        // Carries out earlier removals, so that their sources are unregistered. A later removal changes the generation.
        if hasWork(.forSteps) { carryOutPendingChanges(mode) }
        var batch = poller.beginBatch(onlyOne: frame.owned.returnsAfterSource)
        frame.owned.lostItsBatch = false
        var isHandled = false
        // Ends: each iteration takes one off the ready list, and what a handler adds is left for the next batch.
        while !frame.owned.lostItsBatch, let entry = poller.takeNext(in: &batch) {
            // The owner and its source are alive while the registration is: the poller releases both after the batch.
            let registration = entry.registration
            let core = registration.isOwnAndOnly ? registration.core : registration.source
            let isServed = serve(
                core, registration.owner, entry.readiness, mode, isToServe: isToServe(registration, mode, since: generation))
            guard isServed else { continue }
            isHandled = true
            if core.pointee.traits.contains(.mayHaveMore) { serveRest(of: registration, core, entry.readiness, frame, mode, generation) }
        }
        // Before `endBatch`, which may release a stale source that a handler has ended.
        if !poller.state.stale.isEmpty {
            let stale = poller.state.stale
            poller.state.stale = []
            failStale(stale)
        }
        poller.endBatch()
        return isHandled
    }

    /// So many connections a pass accepts at one listener, because others in the mode wait meanwhile.
    private static var mostConnections: Int { 16 }

    /// Serves a listener again, until nobody waits at it. A run that is to end begins no more, and a nested run has taken the rest.
    @inline(never) private func serveRest(
        of registration: RegistrationPointer, _ core: SourceCorePointer, _ readiness: Readiness, _ frame: RunFrame, _ mode: ModeState,
        _ generation: UInt64
    ) { /* DOES CALLOUT */
        for _ in 1..<Self.mostConnections {
            if frame.owned.returnsAfterSource || frame.owned.lostItsBatch || runs.isStopRequested(frame) { return }
            let isServed = serve(
                core, registration.owner, readiness, mode, isToServe: isToServe(registration, mode, since: generation))
            if !isServed { return }
        }
    }

    /// Whether the source of a registration, which the loop has claimed, is still in the mode. If it is, its handler is called.
    @inline(__always) private func isToServe(_ registration: RegistrationPointer, _ mode: ModeState, since generation: UInt64) -> Bool {
        guard removals.load(ordering: .acquiring) == generation || isMember(registration.owner, of: mode) else { return false }
        if !registration.isOwnAndOnly { countServing(registration) }
        return true
    }

    @inline(never) private func countServing(_ registration: RegistrationPointer) {
        if registration.pointee.isInSeveralBases { countServing(registration.owner) }
    }

    /// `isToServe` is asked after the claim.
    @inline(__always) func serve(
        _ core: SourceCorePointer, _ membership: @autoclosure () -> SourceMembership, _ readiness: Readiness, _ mode: ModeState,
        isToServe: @autoclosure () -> Bool
    ) -> Bool { /* DOES CALLOUT */
        guard core.pointee.rundown.isValid else {
            // Another thread is invalidating it. Until its change is queued, the ready descriptor would keep the loop from sleeping.
            suspendRegistrations(membership())
            return false
        }
        guard core.claimServing(for: id) || waitToServe(membership(), readiness, mode) else { return false }
        guard isToServe() else {
            Source.endServing(core)
            return false
        }
        let isHandled = call(core) {
            let span = openSpan(mode, Source.calloutOfWatched(core))
            let isCalled = callOutToWatchedSource(core, readiness)
            closeSpan(span, isCalled: isCalled)
            return isCalled
        }
        if isHandled {
            counters.sourcesHandled.increment()
        } else {
            // Rearms a one-shot that had nothing to do.
            updateRegistrations(membership())
        }
        return isHandled
    }

    @inline(never) private func waitToServe(_ membership: SourceMembership, _ readiness: Readiness, _ mode: ModeState) -> Bool {
        let registration = membership.registration(inMode: mode.index)
        // Before the wait, which may be over before this returns.
        if let registration, registration.pointee.watch.isOfReportsThatVanish { registration.pointee.kept = readiness }
        guard membership.source.waitToServe(on: membership) else { return false }
        if let registration { registration.pointee.kept = [] }
        return true
    }

    // MARK: Custom sources (step 4)
    /// Performs the custom sources that were signaled before the pass got here; one, if the run returns after a source. True if one was.
    @inline(__always) func performSignaled(_ frame: RunFrame, _ mode: ModeState) -> Bool { /* DOES CALLOUT */
        let generation = removals.load(ordering: .acquiring)
        owned.pending.subtract(.signals)
        _ = shared.lockValue()
        let single = mode.locked.signaled.takeSingle(inMode: mode.index)
        shared.unlock()
        if hasPendingWork || single == nil { return performSignals(beginningWith: single, frame, mode, generation) }
        let isHandled = Borrowed(single.unsafelyUnwrapped, keptBy: .caller).use { perform($0, mode, since: generation) }
        // May be the last reference, and a deinit is a callout.
        single.unsafelyUnwrapped.release()
        return isHandled
    }

    /// The same if there are several, or none, or if there is something to do before. `single` was taken, and is released here.
    @inline(never) private func performSignals(
        beginningWith single: Unmanaged<SourceMembership>?, _ frame: RunFrame, _ mode: ModeState, _ generation: UInt64
    ) -> Bool { /* DOES CALLOUT */
        if let single {
            frame.owned.signals.fill { $0.append(single.takeRetainedValue()) }
        } else {
            shared.withLock { _ in frame.owned.signals.fill { mode.locked.signaled.takeAll(into: &$0, inMode: mode.index) } }
        }
        guard frame.owned.signals.hasRest else { return false }
        if hasPendingWork { carryOutPendingChanges(mode) }
        var isHandled = false
        while frame.owned.signals.hasRest {  // ends: the batch is fixed, and each iteration takes one
            guard frame.owned.signals.takeNext().use({ perform($0, mode, since: generation) }) else { continue }
            isHandled = true
            if frame.owned.returnsAfterSource { break }
        }
        if frame.owned.signals.hasRest { requeue(frame.owned.signals.rest, in: mode) }
        while frame.owned.signals.popLast() != nil {}  // ends: each iteration removes one
        return isHandled
    }

    /// Whether a source that an earlier one of the walk has taken out of its last mode is in the mode again, by another membership.
    @inline(never) private func isBack(_ source: Source, in mode: ModeState) -> Bool {
        source.existingMembership(of: self).map { isMember($0, of: mode) } ?? false
    }

    @inline(__always)
    private func perform(_ membership: SourceMembership, _ mode: ModeState, since generation: UInt64) -> Bool { /* DOES CALLOUT */
        Borrowed(membership.custom, keptBy: .membership).use { source -> Bool in
            guard source.isSignaled, source.beginServing(on: membership, id) else { return false }
            // Cleared before the call, so that a signal given during it is a new one; in several loops the first one gets it.
            guard isStillMember(membership, of: mode, since: generation) || isBack(source, in: mode), source.signalWord.take() else {
                Source.endServing(source.core)
                return false
            }
            counters.sourcesHandled.increment()
            return call(source.core) {
                let span = openSpan(mode, source.callout(.customSource, flow: FlowKey.source(source)))
                callOutToCustomSource(source)
                closeSpan(span)
                return true
            }
        }
    }

    /// Gives sources that the walk did not reach back to the mode's list.
    func requeue(_ rest: ArraySlice<SourceMembership>, in mode: ModeState) {
        shared.withLock { _ in
            for membership in rest
            where !membership.locked.isDead && membership.locked.modes.contains(mode.index) && membership.custom.isSignaled {
                mode.enqueueSignalLocked(of: membership)
            }
        }
        owned.pending.formUnion(.signals)
    }

    // MARK: Ports (step 9)
    /// Delivers what the ports of the mode have (rules 16.3 and 16.5). True if a message was delivered.
    @inline(never) func serveMessages(_ frame: RunFrame, _ mode: ModeState) -> Bool { /* DOES CALLOUT */
        // A removal before this takes the port out of the list; a later one changes the generation.
        let generation = removals.load(ordering: .acquiring)
        if hasPendingWork { carryOutPendingChanges(mode) }
        owned.pending.subtract(.messages)
        var isHandled = false
        var isLeft = false
        owned.messageSteps += 1
        let step = owned.messageSteps
        var turns: Int?
        // Ends: there are as many iterations as there were ports at the beginning.
        while let membership = shared.withLock({ _ in mode.locked.messaged.takeTurn(inStep: step, mode: mode.index, &turns) }) {
            if serveMessages(of: membership, frame, mode, generation) { isHandled = true }
            if membership.source.hasMessage { isLeft = true }
            if runs.isStopRequested(frame) || (isHandled && frame.owned.returnsAfterSource) {
                // Messages that are left keep the loop awake.
                isLeft = isLeft || shared.withLock { _ in mode.locked.messaged.hasMessage }
                break
            }
        }
        if isLeft { owned.pending.formUnion(.messages) }
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
                let span = openSpan(mode, source.callout(.port, flow: FlowKey.source(source)))
                let isCalled = callOutToPort(source, upTo: last, onlyOne: frame.owned.returnsAfterSource)
                closeSpan(span, isCalled: isCalled)
                guard isCalled else { break }
                counters.sourcesHandled.increment()
                isHandled = true
                if frame.owned.returnsAfterSource || runs.isStopRequested(frame) { break }
            }
            if source.core.pointee.servingDepth == 1 { source.returnMessages() }
            return isHandled
        }
    }

    /// Another thread is in the handler. The port leaves this loop's lists until that call has returned, and only then does the loop join the
    /// waiters: the other way round it could be notified in between.
    @inline(never) private func waitForMessages(of membership: SourceMembership) -> Bool {
        shared.withLock { shared in shared.modes.forEach { $0.locked.messaged.remove(membership, inMode: $0.index) } }
        guard membership.source.waitToServe(on: membership) else { return false }
        enqueueMessagesAndWake(membership)
        return true
    }

    // MARK: Every kind
    /// Whether a source is in the mode, for one that was in it at `generation`.
    @inline(__always) private func isStillMember(_ membership: SourceMembership, of mode: ModeState, since generation: UInt64) -> Bool {
        removals.load(ordering: .acquiring) == generation || isMember(membership, of: mode)
    }

    func isMember(_ membership: SourceMembership, of mode: ModeState) -> Bool {
        shared.withLock { _ in !membership.locked.isDead && membership.locked.modes.contains(mode.index) }
    }

    /// Calls the handler of a source that this loop has claimed. Then ends the memberships that have died, and releases the claim.
    @inline(__always) func call(_ core: SourceCorePointer, _ body: () -> Bool) -> Bool { /* DOES CALLOUT */
        let isHandled = body()
        if core.pointee.hasEndingUses { endUsesAndServing(core) } else { Source.endServing(core) }
        return isHandled
    }

    /// Whether this thread is in the handler of a source. Owning thread only: the claim of another loop's thread is never this loop's.
    func isServing(_ source: Source) -> Bool { source.core.pointee.servingLoop.load(ordering: .relaxed) == id }

    /// A membership of a source that is being served has died.
    func endUseAfterCalls(of source: Source) {
        source.core.pointee.hasEndingUses = true
        owned.endingUses.append(source)
    }

    /// The outermost call of a source's handler has returned. The batch keeps the source until the claim has ended, too.
    @inline(never) private func endUsesAndServing(_ core: SourceCorePointer) { /* DOES CALLOUT */
        // A nested call leaves it to the outermost one. Ends: only a callout that adds the source and removes it brings another turn.
        while core.pointee.hasEndingUses && core.pointee.servingDepth == 1 {
            core.pointee.hasEndingUses = false
            let source = Source.borrowed(core).object
            for index in owned.endingUses.indices.reversed() where owned.endingUses[index] === source {
                // In no order, because each source has its own uses.
                owned.endingUses.swapAt(index, owned.endingUses.count - 1)
                owned.endingUses.removeLast()
                endUse(of: source)
            }
            withExtendedLifetime(source) { finishItems() }
        }
        // If another thread ends the last use, it releases the handler by now. To ThreadSanitizer, a change of a member is one of the whole core.
        cplatform_begin_unrecorded_accesses()
        Source.endServing(core)
        cplatform_end_unrecorded_accesses()
    }
}

// MARK: - A source in several loops
extension RunLoop.Source {
    /// Whether this loop's thread may call the handler now. False when another thread is in it: then the source is silent in this loop until that
    /// call has returned. Only the loser of a claim takes the lock.
    @inline(__always) func beginServing(on membership: SourceMembership, _ id: UInt64) -> Bool {
        core.claimServing(for: id) || waitToServe(on: membership)
    }

    @inline(never) fileprivate func waitToServe(on membership: SourceMembership) -> Bool {
        while true {  // ends: with a claim, or as one of those who wait
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

    @inline(__always) static func endServing(_ core: SourceCorePointer) {
        core.pointee.servingDepth &-= 1
        if core.pointee.servingDepth > 0 { return }
        core.pointee.servingLoop.store(0, ordering: .sequentiallyConsistent)
        if core.pointee.hasWaiters.load(ordering: .sequentiallyConsistent) { wakeWaiters(core) }
    }

    @inline(never) private static func wakeWaiters(_ core: SourceCorePointer) { borrowed(core).object.wakeWaiters() }

    /// The source of a core, for a caller that keeps it alive.
    @inline(__always)
    static func borrowed(_ core: SourceCorePointer) -> Borrowed<RunLoop.Source> { Borrowed(at: core.pointee.object, keptBy: .use) }
    /// What a recording says of a call of a watched source.
    static func calloutOfWatched(_ core: SourceCorePointer) -> CalloutItem { borrowed(core).use { $0.callout($0.recordedKind) } }

    @inline(never) private func wakeWaiters() { /* DOES CALLOUT */
        let waiting = state.withLock { state -> [SourceMembership] in
            core.pointee.hasWaiters.store(false, ordering: .sequentiallyConsistent)
            return state.takeWaiting()
        }
        SourceMembership.ownLoopLast(waiting) { waiting in
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
    fileprivate var owner: SourceMembership { Borrowed(at: pointee.owner, keptBy: .record).object }
}
