import Synchronization

/// What the owner has to check. Any thread sets a bit, after the fact that the bit stands for; the owner takes it before it checks.
struct Attention: OptionSet {
    let rawValue: UInt32
    static let changes = Attention(rawValue: 1 << 0), signals = Attention(rawValue: 1 << 1)
    static let blocks = Attention(rawValue: 1 << 2), performs = Attention(rawValue: 1 << 3)
    /// `wakeUp()`, a stop, a mode that may be empty now, manual time that moved: nothing to look up, but the loop must not sleep on.
    static let wake = Attention(rawValue: 1 << 4)
    static let finishing = Attention(rawValue: 1 << 5), jobs = Attention(rawValue: 1 << 6)
    /// A run of another mode has begun or ended: the queues may hold work for the present one.
    static let recheckQueues = Attention(rawValue: 1 << 7)
    static let messages = Attention(rawValue: 1 << 8)
    /// Somebody wants to observe the callouts of the loop, or not any more.
    static let observers = Attention(rawValue: 1 << 9)
    /// Set by the owner while its callouts are observed, so that the fast test for pending work fails and each step finds the observation.
    static let observed = Attention(rawValue: 1 << 10)
    /// The owner's own: somebody is to be called at the end of the pass.
    static let passEnd = Attention(rawValue: 1 << 11)
    /// The owner's own: the main queue's handle was read, and the queue is being drained by an outer run.
    static let mainQueueDrain = Attention(rawValue: 1 << 12)
    static let queues: Attention = [.changes, .signals, .blocks, .performs, .finishing, .jobs, .messages]
    // Each step tests its own bits only, so that a signal for step 4 does not slow the other steps; and these, which may concern any of them.
    private static let unspecific: Attention = [.recheckQueues, .observers]
    static let forPass: Attention = [.wake, .changes, .finishing, .observed, .unspecific]
    static let forBlocks: Attention = [.jobs, .blocks, .unspecific]
    static let forSources: Attention = [.performs, .signals, .unspecific]
    static let forEnds: Attention = [.passEnd, .changes, .finishing, .unspecific]
    static let forEvents: Attention = [.messages, .mainQueueDrain]
    /// All but `observed`, which stays while the loop is observed: for steps that do nothing for observers.
    static let forSteps = Attention(rawValue: ~observed.rawValue)
}

extension RunLoop {
    /// Whether any bit is set that the owner has not handled. Most steps test this and do nothing else; what they do otherwise is out of line.
    @inline(__always) var hasPendingWork: Bool { !waker.untaken.union(owned.pending).isEmpty }
    /// Whether one of these bits is set: for a step that does nothing for others.
    @inline(__always) func hasWork(_ bits: Attention) -> Bool { !waker.untaken.union(owned.pending).isDisjoint(with: bits) }

    /// Takes the bits that others have set. If a run of another mode has begun or ended since, looks into the queues as well.
    @inline(__always) func takeAttention(_ mode: ModeState) {
        if !waker.untaken.isEmpty || owned.pending.contains(.recheckQueues) { takePresentAttention(mode) }
    }

    @inline(never) private func takePresentAttention(_ mode: ModeState) {
        if owned.pending.contains(.recheckQueues) {
            owned.pending.subtract(.recheckQueues)
            owned.pending.formUnion(queuedWork(mode))
        }
        if waker.untaken.isEmpty { return }
        owned.pending.formUnion(waker.takeAll())
        // First, so that work that was queued after an observation began is observed.
        if owned.pending.contains(.observers) { takeObservers() }
    }

    /// A run of a mode begins after runs of others. If nothing was queued since its queues were found empty, they need no look.
    @inline(__always) func recheckQueues(of mode: ModeState) {
        let counts = (own: mode.queueings, common: common.queueings)
        if counts == mode.owned.emptyAt && mode.performing.isEmpty && common.performing.isEmpty && owned.ended.isEmpty {
            owned.pending.subtract(.recheckQueues)
        } else {
            owned.pending.formUnion(.recheckQueues)
        }
    }

    /// The bits of the queues that have something for this mode.
    func queuedWork(_ mode: ModeState) -> Attention {
        let isCommon = mode.isCommon.load(ordering: .acquiring)
        var work: Attention = owned.ended.isEmpty ? [] : .finishing
        if !mode.performing.isEmpty || (isCommon && !common.performing.isEmpty) { work.insert(.performs) }
        let counts = (own: mode.queueings, common: common.queueings)
        // If nothing was queued since the queues were empty, they need no lock.
        return counts == mode.owned.emptyAt ? work : work.union(lookIntoQueues(mode, counts))
    }

    @inline(never) private func lookIntoQueues(_ mode: ModeState, _ counts: (own: UInt64, common: UInt64)) -> Attention {
        var work: Attention = []
        let isEmpty = shared.withLock { shared in
            // Under the lock: a thread that makes the mode a common one counts first.
            let isCommon = mode.isCommon.load(ordering: .relaxed)
            if !mode.isEmptyLocked(.block) || (isCommon && !common.isEmptyLocked(.block)) { work.insert(.blocks) }
            if !mode.isEmptyLocked(.perform) || (isCommon && !common.isEmptyLocked(.perform)) { work.insert(.performs) }
            if mode.locked.signaled.hasSignal { work.insert(.signals) }
            if mode.locked.messaged.hasMessage { work.insert(.messages) }
            if isCommon && !shared.jobs.isEmpty && !owned.jobs.isRunning { work.insert(.jobs) }
            return work.isEmpty && shared.jobs.isEmpty
        }
        if isEmpty { mode.owned.emptyAt = counts }
        return work
    }

    /// Takes others' bits, and carries out the changes they queued. Each step does so after it has taken what it calls, so that earlier changes of a
    /// thread take effect before. A closure may close a descriptor whose source was invalidated: the kernel must have dropped it.
    @inline(never) func carryOutPendingChanges(_ mode: ModeState) { /* DOES CALLOUT */
        takeAttention(mode)
        if owned.pending.contains(.changes) { applyChanges() }
    }

    /// Carries out pending changes, and makes the last callouts of items that other threads ended: at the end of a pass, and before performs.
    @inline(__always) func finishPendingEnds(_ mode: ModeState) { /* DOES CALLOUT */ if hasWork(.forEnds) { carryOutPendingEnds(mode) } }

    @inline(never) private func carryOutPendingEnds(_ mode: ModeState) { /* DOES CALLOUT */
        takeAttention(mode)
        carryOutPendingEnds()
    }

    func carryOutPendingEnds() { /* DOES CALLOUT */
        if owned.pending.contains(.passEnd) { callPassEndListeners() }
        if owned.pending.contains(.changes) { applyChanges() }
        if owned.pending.contains(.finishing) { finishItems() }
    }

    /// Whether there is something to do in this mode now. The owner asks after `Waker.beginSleep`.
    @inline(__always) func isReasonToStayAwake(_ frame: RunFrame, _ mode: ModeState) -> Bool {
        if runs.isStopRequested(frame) || (isEmpty(mode) && !frame.owned.sleepsEvenIfEmpty) { return true }
        return hasWork(.forSteps) && isReasonPending(mode)
    }

    @inline(never) func isReasonPending(_ mode: ModeState) -> Bool {
        takeAttention(mode)
        if !owned.pending.isDisjoint(with: [.wake, .changes, .passEnd]) { return true }
        if owned.pending.isDisjoint(with: .queues) { return false }
        // These bits may concern other modes. Producers set them again, and a run of another mode rechecks the queues.
        owned.pending.subtract(.queues)
        owned.pending.formUnion(queuedWork(mode))
        return !owned.pending.isDisjoint(with: .queues)
    }
}
