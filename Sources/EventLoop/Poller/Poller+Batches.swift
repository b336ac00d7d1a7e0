/// What one pass serves of the ready list. `endBatch` must follow `beginBatch`.
struct ReadyBatch {
    /// The level to serve; nil when all stand at one.
    fileprivate let level: Int32?
    fileprivate let isSingle: Bool
    fileprivate var isOver = false
    /// All ready sources are served, in the order of the list.
    fileprivate let isWhole: Bool
    /// The count of servings before the first of the batch.
    fileprivate let start: UInt32
}

/// A collected source that is to be served now.
struct ReadyEntry {
    let registration: RegistrationPointer
    let readiness: Readiness
}

extension Poller {
    /// Begins to serve the collected sources of the most urgent level; with `onlyOne`, the one of them that was served least recently.
    /// The others stay ready.
    @inline(__always)
    func beginBatch(onlyOne: Bool) -> ReadyBatch {
        state.batchesInProgress += 1
        if state.unusualPriorities != 0 { return beginBatchOfLevel(onlyOne: onlyOne) }
        return ReadyBatch(level: nil, isSingle: onlyOne, isWhole: !onlyOne, start: state.lastServing)
    }

    @inline(never)
    private func beginBatchOfLevel(onlyOne: Bool) -> ReadyBatch {
        let level = mostUrgentLevel
        bringForward(level)
        return ReadyBatch(level: level, isSingle: onlyOne, isWhole: false, start: state.lastServing)
    }

    /// The next source of the batch; it is not ready any more when this returns. Nil at the end of the batch: what a handler of the batch
    /// makes ready (see `connect`) waits for the next one.
    ///
    /// A source whose descriptor's number turns out to be another file's is passed over: it is watched no longer, and stands in `stale`.
    @inline(__always)
    func takeNext(in batch: inout ReadyBatch) -> ReadyEntry? {
        while let registration = batch.isWhole ? ready.takeFirst() : takeChosen(in: &batch) {  // ends: each iteration takes one out
            // By difference, so that the count may wrap around.
            let age = state.lastServing &- registration.pointee.servedAt
            if age < state.lastServing &- batch.start { return leaveForNextBatch(registration) }
            let entry = ReadyEntry(registration: registration, readiness: registration.pointee.pending)
            registration.pointee.pending = []
            state.lastServing &+= 1
            registration.pointee.servedAt = state.lastServing
            if !registration.pointee.comparison.countDown() || checkFile(registration) { return entry }
        }
        return nil
    }

    /// All that are behind it in the list became ready in the batch, too.
    @inline(never)
    private func leaveForNextBatch(_ registration: RegistrationPointer) -> ReadyEntry? {
        ready.append(registration)
        return nil
    }

    /// Ends a batch. With the outermost one, the registrations that were unregistered in a batch are freed.
    @inline(__always)
    func endBatch() {
        state.batchesInProgress -= 1
        if state.batchesInProgress == 0 && !state.retired.isEmpty { freeRetired() }
    }

    func freeRetired() {
        let dead = state.retired
        state.retired = []
        for (registration, _) in dead { registration.giveBack() }
    }

    @inline(__always)
    private func takeChosen(in batch: inout ReadyBatch) -> RegistrationPointer? {
        if !batch.isSingle { return takeOfLevel(batch.level) }
        if batch.isOver { return nil }
        batch.isOver = true
        guard let chosen = nextSingle(batch.level) else { return nil }
        ready.remove(chosen)
        return chosen
    }

    /// The sources of the level are the first of the list.
    @inline(never)
    private func takeOfLevel(_ level: Int32?) -> RegistrationPointer? {
        ready.first?.pointee.watch.priority.level == level ? ready.takeFirst() : nil
    }

    /// Looks to which file the number belongs, and whether an error alone makes it ready: two system calls, so with exponentially decreasing
    /// frequency, but never zero.
    @inline(never)
    private func checkFile(_ registration: RegistrationPointer) -> Bool {
        registration.pointee.comparison.restart()
        if isStillItself(registration) {
            if registration.pointee.comparison.isPastFirstServings { muteErrorAlone(registration) }
            return true
        }
        state.stale.append(registration.pointee.owner)
        disconnect(registration)
        state.isWaitSpecial = true
        rebuildAfterReuse(of: registration.pointee.watch.descriptor)
        return false
    }

    func isStillItself(_ registration: RegistrationPointer) -> Bool {
        FileIdentity(of: registration.pointee.watch.descriptor) == registration.pointee.watch.identity
    }

    private var mostUrgentLevel: Int32 {
        var level = RunLoop.Priority.low.level
        ready.forEach { level = min(level, $0.pointee.watch.priority.level) }
        return level
    }

    /// Moves the sources of a level before all others, in their order.
    private func bringForward(_ level: Int32) {
        var sorted = ReadyList()
        ready.forEach { if $0.pointee.watch.priority.level == level { sorted.append($0) } }
        if sorted.isEmpty { return }
        ready.forEach { if $0.pointee.watch.priority.level != level { sorted.append($0) } }
        ready = sorted
    }

    func leastRecentlyServed(_ level: Int32?) -> RegistrationPointer? {
        var chosen: RegistrationPointer?
        ready.forEach { registration in
            if let level, registration.pointee.watch.priority.level != level { return }
            // By difference, so that the count may wrap around.
            if let best = chosen, Int32(bitPattern: best.pointee.servedAt &- registration.pointee.servedAt) <= 0 { return }
            chosen = registration
        }
        return chosen
    }
}
