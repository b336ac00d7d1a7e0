// The sleep of a loop that another loop drives.
//
// The host sleeps in place of this loop, on a set of the kernel's that holds the set of the mode's base. So what ends a sleep of this loop
// makes the host's descriptor readable: a source, the write of a producer, the armed deadline. After each step, and after each change that
// the owner makes between two steps, the owner does what it does before it sleeps (`sleepInHost`), in the same order: it applies changes,
// arms the deadline, stores *asleep*, and then takes the attention bits and looks. If it finds a reason to stay awake, it writes to its own
// channel, and the descriptor is readable.
//
// The write of a producer stays an edge in the base's set until the next step asks the kernel. Tests/Models/hosted.pml checks every
// interleaving.

internal import CPlatform
import Synchronization

#if canImport(Glibc)
import Glibc
#elseif canImport(Musl)
import Musl
#else
import Darwin
#endif

extension RunLoop {
    // MARK: Beginning and end

    func beginHosting(_ name: Mode) throws(SourceError) -> HostedMode { /* DOES CALLOUT */
        let mode = shared.withLock { $0.modes.makeLocked(name) }
        precondition(
            !owned.hosting.contains(mode.index), "mode \"\(name)\" is hosted already; use that HostedLoop, or invalidate it first")
        runs.forEachFrame {
            precondition($0.mode !== mode, "a run of mode \"\(name)\" is in progress; host the mode when the run has ended")
        }
        let set = try OuterSet.make()
        let hosted = HostedMode(mode, set)
        guard let poller = mode.poller ?? makePoller(mode) else {
            throw .system(operation: "making an event base for a hosted run loop", errno: EMFILE)
        }
        try poller.join(set)
        owned.hosting.append(hosted)
        // Before the first sleep: see `Waker.mark`.
        waker.setHosted(true)
        updateRunCare()
        if !mode.parked.isEmpty { unpark(mode) }
        sleepInHost()
        return hosted
    }

    func endHosting(_ hosted: HostedMode) {
        hosted.isOver = true
        hosted.mode.poller?.leaveOuterSet()
        hosted.closeSet()
        owned.hosting.remove(hosted)
        let wasBetweenSteps = owned.hosting.isBetweenSteps
        wakeInHost()
        if owned.hosting.isEmpty {
            waker.setHosted(false)
            updateRunCare()
        } else if wasBetweenSteps {
            sleepInHost()
        }
    }

    /// The loop ends. The hosts' descriptors stay open: their numbers must not become another file's while the hosts watch them.
    func endHosting() {
        if owned.hosting.isEmpty { return }
        wakeInHost()
        for hosted in owned.hosting.takeAll() {
            hosted.isOver = true
            hosted.mode.poller?.leaveOuterSet()
        }
        waker.setHosted(false)
    }

    // MARK: Runs

    func step(_ hosted: HostedMode) -> RunResult { /* DOES CALLOUT */
        let passes = counters.passes.current
        owned.hosting.isStepping = true
        hosted.mode.hasSleptInHost = owned.hosting.isBetweenSteps
        let result = run(hosted.mode.name, limit: .min, returnsAfterSource: false)
        if runs.depth > 0 && !hosted.isOver { sleepInHost() }
        // Without a pass nobody has asked the kernel, and nobody has taken the wake-up.
        if result == .finished && counters.passes.current == passes && !hosted.isOver { dropWakeUps(hosted) }
        return result
    }

    /// Makes an empty mode's descriptor quiet.
    private func dropWakeUps(_ hosted: HostedMode) { /* DOES CALLOUT */
        wakeInHost()
        takeAttention(hosted.mode)
        owned.pending.remove(.wake)
        _ = hosted.mode.poller?.poll()
        sleepInHost()
    }

    /// False if the loop has ended. Otherwise the loop is hosted, and leaves the sleep in its host.
    @inline(never)
    func beginRunWithCare(_ name: Mode) -> Bool {
        if hasEnded.load(ordering: .relaxed) { return false }
        if waker.untaken.union(owned.pending.bits).contains(.observers) { takeObservers() }
        if owned.hosting.isStepping {
            owned.hosting.isStepping = false
        } else if runs.depth == 0 {
            precondition(
                !owned.hosting.modes.contains { $0.mode.name == name },
                "mode \"\(name)\" is hosted, so only HostedLoop.step() runs it; run another mode, or invalidate the HostedLoop first")
        }
        wakeInHost()
        return true
    }

    /// A run of a hosted loop has ended. If the host sleeps next, the loop sleeps in it.
    @inline(never)
    func endRunWithCare() { /* DOES CALLOUT */
        endObservedRun()
        if owned.hosting.isEmpty { return }
        owned.pending.insert(.recheckQueues)
        if runs.depth == 0 || runs.depth == owned.hosting.depth { sleepInHost() }
    }

    func updateRunCare() {
        runsNeedCare.store(
            hasEnded.load(ordering: .relaxed) || !owned.hosting.isEmpty || owned.observation != nil, ordering: .relaxed)
    }

    // MARK: Sleeping

    /// The owner works again.
    private func wakeInHost() {
        if !owned.hosting.isBetweenSteps { return }
        owned.hosting.isBetweenSteps = false
        if runs.depth > 0 { observeHost(isWorking: true) }
        time.manualClock?.endWaiting(self)
        if waker.endSleep() { counters.wakeUps.increment() }
    }

    /// Makes the hosts' descriptors readable when there is something to do in their modes, now or later.
    @inline(never)
    func sleepInHost() { /* DOES CALLOUT */
        // What is changed meanwhile is seen below.
        if owned.hosting.isSettling || owned.hosting.isEmpty { return }
        owned.hosting.isSettling = true
        wakeInHost()
        for hosted in owned.hosting.modes { settle(hosted.mode) }
        owned.hosting.isSettling = false
        // A callout may have invalidated the last of them.
        if owned.hosting.isEmpty { return }
        // No callouts from here on.
        for hosted in owned.hosting.modes { armDeadline(hosted.mode) }
        owned.hosting.isBetweenSteps = true
        observeHost(isWorking: false)
        owned.hosting.depth = runs.depth
        if runs.depth == 0 { waker.beginSleep() } else { waker.beAlert() }
        let severalModes = owned.hosting.modes.count > 1
        for hosted in owned.hosting.modes {
            if severalModes { owned.pending.insert(.recheckQueues) }
            guard hasReasonToStep(hosted.mode) else { continue }
            // The channel is in every base, and a host may prefer one mode to the other.
            if severalModes { hosted.mode.poller?.armDeadline(1) } else { waker.wakeIfAsleep() }
        }
        if let clock = time.manualClock { sleepInHost(on: clock) }
    }

    /// The callouts before a sleep in the host.
    private func settle(_ mode: ModeState) { /* DOES CALLOUT */
        if hasPendingWork { carryOutPendingChanges(mode) }
        if owned.pending.contains(.finishing) { finishItems() }
        if mode.hasGuestLoops { prepareGuestLoops(mode) }
        // The main queue may have become one of the mode's.
        _ = preparePoller(mode, mayStayWithout: false)
    }

    private func hasReasonToStep(_ mode: ModeState) -> Bool {
        if runs.depth == 0 && runs.hasPendingStop { return true }
        if let poller = mode.poller, !poller.ready.isEmpty || !poller.stale.isEmpty || poller.hasActiveGuest { return true }
        let waitsForDrain = owned.pending.deferredEvents.contains(.mainQueueDrain) && !owned.mainQueue.isDraining
        if waitsForDrain && servesMainQueue(in: mode) { return true }
        // In a handler this is a wake-up that is the outer run's to notice.
        let isOwed = runs.depth > 0 && owned.pending.contains(.wake)
        if isOwed { owned.pending.remove(.wake) }
        defer { if isOwed { owned.pending.insert(.wake) } }
        return hasPendingWork && isReasonPending(mode)
    }

    // MARK: Deadlines

    /// When a timer or a guest loop of the mode is due.
    private func nextWake(_ mode: ModeState) -> Int64 {
        min(mode.timers.nextWake(), mode.hasGuestLoops ? mode.nextGuestCall : .max)
    }

    private func armDeadline(_ mode: ModeState) {
        guard let poller = mode.poller else { return }
        let own = time.manualClock == nil ? nextWake(mode) : .max
        // An active guest is a reason to step, which the owner looks for next.
        poller.armDeadline(min(own, poller.hasActiveGuest ? .max : poller.nextGuestTimeout))
    }

    func nextDeadline(of hosted: HostedMode) -> Instant? {
        var next = nextWake(hosted.mode)
        if let timeout = hosted.mode.poller?.nextGuestTimeout, timeout != .max {
            // The loop's time may be a manual one.
            let present = now().nanoseconds
            next = min(next, max(present, present.addingSaturated(timeout.subtractingSaturated(Instant.now.nanoseconds))))
        }
        return next == .max ? nil : Instant(nanoseconds: next)
    }

    /// The host sleeps until the clock reaches the next timer.
    private func sleepInHost(on clock: ManualClock) {
        let limit = owned.hosting.modes.reduce(Int64.max) { min($0, nextWake($1.mode)) }
        var turn = clock.comeToWait()
        while true {  // ends: each turn is for another loop that has worked meanwhile
            switch clock.beginWaiting(self, until: limit, since: turn) {
            case .due: return waker.wakeIfAsleep()
            case .sleep: return
            case .askAgain(let newer):
                // What another loop did has made the descriptor readable, or it was not for this one.
                if owned.hosting.modes.contains(where: { cplatform_wait_for_readable($0.descriptor, 0) }) { return }
                turn = newer
            }
        }
    }
}
