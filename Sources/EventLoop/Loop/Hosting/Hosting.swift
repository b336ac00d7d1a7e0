// A hosted loop sleeps in its host, which waits on an epoll set that contains the set of the mode's base (decision 29; Tests/Models/hosted.pml).
// Lifecycle of the outer set: made by `RunLoop.hosted`, closed by `HostedMode.closeSet`, at the latest when the last reference goes.

internal import CPlatform
internal import EventLoopLibC
import Synchronization

/// A mode that a host drives, and the set that the host watches. The `HostedLoop` holds it too: the host may watch the number of the descriptor.
final class HostedMode: @unchecked Sendable {
    // SAFETY: touched on the loop's thread only; the last reference may be released on any.

    let mode: ModeState
    private(set) var descriptor: Int32
    var isOver = false
    /// Asks the host to make a step by itself: see `HostedLoop.setStepRequest`.
    var stepRequest: (() -> Bool)?

    init(_ mode: ModeState, _ descriptor: Int32) { (self.mode, self.descriptor) = (mode, descriptor) }
    deinit { closeSet() }

    func closeSet() {
        if descriptor >= 0 { cplatform_close(descriptor) }
        descriptor = -1
    }
}

/// Owning thread only.
struct Hosting {
    var modes: [HostedMode] = []
    /// The owner is outside `step()`, and the loop counts as asleep (as alert, if the host is in a handler).
    var isBetweenSteps = false
    /// How many runs were in progress when `isBetweenSteps` was last set.
    var depth = 0
    var isStepping = false
    /// The owner is on its way to sleep, and calls out.
    var isMakingCallouts = false
    /// The span of the host's own pass, while somebody observes the loop's callouts.
    var pass: OpenCalloutSpan?

    var isEmpty: Bool { modes.isEmpty }
    func contains(_ modeIndex: Int) -> Bool { modes.contains { $0.mode.index == modeIndex } }
}

extension RunLoop {
    func beginHosting(_ name: Mode) throws(SourceError) -> HostedMode { /* DOES CALLOUT */
        let mode = shared.withLock { $0.modes.makeLocked(name) }
        precondition(!owned.hosting.contains(mode.index), "mode \"\(name)\" is hosted already; use that HostedLoop, or invalidate it first")
        runs.forEachFrame {
            precondition($0.mode !== mode, "a run of mode \"\(name)\" is in progress; host the mode when the run has ended")
        }
        let descriptor = cplatform_make_outer_set()
        if descriptor < 0 { throw .system(operation: "making a descriptor for a hosted run loop", errno: errno) }
        let hosted = HostedMode(mode, descriptor)
        guard let poller = mode.owned.poller ?? makePoller(mode) else {
            throw .system(operation: "making an event base for a hosted run loop", errno: EMFILE)
        }
        try poller.join(descriptor)
        owned.hosting.modes.append(hosted)
        waker.setHosted(true)  // before the first sleep: see `Waker.mark`
        updateRunsAreUnusual()
        if !mode.owned.parked.isEmpty { unpark(mode) }
        sleepInHost()
        return hosted
    }

    func endHosting(_ hosted: HostedMode) { /* DOES CALLOUT */
        let wasBetweenSteps = owned.hosting.isBetweenSteps
        leaveHost(of: hosted)
        hosted.closeSet()
        hosted.stepRequest = nil
        updateRunsAreUnusual()
        if wasBetweenSteps { sleepInHost() }
    }

    /// The hosts' descriptors stay open: their numbers must not become another file's while the hosts watch them.
    func endHosting() { for hosted in owned.hosting.modes { leaveHost(of: hosted) } }

    private func leaveHost(of hosted: HostedMode) {
        hosted.isOver = true
        hosted.mode.owned.poller?.leaveOuterSet()
        owned.hosting.modes.removeAll { $0 === hosted }
        wakeInHost()
        if owned.hosting.isEmpty { waker.setHosted(false) }
    }

    func step(_ hosted: HostedMode) -> RunResult { /* DOES CALLOUT */
        // One of the callouts before a sleep in the host may make the step, in order to run its host: the loop sleeps there after the step.
        owned.hosting.isMakingCallouts = false
        owned.hosting.isStepping = true
        hosted.mode.owned.hasSleptInHost = owned.hosting.isBetweenSteps
        let result = run(hosted.mode.name, limit: .min, returnsAfterSource: false)
        if runs.depth > 0 && !hosted.isOver {
            // In a C library's callback the step has ended the wait around it by a write to the channel, which the host watches, too
            // (`resumeWait`). If the loop were still asleep, each further step would do that again, and the host would step without end.
            if isInsideOwnSleep { waker.stayAwake() }
            sleepInHost()
        }
        // An empty mode makes no pass, or one that does not poll the kernel: its descriptor is made quiet here.
        if !hosted.isOver && isEmpty(hosted.mode) {
            wakeInHost()
            takeAttention(hosted.mode)
            if runs.depth == 0 { owned.pending.subtract(.wake) }  // in a handler, the wake-up is for the outer run
            _ = hosted.mode.owned.poller?.poll()
            sleepInHost()
        }
        return result
    }

    /// False if the loop has ended. Otherwise the loop is hosted or observed. It leaves the sleep in its host.
    @inline(never) func prepareUnusualRun(_ name: Mode) -> Bool {
        if hasEnded.load(ordering: .relaxed) { return false }
        if hasWork(.observers) { takeObservers() }
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
    @inline(never) func finishUnusualRun() { /* DOES CALLOUT */
        endObservedRun()
        if owned.hosting.isEmpty { return }
        owned.pending.formUnion(.recheckQueues)
        if runs.depth == 0 || runs.depth == owned.hosting.depth { sleepInHost() }
    }

    func updateRunsAreUnusual() {
        runsAreUnusual.store(hasEnded.load(ordering: .relaxed) || !owned.hosting.isEmpty || owned.observation != nil, ordering: .relaxed)
    }

    /// The owner has queued something, and is in no callout of the loop.
    @inline(never) func notifyBetweenSteps(_ bits: Attention) {
        // With a manual clock, a wake-up keeps the clock from jumping before the step.
        guard owned.hosting.isBetweenSteps, runs.depth == 0, owned.hosting.modes.count == 1, time.manualClock == nil,
            let request = owned.hosting.modes[0].stepRequest
        else { return notify(bits) }
        waker.markForStep(bits)
        if !request() { waker.wakeIfAsleep() }
    }

    private func wakeInHost() {
        if !owned.hosting.isBetweenSteps { return }
        owned.hosting.isBetweenSteps = false
        if runs.depth > 0 { observeHost(isWorking: true) }
        time.manualClock?.endWaiting(self)
        if isInsideOwnSleep { return }
        if waker.endSleep() { counters.wakeUps.increment() }
    }

    /// Whether the caller is a C library's callback in the sleep of a run. Inside a run, the loop is alert and not asleep while its host sleeps.
    private var isInsideOwnSleep: Bool { runs.depth > 0 && waker.isSleeping }

    /// Makes the hosts' descriptors readable when their modes have something to do, now or later: without `callsOut`, also what is to be called.
    @inline(never) func sleepInHost(callsOut: Bool = true) { /* DOES CALLOUT, if `callsOut` */
        if owned.hosting.isMakingCallouts || owned.hosting.isEmpty { return }  // changes made meanwhile are seen below
        shared.preconditionOurs()
        // The bits that are taken below may be for the mode of the run in progress.
        defer { if runs.depth > 0 { owned.pending.formUnion(.recheckQueues) } }
        if callsOut {
            makeCalloutsBeforeSleep()
            if owned.hosting.isEmpty { return }  // a callout may have invalidated the last of them
        }
        wakeInHost()
        // No callouts from here on.
        for hosted in owned.hosting.modes {
            guard let poller = hosted.mode.owned.poller else { continue }
            let own = time.manualClock == nil ? nextWake(hosted.mode) : .max
            // An active guest is a reason to step, which the owner looks for below.
            poller.state.deadline.armExactly(min(own, poller.hasActiveGuest ? .max : poller.nextGuestTimeout))
        }
        owned.hosting.isBetweenSteps = true
        observeHost(isWorking: false)
        owned.hosting.depth = runs.depth
        if runs.depth == 0 { waker.beginSleep() } else if !isInsideOwnSleep { waker.beAlert() }
        let severalModes = owned.hosting.modes.count > 1
        // The pending bits may be those of another mode. The next run of another one, or of one of several, looks into the queues again, too.
        let isTurn = owned.modeHistory.turn(to: severalModes ? -1 : owned.hosting.modes[0].mode.index, isNested: runs.depth > 0)
        for hosted in owned.hosting.modes {
            if severalModes || isTurn { owned.pending.formUnion(.recheckQueues) }
            guard hasReasonToStep(hosted.mode) else { continue }
            // The channel is in the bases of all hosted modes, so it cannot wake one of them.
            if severalModes { hosted.mode.owned.poller?.state.deadline.armExactly(1) } else { waker.wakeIfAsleep() }
        }
        if let clock = time.manualClock { sleepInHost(on: clock) }
    }

    /// The callouts before a sleep in the host. One of them may make a step: then the loop sleeps there already.
    private func makeCalloutsBeforeSleep() { /* DOES CALLOUT */
        owned.hosting.isMakingCallouts = true
        wakeInHost()
        for hosted in owned.hosting.modes {
            let mode = hosted.mode
            if hasPendingWork { carryOutPendingChanges(mode) }
            if owned.pending.contains(.finishing) { finishItems() }
            if mode.hasGuestLoops { prepareGuestLoops(mode) }
            _ = preparePoller(mode, mayStayWithout: false)  // the main queue may have become one of the mode's
        }
        owned.hosting.isMakingCallouts = false
    }

    private func hasReasonToStep(_ mode: ModeState) -> Bool {
        if runs.depth == 0 && runs.hasPendingStop { return true }
        if let poller = mode.owned.poller, !poller.ready.isEmpty || !poller.state.stale.isEmpty || poller.hasActiveGuest { return true }
        let waitsForDrain = owned.pending.contains(.mainQueueDrain) && !owned.mainQueue.isDraining
        if waitsForDrain && servesMainQueue(in: mode) { return true }
        // In a handler, the wake-up is for the outer run.
        let isOwed = runs.depth > 0 && owned.pending.contains(.wake)
        if isOwed { owned.pending.subtract(.wake) }
        defer { if isOwed { owned.pending.formUnion(.wake) } }
        return hasPendingWork && isReasonPending(mode)
    }

    private func nextWake(_ mode: ModeState) -> Int64 {
        min(mode.owned.timers.nextWake(), mode.hasGuestLoops ? mode.owned.nextGuestCall : .max)
    }

    func nextDeadline(of hosted: HostedMode) -> Instant? {
        var next = nextWake(hosted.mode)
        if let timeout = hosted.mode.owned.poller?.nextGuestTimeout, timeout != .max {
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
        while true {  // ends: each iteration is for another loop that has worked meanwhile
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
