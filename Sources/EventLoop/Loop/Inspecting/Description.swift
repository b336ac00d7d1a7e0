import Synchronization

extension RunLoop: CustomDebugStringConvertible {
    /// Every mode with its sources, timers (and when they fire next), observers and queued blocks, each with its label and the place it was
    /// made at. Thread-safe. O(items).
    public var debugDescription: String {
        let name = "RunLoop \(id)\(isMainLoop ? " (main)" : "")"
        let present = time.now
        let body = shared.withLockIfOwn { shared in shared.modes.all.map { describe($0, shared, present) }.joined() }
        guard let body else { return name + ", of the parent process" }
        let state =
            !isValid
            ? "ended"
            : currentMode.map { "running in \"\($0)\"" + (runDepth > 1 ? ", \(runDepth) deep" : "") + (isWaiting ? ", waiting" : "") }
                ?? "not running"
        return "\(name), \(state)\n\(body)"
    }

    private func describe(_ mode: ModeState, _ shared: borrowing LoopShared, _ present: Instant) -> String {
        var lines: [String] = []
        for membership in shared.sources.filter({ $0.locked.modes.contains(mode.index) }) {
            let source = membership.source
            let signaled = (source as? CustomSource)?.isSignaled == true ? ", signaled" : ""
            lines.append("    \(item(source.typeDescription + signaled, source.label, source.site))\n")
        }
        let timers = shared.timers.filter { $0.isInMode(mode.index) }
            .sorted { $0.date.load(ordering: .relaxed) < $1.date.load(ordering: .relaxed) }
        for timer in timers { lines.append("    \(item("timer, " + when(timer, present), timer.label, timer.site))\n") }
        for observer in mode.locked.observers {
            lines.append("    \(item("observer of \(observer.activities)", observer.label, observer.site))\n")
        }
        let isCommon = mode.isCommon.load(ordering: .acquiring)
        let queuedBlocks = mode.countLocked(.block) + (isCommon ? common.countLocked(.block) : 0)
        let queuedPerforms = mode.countLocked(.perform) + (isCommon ? common.countLocked(.perform) : 0)
        if queuedBlocks > 0 { lines.append("    queued blocks: \(queuedBlocks)\n") }
        if queuedPerforms > 0 { lines.append("    queued performs: \(queuedPerforms)\n") }
        if isCommon && !shared.jobs.isEmpty { lines.append("    queued jobs of actors and tasks: \(shared.jobs.count)\n") }
        let alive = mode.population + (isCommon ? common.population : 0)
        let isMain = servesMainQueue(in: mode)
        let why =
            isMain
            ? "kept alive by the main queue" + (alive > 0 ? " and \(alive) more" : "")
            : alive > 0 ? "kept alive by \(alive)" : "empty: a run would finish at once"
        return "  mode \"\(mode.name)\"\(isCommon ? " (common)" : ""), \(why)\n" + lines.joined()
    }

    func item(_ what: String, _ label: String?, _ site: CreationSite) -> String {
        what + (label.map { " \"\($0)\"" } ?? "") + ", made at \(site)"
    }

    private func when(_ timer: Timer, _ present: Instant) -> String {
        let date = timer.date.load(ordering: .acquiring)
        let interval = timer.interval.map { " and every \($0)" } ?? ""
        if timer.isFiring { return "firing now" + interval }
        if date == .max { return "without a date" }
        let left = present.duration(to: Instant(nanoseconds: date))
        return (left <= .zero ? "due since \(Duration.zero - left)" : "fires in \(left)") + interval
    }
}
