// Serving what was collected, after the wait.

/// What one pass serves of the ready list. `endBatch` must follow `beginBatch`.
struct ReadyBatch {
    /// The level to serve; nil when all stand at one.
    fileprivate let level: Int32?
    /// Only one source is to be served.
    fileprivate let isSingle: Bool
    fileprivate var isOver = false
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
        batchesInProgress += 1
        return unusualPriorities == 0 ? ReadyBatch(level: nil, isSingle: onlyOne) : beginBatchOfLevel(onlyOne: onlyOne)
    }

    @inline(never)
    private func beginBatchOfLevel(onlyOne: Bool) -> ReadyBatch {
        let level = mostUrgentLevel
        bringForward(level)
        return ReadyBatch(level: level, isSingle: onlyOne)
    }

    /// The next source of the batch; it is not ready any more when this returns. Nil at the end of the batch.
    ///
    /// A source whose descriptor's number turns out to be another file's is passed over: it is watched no longer, and stands in `stale`.
    @inline(__always)
    func takeNext(in batch: inout ReadyBatch) -> ReadyEntry? {
        while let registration = chooseNext(in: &batch) {  // ends: each turn takes one out of the list
            let entry = ReadyEntry(registration: registration, readiness: registration.pointee.pending)
            registration.pointee.pending = []
            ready.remove(registration)
            lastServing &+= 1
            registration.pointee.servedAt = lastServing
            registration.pointee.servings &+= 1
            if !Self.isTimeToCompare(registration.pointee.servings) || isStillItself(registration) { return entry }
            letGoOfStranger(registration)
        }
        return nil
    }

    /// Ends a batch. With the outermost one, the registrations that were unregistered in a batch are freed.
    @inline(__always)
    func endBatch() {
        batchesInProgress -= 1
        if batchesInProgress == 0 && !retired.isEmpty { freeRetired() }
    }

    func freeRetired() {
        let dead = retired
        retired = []
        for (registration, _) in dead { EventRecord.free(registration) }
    }

    @inline(__always)
    private func chooseNext(in batch: inout ReadyBatch) -> RegistrationPointer? {
        if batch.isOver { return nil }
        if batch.isSingle {
            batch.isOver = true
            return leastRecentlyServed(batch.level)
        }
        guard let first = ready.first else { return nil }
        if let level = batch.level, first.pointee.watch.priority.level != level { return nil }
        return first
    }

    /// Whether to look what the number stands for: a system call, so ever more rarely, but never not at all.
    @inline(__always)
    private static func isTimeToCompare(_ servings: UInt32) -> Bool {
        servings & (servings &- 1) == 0 || servings & 1023 == 0
    }

    @inline(never)
    func isStillItself(_ registration: RegistrationPointer) -> Bool {
        FileIdentity(of: registration.pointee.watch.descriptor) == registration.pointee.watch.identity
    }

    @inline(never)
    private func letGoOfStranger(_ registration: RegistrationPointer) {
        stale.append(registration.pointee.owner)
        disconnect(registration)
        needsCare = true
        rebuildAfterReuse(of: registration.pointee.watch.descriptor)
    }

    private var mostUrgentLevel: Int32 {
        var level = RunLoop.Priority.low.level
        ready.forEach { level = min(level, $0.pointee.watch.priority.level) }
        return level
    }

    /// Moves the sources of a level before all others, in their order.
    private func bringForward(_ level: Int32) {
        var urgent = ReadyList()
        var others = ReadyList()
        ready.forEach { registration in
            if registration.pointee.watch.priority.level == level { urgent.append(registration) } else { others.append(registration) }
        }
        urgent.append(others)
        ready = urgent
    }

    /// Fair to those that stand behind an always-ready one in the kernel's list.
    @inline(never)
    private func leastRecentlyServed(_ level: Int32?) -> RegistrationPointer? {
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
