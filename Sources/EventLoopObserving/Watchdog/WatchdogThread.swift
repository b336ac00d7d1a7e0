// The thread of all watchdogs: which loops it watches, and when it looks at them. Tests/Models/watchdog.pml checks how it sleeps.
//
// Lifecycle of the thread: started with the first watch, detached, and there until the process ends, or until a report ends it: then it starts
// another one, which goes on.

internal import CPlatform
internal import CStacks
internal import EventLoop
internal import EventLoopLibC

enum WatchdogThread {
    /// One loop, watched by one watchdog.
    struct Entry: Sendable {
        /// Not the loop: a loop ends with its thread, watched or not.
        let loopID: UInt64
        let watch: WatchdogWatch
        /// When it was watched, in ticks.
        let since: UInt64
        /// Never used again.
        let number: UInt64
    }

    private struct State: Sendable {
        var entries: [Entry] = []
        /// Counts changes of `entries`.
        var changes: UInt64 = 0
        var lastNumber: UInt64 = 0
        var hasThread = false
    }
    private static let state = LoopLock(State())

    // MARK: Any thread

    static func add(_ loop: RunLoop, _ watch: WatchdogWatch) {
        WatchdogGlobals.prepare()
        let (isNew, mustStart) = state.withLock { state -> (Bool, Bool) in
            if watch.onStall == nil { return (false, false) }
            defer { state.hasThread = true }
            // It is watched and has no thread if none could be started at the first call.
            if state.entries.contains(where: { $0.loopID == loop.id && $0.watch === watch }) { return (false, !state.hasThread) }
            state.lastNumber += 1
            state.entries.append(Entry(loopID: loop.id, watch: watch, since: TickClock.ticks, number: state.lastNumber))
            state.changes += 1
            return (true, !state.hasThread)
        }
        if isNew { loop.beginObservingCallouts() }
        if mustStart { startThread() } else if isNew { cplatform_ring_alarm() }
    }

    static func remove(_ loop: RunLoop, _ watch: WatchdogWatch) {
        let removed = take { $0.loopID == loop.id && $0.watch === watch }
        endObserving(removed)
    }

    /// Ends a watchdog.
    static func end(_ watch: WatchdogWatch) {
        let onStall = state.withLock { _ in
            defer { watch.onStall = nil }
            return watch.onStall
        }
        endObserving(take { $0.watch === watch })
        // Released outside the lock: what it holds is the user's.
        withExtendedLifetime(onStall) {}
    }

    private static func take(_ isMeant: (Entry) -> Bool) -> [Entry] {
        state.withLock { state in
            let removed = state.entries.filter(isMeant)
            if !removed.isEmpty {
                state.entries.removeAll(where: isMeant)
                state.changes += 1
            }
            return removed
        }
    }

    private static func endObserving(_ entries: [Entry]) {
        if entries.isEmpty { return }
        for entry in entries { LoopRegistry.loop(entry.loopID)?.endObservingCallouts() }
        // The thread has a copy, which holds what the watchdog's closure holds.
        cplatform_ring_alarm()
    }

    /// - Parameter continues: in place of a thread that a report has ended.
    private static func startThread(continues: Bool = false) {
        let code = NativeThread.start { WatchdogThread.live(continues: continues) }
        if code == 0 { return }
        // The next watch tries again.
        state.withLock { $0.hasThread = false }
        LibeventRuntime.warn("no thread could be started for the watchdog; the next call of watch tries again: errno \(code)")
    }

    // MARK: What the process shares

    static func hold() {
        _ = (fresh.hasThread, round)
        _ = state.lockValue()
    }

    /// For `release(inChild:)`.
    private static let fresh = State()

    static func release(inChild: Bool) {
        if inChild {
            state.lockedValue().initialize(to: fresh)
            cstacks_forget_stacks()
        }
        state.unlock()
    }

    // MARK: The thread

    /// What the thread knows. Static, so that a leak checker finds it at the end of the process, when the thread still lives.
    // SAFETY: only the thread touches what it points to.
    private nonisolated(unsafe) static let round = UnsafeMutablePointer<WatchdogRound>.allocate(capacity: 1)

    private static func live(continues: Bool) { /* DOES CALLOUT */
        cplatform_name_this_thread("watchdog")
        blockSignals()
        // Overwrites, in a child, what the parent's thread may have been changing. A thread that continues knows what was reported.
        if !continues { round.initialize(to: WatchdogRound()) }
        while true { serve(&round.pointee) }  // ends: with the process, or inside a report
    }

    /// One turn: looks at the loops and makes one report, or sleeps until the next look.
    private static func serve(_ round: inout WatchdogRound) { /* DOES CALLOUT */
        let known = round.changes
        if let (entries, changes) = state.withLock({ $0.changes == known ? nil : ($0.entries, $0.changes) }) {
            round.take(entries, changes)
        }
        if round.stalls.isEmpty {
            let left = round.nextLook == .max ? 0 : round.nextLook - RunLoop.Instant.now.nanoseconds
            if left > 0 { return cplatform_wait_for_alarm(left) }
            if round.isEmpty { return sleep(&round) }
        }
        // Also between two reports: one takes as long as a backtrace, or as its reader does, and a callout may get too long meanwhile.
        round.look()
        if !round.ended.isEmpty { forget(round.ended) }
        if let stall = round.nextStall() { return report(stall, round) }
        if round.mustLookAgain { return }
        if !round.requestAlarms() { return }
        sleep(&round)
    }

    /// Every watched loop sleeps, and will ring. A loop that rings has just begun to work: it is looked at half a threshold later.
    private static func sleep(_ round: inout WatchdogRound) {
        cplatform_wait_for_alarm(-1)
        round.didWake()
    }

    /// Loops that have ended.
    private static func forget(_ loops: [UInt64]) {
        let removed = state.withLock { state in
            defer { state.entries.removeAll { loops.contains($0.loopID) } }
            return state.entries.filter { loops.contains($0.loopID) }
        }
        // Released outside the lock.
        withExtendedLifetime(removed) {}
    }

    private static func report(_ stall: WatchdogRound.Found, _ round: WatchdogRound) { /* DOES CALLOUT */
        func reader() -> (@Sendable (RunLoop.Watchdog.Stall) -> Void)? {
            state.withLock { state in
                state.entries.contains { $0.number == stall.entry.number } ? stall.entry.watch.onStall : nil
            }
        }
        if reader() == nil { return }
        let description = round.describe(stall)
        // Asked again: a watchdog that was ended meanwhile is not called.
        guard let onStall = reader() else { return }
        // In a child that the report has forked, the child's own watches start a thread.
        CallInProgress.begin(by: stall.entry.watch) { WatchdogThread.startThread(continues: true) }
        onStall(description)
        CallInProgress.end(by: stall.entry.watch)
    }
}
