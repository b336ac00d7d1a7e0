// How a loop learns of messages between threads. Ports/Port+Sending.swift sends them, Serving.swift delivers them. If another loop's thread is in the
// handler, that thread notifies (`waitToServe`). A port leaves a list when its turn comes and it has no messages.

extension RunLoop.Source {
    /// Puts the source into the lists of all its modes, and wakes their loops.
    func enqueueMessagesEverywhere() {
        let posted = RecordedPosts.present
        if posted != 0 { recordPost(at: posted) }
        // Most ports are in one loop: it is held by itself, and no list is made.
        let (loop, several) =
            state.withLockIfOwn { state -> (RunLoop?, [SourceMembership]?) in
                state.forEachMembership { $0.loop.enqueueMessages(of: $0) }
                return (state.first?.loop, state.several)
            } ?? (nil, nil)
        if let several { for membership in several { membership.loop.notify(.messages) } } else { loop?.notify(.messages) }
    }
}

extension RunLoop {
    fileprivate func enqueueMessages(of membership: SourceMembership) {
        shared.withLockIfOwn { _ in
            if membership.locked.isDead { return }
            membership.locked.modes.forEach { modeTable.reference($0).use { $0.enqueueMessagesLocked(of: membership) } }
        }
    }

    func enqueueMessagesAndWake(_ membership: SourceMembership) {
        enqueueMessages(of: membership)
        notify(.messages)
    }

    /// For step 5: carries out what other threads did, and says whether a port of the mode has messages.
    @inline(never) func findMessages(_ mode: ModeState) -> Bool { /* DOES CALLOUT */
        carryOutPendingChanges(mode)
        guard owned.pending.contains(.messages) else { return false }
        return shared.withLock { _ in mode.locked.messaged.hasMessage }
    }
}

extension ModeState {
    @inline(__always) func enqueueMessagesLocked(of membership: SourceMembership) {
        locked.messaged.add(membership, inMode: index)
        countQueueingLocked()
    }
}
