// Messages between threads: how a loop learns of them. Ports/Port+Sending.swift sends them, RunLoop+Serving.swift delivers them.
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
        shared.withLock { _ in
            if membership.isDead { return }
            membership.modes.forEach { modeTable.reference($0)._withUnsafeGuaranteedRef { $0.noteMessagesLocked(of: membership) } }
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
        carryOutPendingChanges(mode)
        guard owned.pending.contains(.messages) else { return false }
        return shared.withLock { _ in mode.messaged.hasMessage }
    }
}

extension ModeState {
    /// Notes under the loop's lock that a port may have messages.
    @inline(__always)
    func noteMessagesLocked(of membership: SourceMembership) {
        messaged.add(membership, inMode: index)
        countQueueingLocked()
    }
}

/// Counts the steps that have handed out messages: a port has one turn in each. Owning thread only.
struct MessageSteps {
    private(set) var last: UInt64 = 0

    mutating func next() -> UInt64 {
        last += 1
        return last
    }
}
