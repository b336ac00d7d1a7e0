// Messages between threads: how a loop learns of them. Ports/Port+Sending.swift sends them, RunLoop+Serving.swift delivers them.
//
// A mode has a list of the ports in it that have messages, under the loop's lock. A sender that finds a queue empty puts the port into
// the list of every mode that it is in, and wakes the loops; one that finds messages there notifies nobody. So either a port with messages
// is in the lists of all its modes, or its sender is about to put it there, or another loop's thread is in its handler and will
// notify (`waitToServe`). A port leaves a list when its turn comes and it has nothing.

import Synchronization

extension RunLoop.Source {
    /// Puts the source into the lists of all its modes, and wakes their loops.
    func enqueueMessagesEverywhere() {
        let posted = RecordedPosts.present
        if posted != 0 { recordPost(FlowKey.messages(self), at: posted) }
        // Most ports are in one loop: it is held by itself, and no list is made.
        let (loop, others) =
            state.withLockUnlessInherited { state -> (RunLoop?, [SourceMembership]?) in
                // A loop's lock inside the source's: never the other way round.
                state.forEachMembership { $0.loop.enqueueMessages(of: $0) }
                return (state.first?.loop, state.others)
            } ?? (nil, nil)
        loop?.notify(.messages)
        for other in others ?? [] { other.loop.notify(.messages) }
    }
}

extension RunLoop {
    fileprivate func enqueueMessages(of membership: SourceMembership) {
        if belongsToParentProcess { return }
        shared.withLock { _ in
            if membership.isDead { return }
            membership.modes.forEach { modeTable.reference($0)._withUnsafeGuaranteedRef { $0.enqueueMessagesLocked(of: membership) } }
        }
    }

    /// Puts a source into the lists of its modes of this loop, and wakes the loop.
    func enqueueMessagesAndWake(_ membership: SourceMembership) {
        enqueueMessages(of: membership)
        notify(.messages)
    }

    /// For step 5: carries out what other threads did, and says whether a port of the mode has messages.
    @inline(never)
    func findMessages(_ mode: ModeState) -> Bool {
        carryOutPendingChanges(mode)
        guard owned.pending.contains(.messages) else { return false }
        return shared.withLock { _ in mode.messaged.hasMessage }
    }
}

extension ModeState {
    /// Notes under the loop's lock that a port may have messages.
    @inline(__always)
    func enqueueMessagesLocked(of membership: SourceMembership) {
        messaged.add(membership, inMode: index)
        countQueueingLocked()
    }
}

/// Counts the steps that deliver messages: a port has one turn in each. Owning thread only.
struct MessageSteps {
    private(set) var last: UInt64 = 0

    mutating func next() -> UInt64 {
        last += 1
        return last
    }
}
