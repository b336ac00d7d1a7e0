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

extension Poller {
    /// Begins to serve the collected sources of the most urgent level; with `onlyOne`, the least recently served of them. The others stay ready.
    @inline(__always) func beginBatch(onlyOne: Bool) -> ReadyBatch {
        state.batchesInProgress += 1
        if state.unusualPriorities != 0 { return beginBatchOfLevel(onlyOne: onlyOne) }
        return ReadyBatch(level: nil, isSingle: onlyOne, isWhole: !onlyOne, start: state.lastServing)
    }

    @inline(never) private func beginBatchOfLevel(onlyOne: Bool) -> ReadyBatch {
        // A run that serves one source looks for that one: it would sort the list for each of them.
        if !onlyOne { sortReady { UInt64(urgency(of: $0)) } }
        let level = ready.first?.pointee.watch.priority.level
        return ReadyBatch(level: level, isSingle: onlyOne, isWhole: false, start: state.lastServing)
    }

    /// The next source of the batch, not ready any more. Nil at the end: what a handler of the batch makes ready (see `connect`) waits for the next.
    /// A source whose descriptor's number turns out to be another file's is passed over: it is watched no longer, and stands in `stale`.
    @inline(__always) func takeNext(in batch: inout ReadyBatch) -> (registration: RegistrationPointer, readiness: Readiness)? {
        while let registration = batch.isWhole ? ready.takeFirst() : takeChosen(in: &batch) {  // ends: each iteration takes one out
            if age(of: registration) < state.lastServing &- batch.start {
                // All that are behind it in the list became ready in the batch, too.
                leaveForNextBatch(registration)
                return nil
            }
            let readiness = registration.pointee.pending
            registration.pointee.pending = []
            state.lastServing &+= 1
            registration.pointee.servedAt = state.lastServing
            if !registration.pointee.comparison.countDown() || checkFile(registration) { return (registration, readiness) }
        }
        return nil
    }

    @inline(never) private func leaveForNextBatch(_ registration: RegistrationPointer) { ready.append(registration) }

    /// Ends a batch. With the outermost one, the registrations that were unregistered in a batch are freed.
    @inline(__always) func endBatch() {
        state.batchesInProgress -= 1
        if state.batchesInProgress == 0 && !state.retired.isEmpty { freeRetired() }
    }

    func freeRetired() {
        // One by one, because the release of an owner is a callout. The array keeps its memory: a server retires one in each pass.
        while let (registration, owner) = state.retired.popLast() {  // ends: each iteration removes one
            registration.giveBack()
            withExtendedLifetime(owner) {}
        }
        if state.retired.capacity > 256 { state.retired = [] }
    }

    @inline(__always) private func takeChosen(in batch: inout ReadyBatch) -> RegistrationPointer? {
        if !batch.isSingle { return takeOfLevel(batch.level) }
        if batch.isOver { return nil }
        batch.isOver = true
        guard let chosen = nextSingle(batch.level) else { return nil }
        ready.remove(chosen)
        return chosen
    }

    /// The sources of the level are the first of the list.
    @inline(never) private func takeOfLevel(_ level: Int32?) -> RegistrationPointer? {
        ready.first?.pointee.watch.priority.level == level ? ready.takeFirst() : nil
    }

    /// Checks whose the number is and whether an error alone is ready: two system calls, with exponentially decreasing frequency, but never zero.
    @inline(never) private func checkFile(_ registration: RegistrationPointer) -> Bool {
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

    /// The least recently served source of the most urgent level.
    @inline(never) func nextOfLevels() -> RegistrationPointer? {
        var chosen: RegistrationPointer?
        var highest: UInt64 = 0
        ready.forEach { registration in
            let rank = UInt64(urgency(of: registration)) << 32 | UInt64(age(of: registration))
            if chosen != nil && rank <= highest { return }
            (chosen, highest) = (registration, rank)
        }
        return chosen
    }

    private func urgency(of registration: RegistrationPointer) -> UInt32 {
        UInt32(RunLoop.Priority.low.level - registration.pointee.watch.priority.level)
    }

    /// How many sources were served after this one. By difference, so that the count may wrap around.
    @inline(__always) func age(of registration: RegistrationPointer) -> UInt32 { state.lastServing &- registration.pointee.servedAt }

    /// Sorts the ready list, highest rank first, and leaves those of one rank in their order. The kernel's list usually is in order.
    @inline(__always) func sortReady(byRank rank: (RegistrationPointer) -> UInt64) {
        var isInOrder = true
        var last = UInt64.max
        ready.forEach { registration in
            let next = rank(registration)
            if next > last { isInOrder = false }
            last = next
        }
        if !isInOrder { ready.sort { rank($0) > rank($1) } }
    }
}
