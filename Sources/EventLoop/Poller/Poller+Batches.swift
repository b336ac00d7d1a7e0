// Taking what was collected, to serve it after the wait.

/// One collected source, as it was when the batch was taken.
struct ReadyEntry {
    let registration: RegistrationPointer
    let readiness: Readiness
    let epoch: UInt32
}

typealias ReadyBatch = ContiguousArray<ReadyEntry>

extension Poller {
    /// Takes the collected sources of the most urgent level; with `onlyOne`, the one of them that was served least recently. The
    /// others stay ready. `endBatch` must follow.
    ///
    /// Returns what `redeem` wants to know.
    func takeBatch(into batch: inout ReadyBatch, onlyOne: Bool) -> UInt64 {
        beginBatch()
        let level = mostUrgentLevel
        if onlyOne {
            if let chosen = leastRecentlyServed(level) {
                batch.append(take(chosen))
                ready.removeAll { $0 == chosen }
            }
            return lastServing
        }
        if unusualLevels == 0 {
            for index in 0..<ready.count { batch.append(take(ready[index])) }
            ready.removeAll()
            return lastServing
        }
        ready.removeAll { registration in
            if registration.pointee.watch.priority.level != level { return false }
            batch.append(take(registration))
            return true
        }
        return lastServing
    }

    /// What `entry` is still ready for; nil when its source has left, was changed, or was served by a nested run meanwhile. A source
    /// that is not nil here must be served now.
    ///
    /// `stale` gets the owner when the descriptor's number turns out to be another file's; it is watched no longer then, and must be
    /// failed by the caller.
    func redeem(_ entry: ReadyEntry, takenAt stamp: UInt64, stale: inout [UnsafeRawPointer]) -> Readiness? {
        let registration = entry.registration
        guard registration.pointee.isLive, registration.pointee.epoch == entry.epoch, registration.pointee.servedAt <= stamp else {
            return nil
        }
        lastServing += 1
        registration.pointee.servedAt = lastServing
        registration.pointee.servings &+= 1
        if Self.isTimeToCompare(registration.pointee.servings), !isStillItself(registration) {
            stale.append(registration.pointee.owner)
            disconnect(registration)
            // A duplicate keeps the old file in the kernel's set, under a number that leads to another file.
            rebuild()
            return nil
        }
        return entry.readiness
    }

    /// Whether to look what the number stands for: a system call, so ever more rarely, but never not at all.
    private static func isTimeToCompare(_ servings: UInt32) -> Bool {
        servings & (servings &- 1) == 0 || servings & 1023 == 0
    }

    private func isStillItself(_ registration: RegistrationPointer) -> Bool {
        FileIdentity(of: registration.pointee.watch.descriptor) == registration.pointee.watch.identity
    }

    /// Gives back entries of a batch whose serving has been interrupted by a nested run. What a level tells is asked of the kernel again.
    func returnToReady(_ entries: ArraySlice<ReadyEntry>) {
        for entry in entries {
            let registration = entry.registration
            guard registration.pointee.isLive, registration.pointee.epoch == entry.epoch, registration.pointee.watch.trigger != .level
            else { continue }
            if registration.pointee.pending.isEmpty { ready.append(registration) }
            registration.pointee.pending.formUnion(entry.readiness)
        }
    }

    private func take(_ registration: RegistrationPointer) -> ReadyEntry {
        defer { registration.pointee.pending = [] }
        return ReadyEntry(
            registration: registration, readiness: registration.pointee.pending, epoch: registration.pointee.epoch)
    }

    private var mostUrgentLevel: Int32 {
        if unusualLevels == 0 { return RunLoop.Priority.default.level }
        var level = EventBase.levels
        for index in 0..<ready.count { level = min(level, ready[index].pointee.watch.priority.level) }
        return level
    }

    /// Fair to those that stand behind an always-ready one in the kernel's list.
    private func leastRecentlyServed(_ level: Int32) -> RegistrationPointer? {
        var chosen: RegistrationPointer?
        for index in 0..<ready.count where unusualLevels == 0 || ready[index].pointee.watch.priority.level == level {
            if let best = chosen, best.pointee.servedAt <= ready[index].pointee.servedAt { continue }
            chosen = ready[index]
        }
        return chosen
    }
}
