import Synchronization

extension RunLoop: CustomDebugStringConvertible {
    /// Every mode with its sources, timers (and when they fire next), observers and queued blocks, with labels and places. Thread-safe. O(items).
    public var debugDescription: String {
        let name = "RunLoop \(id)\(isMainLoop ? " (main)" : "")"
        let present = time.now
        guard let body = shared.withLockIfOwn({ shared in shared.modes.all.map { describe($0, shared, present) }.joined() })
        else { return name + ", of the parent process" }
        let depth = runDepth > 1 ? ", \(runDepth) deep" : ""
        let running = currentMode.map { "running in \"\($0)\"\(depth)\(isWaiting ? ", waiting" : "")" }
        return "\(name), \(isValid ? running ?? "not running" : "ended")\n\(body)"
    }

    private func describe(_ mode: ModeState, _ shared: borrowing LoopShared, _ present: Instant) -> String {
        var lines: [String] = []
        for source in shared.sources.filter({ $0.locked.modes.contains(mode.index) }).map(\.source) {
            let signaled = (source as? CustomSource)?.isSignaled == true ? ", signaled" : ""
            lines.append(item(source.typeDescription + signaled, source.label, source.site))
        }
        let timers = shared.timers.filter { $0.isInMode(mode.index) }
        for timer in timers.sorted(by: { $0.date.load(ordering: .relaxed) < $1.date.load(ordering: .relaxed) }) {
            lines.append(item("timer, " + when(timer, present), timer.label, timer.site))
        }
        lines += mode.locked.observers.map { item("observer of \($0.activities)", $0.label, $0.site) }
        let isCommon = mode.isCommon.load(ordering: .acquiring)
        let queuedBlocks = mode.countLocked(.block) + (isCommon ? common.countLocked(.block) : 0)
        let queuedPerforms = mode.countLocked(.perform) + (isCommon ? common.countLocked(.perform) : 0)
        if queuedBlocks > 0 { lines.append("queued blocks: \(queuedBlocks)") }
        if queuedPerforms > 0 { lines.append("queued performs: \(queuedPerforms)") }
        if isCommon && !shared.jobs.isEmpty { lines.append("queued jobs of actors and tasks: \(shared.jobs.count)") }
        let alive = mode.population + (isCommon ? common.population : 0)
        var keepers = servesMainQueue(in: mode) ? ["the main queue"] : []
        if alive > 0 { keepers.append(keepers.isEmpty ? "\(alive)" : "\(alive) more") }
        let why = keepers.isEmpty ? "empty: a run would finish at once" : "kept alive by " + keepers.joined(separator: " and ")
        return "  mode \"\(mode.name)\"\(isCommon ? " (common)" : ""), \(why)\n" + lines.map { "    \($0)\n" }.joined()
    }

    func item(_ what: String, _ label: String?, _ site: CreationSite) -> String {
        what + (label.map { " \"\($0)\"" } ?? "") + ", made at \(site)"
    }
    func item(_ source: Source) -> String { item(source.typeDescription, source.label, source.site) }

    private func when(_ timer: Timer, _ present: Instant) -> String {
        let date = timer.date.load(ordering: .acquiring)
        let interval = timer.interval.map { " and every \($0)" } ?? ""
        if timer.isFiring { return "firing now" + interval }
        if date == .max { return "without a date" }
        let left = present.duration(to: Instant(nanoseconds: date))
        return (left <= .zero ? "due since \(Duration.zero - left)" : "fires in \(left)") + interval
    }
}
