// The orderly end of a loop whose thread was stopped: what it still accepts, and for how long.

/// What delays the end of a loop whose thread is stopping. Under the loop's lock.
struct Drain: Sendable {
    var holds = 0
    var isRequested = false
    /// The `drain` closure has returned: the end of the last hold is the end of the draining.
    var isWaitingForHolds = false
}

extension LoopShared {
    /// Ends every run in progress, and accepts no more performs and blocks. False if the thread does not drain, or there are holds that count.
    fileprivate mutating func endDrainingLocked(_ runs: borrowing RunStack, despiteHolds: Bool = false) -> Bool {
        guard phase == .open, despiteHolds || (drain.isWaitingForHolds && drain.holds == 0) else { return false }
        phase = .closing
        runs.terminate()
        return true
    }
}

extension RunLoop {
    /// Ends every run in progress, however deep, after the pass in progress. From then on performs and blocks are refused, unless the thread drains
    /// first. Jobs cannot be refused: those that come too late for the last batch run after the loop's end. Thread-safe.
    func requestEnd() {
        shared.withLockIfOwn { shared in
            // Only once: the thread resumes its runs before it drains, and before its last batch.
            guard shared.phase == .open, !shared.drain.isRequested else { return }
            shared.drain.isRequested = true
            if shared.drain.holds == 0 { shared.phase = .closing }
            runs.terminate()
        }
        wakeUp()
    }

    /// From now on the release of the last hold ends the draining. If there is none, this call ends it. Owning thread only.
    func waitForHolds() {
        shared.withLock { shared in
            shared.drain.isWaitingForHolds = true
            _ = shared.endDrainingLocked(runs)
        }
    }

    /// Ends the draining although there are holds. Returns their number. Owning thread only.
    func abandonHolds() -> Int {
        shared.withLock { shared in
            _ = shared.endDrainingLocked(runs, despiteHolds: true)
            return shared.drain.holds
        }
    }

    /// Takes a hold, as the thread itself does for its `drain` closure. False if the loop refuses work already. Thread-safe.
    func takeHold() -> Bool {
        shared.withLockIfOwn { shared -> Bool in
            if shared.phase == .open { shared.drain.holds += 1 }
            return shared.phase == .open
        } ?? false
    }

    func releaseHold() {
        let isLast = shared.withLockIfOwn { shared -> Bool in
            shared.drain.holds -= 1
            return shared.endDrainingLocked(runs)
        }
        if isLast == true { wakeUp() }
    }

    var acceptsWork: Bool { shared.withLock { $0.phase == .open } }

    /// The number of holds if the thread drains, otherwise nil. Thread-safe.
    var holdsThatDelayTheEnd: Int? {
        shared.withLockIfOwn { $0.drain.isWaitingForHolds && $0.phase == .open ? $0.drain.holds : nil } ?? nil
    }

    /// Performs everything that was accepted and not performed, for whatever modes, in the order it was queued. Owning thread only.
    func performLastBatch() { /* DOES CALLOUT */
        assert(runs.depth == 0, "the last batch comes after the last run")
        runs.resume()  // closures of this batch and the teardown may run the loop
        var batch = shared.withLock { $0.modes.takeAllClosuresLocked() }
        batch.sort { $0.sequence < $1.sequence }
        // In the mode's own queue, before any callout: a run nested in one performs the rest; if one ends the thread, the loop's end drops the rest.
        for item in batch { modeTable[0].performing.append(item) }
        batch = []
        applyChanges()
        finishItems()
        while !modeTable[0].performing.isEmpty {  // ends: nothing is accepted any more
            perform(modeTable[0].performing.popFirst(), modeTable[0])
        }
        performJobs(in: modeTable[0])
    }

    /// Makes the default mode's base ahead of the first run, so that a shortage of descriptors shows while the thread can still report it.
    func prepareDefaultMode() throws(SourceError) {
        let poller = try Poller()
        try poller.watch(waker.channel)
        modeTable[0].owned.poller = poller
        Reserve.complete()
    }
}
