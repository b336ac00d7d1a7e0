// Messages between threads: how a loop learns of them, and the part of step 9 that delivers them. Ports/Port+Sending.swift sends them.
//
// A mode has a list of the ports in it that have messages, under the loop's lock. A sender that finds a queue empty puts the port into
// the list of every mode that it is in, and wakes the loops; one that finds messages there tells nobody. So either a port with messages
// stands in the lists of all its modes, or its sender is on the way there, or another loop's thread is in its handler and will tell
// (`waitToServe`). A port leaves a list when its turn comes and it has nothing.

import Synchronization

extension RunLoop.Source {
    /// Puts the source into the lists of all its modes, and wakes their loops.
    func noteMessagesEverywhere() {
        // Most ports are in one loop: it is held by itself, and no list is made.
        let (loop, others) =
            state.withLockUnlessInherited { state -> (RunLoop?, [SourceMembership]?) in
                // A loop's lock inside the source's: never the other way round.
                state.forEachMembership { $0.loop.queueMessages(of: $0) }
                return (state.first?.loop, state.others)
            } ?? (nil, nil)
        loop?.notify(.messages)
        for other in others ?? [] { other.loop.notify(.messages) }
    }
}

extension RunLoop {
    fileprivate func queueMessages(of membership: SourceMembership) {
        if belongsToParentProcess { return }
        shared.withLock { shared in
            if membership.isDead { return }
            membership.modes.forEach { shared.lendMode($0) { LoopShared.queueMessages(of: membership, in: $0) } }
        }
    }

    /// Puts a source into the lists of its modes of this loop, and wakes the loop.
    func noteMessages(_ membership: SourceMembership) {
        queueMessages(of: membership)
        notify(.messages)
    }

    /// For step 5: carries out what other threads did, and says whether a port of the mode has messages.
    @inline(never)
    func findMessages(_ mode: ModeState) -> Bool {
        carryOutNews(mode)
        guard owned.pending.contains(.messages) else { return false }
        return shared.withLock { _ in mode.hasMessagesLocked }
    }

    /// Hands out what the ports of the mode have: one message when the run returns after a source, else what was there when the port's turn
    /// came. Ends with a stop. True when a message was handed out.
    @inline(never)
    func serveMessages(_ run: Activation, _ mode: ModeState) -> Bool { /* DOES CALLOUT */
        // What was removed is taken out of the lists by whoever removed it; what is removed from here on raises the count.
        let generation = removals.load(ordering: .acquiring)
        if hasNews { carryOutNews(mode) }
        owned.pending.remove(.messages)
        owned.owed.remove(.messages)
        var isHandled = false
        var isLeft = false
        owned.messageStep += 1
        let step = owned.messageStep
        var turns = -1
        while let membership = nextMessaged(mode, step, &turns) {  // ends: there are as many turns as there were ports at the beginning
            if serveMessages(of: membership, run, mode, generation) { isHandled = true }
            if membership.source.hasMessage { isLeft = true }
            if run.isStopRequested || isTerminating.load(ordering: .acquiring) || (isHandled && run.returnsAfterSource) {
                // Not for nothing: what is sent after the sleep waits for the next pass.
                isLeft = isLeft || shared.withLock { _ in mode.hasMessagesLocked }
                break
            }
        }
        if isLeft {
            owned.pending.insert(.messages)
            owned.owed.insert(.messages)
        }
        return isHandled
    }

    /// The next port of the mode that has messages and no turn in this step yet. It stays in the list, where a nested run finds it.
    private func nextMessaged(_ mode: ModeState, _ step: UInt64, _ turns: inout Int) -> SourceMembership? {
        shared.withLock { _ in
            if turns < 0 { turns = mode.messaged.count }
            if turns == 0 { return nil }
            for _ in 0..<mode.messaged.count {
                if mode.nextMessaged >= mode.messaged.count { mode.nextMessaged = 0 }
                let membership = mode.messaged[mode.nextMessaged]
                guard membership.source.hasMessage else {
                    mode.forgetMessagesLocked(of: membership, at: mode.nextMessaged)
                    continue
                }
                mode.nextMessaged += 1
                // A handler may have changed the order of the list. Later than `step`: it had its turn in a run that was nested in this step.
                if membership.messageStep >= step { continue }
                membership.messageStep = step
                turns -= 1
                return membership
            }
            return nil
        }
    }

    private func serveMessages(of membership: SourceMembership, _ run: Activation, _ mode: ModeState, _ generation: UInt64) -> Bool
    { /* DOES CALLOUT */
        let source = membership.source
        guard source.claimServing(for: id) || waitForMessages(of: membership) else { return false }
        membership.callsInProgress += 1
        var isHandled = false
        let last = source.lastMessage
        if hasNews { carryOutNews(mode) }
        while source.isValid && (removals.load(ordering: .acquiring) == generation || isMember(membership, of: mode)) {  // ends: at `last`
            guard callOutToMessagePort(source, upTo: last, onlyOne: run.returnsAfterSource) else { break }
            counters.sourcesHandled.increment()
            isHandled = true
            if run.returnsAfterSource || run.isStopRequested || isTerminating.load(ordering: .acquiring) { break }
        }
        if membership.source.servingDepth == 1 { source.returnMessages() }
        endCall(membership)
        source.endServing(on: membership)
        return isHandled
    }

    /// Another thread is in the handler. The port leaves this loop's lists until that one has returned, and only then is the loop entered
    /// among those that are told: the other way round it could be told in between.
    @inline(never)
    private func waitForMessages(of membership: SourceMembership) -> Bool {
        shared.withLock { shared in
            for mode in shared.modes where membership.queuedModes.remove(mode.index) { mode.forgetMessagesLocked(of: membership) }
        }
        guard membership.source.waitToServe(on: membership) else { return false }
        noteMessages(membership)
        return true
    }
}

extension LoopShared {
    /// Notes in the mode's list that a port may have messages.
    @inline(__always)
    static func queueMessages(of membership: SourceMembership, in mode: ModeState) {
        if membership.queuedModes.insert(mode.index) { mode.messaged.append(membership) }
        mode.countQueueingLocked()
    }
}

extension ModeState {
    /// Whether a port of the mode has messages. Under the loop's lock.
    @inline(__always)
    var hasMessagesLocked: Bool { !messaged.isEmpty && findMessageLocked() }

    @inline(never)
    private func findMessageLocked() -> Bool { messaged.contains { $0.source.hasMessage } }

    /// Takes a port out of the list. Under the loop's lock.
    func forgetMessagesLocked(of membership: SourceMembership) {
        if let index = messaged.firstIndex(where: { $0 === membership }) { forgetMessagesLocked(of: membership, at: index) }
    }

    func forgetMessagesLocked(of membership: SourceMembership, at index: Int) {
        membership.queuedModes.remove(self.index)
        messaged.swapAt(index, messaged.count - 1)
        messaged.removeLast()
    }
}
