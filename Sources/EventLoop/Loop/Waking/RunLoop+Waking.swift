// Waking the loop from anywhere, and what the owner does about the bits that others have set.

import Synchronization

extension RunLoop {
    // MARK: Any thread

    /// Has a sleeping loop make another pass; a loop that works is not interrupted. Calls before the loop takes the wake-up coalesce.
    ///
    /// Any thread, and any signal handler: it takes no lock, allocates nothing, keeps errno. One system call when the loop sleeps, none
    /// when it works. In a forked child it does nothing. See `CFRunLoopWakeUp`.
    public func wakeUp() {
        if belongsToParentProcess { return }
        waker.wakeUp()
    }

    /// Whether the owning thread is blocked waiting for an event. False in every callout. Thread-safe.
    public var isWaiting: Bool {
        // On the owning thread the caller's own code runs: perhaps a C library's, inside libevent, but it does not wait.
        waker.isSleeping && LoopID.current != id
    }

    /// Sets bits, and wakes the owner if it sleeps.
    @inline(__always)
    func notify(_ bits: Attention) {
        // In a child of fork the channel is the parent's.
        if belongsToParentProcess { return }
        waker.mark(bits)
        waker.wakeIfAsleep()
    }

    /// As `notify`, for changes that the owner finds by itself before it sleeps when it made them in a callout.
    func notifyIfElsewhere(_ bits: Attention) {
        if LoopID.current == id {
            if waker.isWorking { return }
            if owned.hosting.isBetweenSteps && !isInsideWait { return sleepInHost() }
        }
        notify(bits)
    }

    /// The owner has changed how long a sleep may be. Between two steps of a host, the host's descriptor must follow.
    @inline(__always)
    func didChangeSleep() {
        if !waker.isWorking { changeSleepInHost() }
    }

    @inline(never)
    private func changeSleepInHost() {
        if owned.hosting.isBetweenSteps && !isInsideWait { sleepInHost() }
    }

    /// Whether the caller is a C library's callback, inside the wait of the innermost run.
    private var isInsideWait: Bool {
        let modeIndex = runs.modeIndex
        return modeIndex >= 0 && modeTable[modeIndex].poller?.isInside == true
    }

    /// Whether the owner may call out: it is not on its way to sleep, and not inside a wait.
    var mayCallOut: Bool { waker.isWorking || (owned.hosting.isBetweenSteps && !isInsideWait) }

    // MARK: The owner's pending work

    /// Whether any bit is set that the owner has not handled. Most steps of most passes test this and do nothing else. What they do
    /// otherwise is out of line, because a short way to the kernel and back is a fast one.
    @inline(__always)
    var hasPendingWork: Bool { !waker.untaken.union(owned.pending.bits).isEmpty }

    /// The same without the bit that stays while the loop is observed, for steps that do nothing for observers.
    @inline(__always)
    var hasWorkForSteps: Bool { !waker.untaken.union(owned.pending.bits).subtracting(.observed).isEmpty }

    /// Whether one of these bits is set: for a step that does nothing for others.
    @inline(__always)
    func hasWork(_ bits: Attention) -> Bool { !waker.untaken.union(owned.pending.bits).isDisjoint(with: bits) }

    /// Takes the bits that others have set. If a run of another mode has begun or ended since, looks into the queues as well.
    @inline(__always)
    func takeAttention(_ mode: ModeState) {
        if !waker.untaken.isEmpty || owned.pending.contains(.recheckQueues) { takePresentAttention(mode) }
    }

    @inline(never)
    private func takePresentAttention(_ mode: ModeState) {
        if owned.pending.contains(.recheckQueues) {
            owned.pending.remove(.recheckQueues)
            owned.pending.insert(queuedWork(mode))
        }
        if waker.untaken.isEmpty { return }
        owned.pending.insert(waker.takeAll())
        // Before anything that was given to the loop after an observation began is called.
        if owned.pending.contains(.observers) { takeObservers() }
    }

    /// A run of a mode begins after runs of others. If nothing was queued since its queues were found empty, they need no look.
    @inline(__always)
    func recheckQueues(of mode: ModeState) {
        let counts = (own: mode.queueings, common: common.queueings)
        if counts == mode.emptyAt && mode.performing.isEmpty && common.performing.isEmpty && owned.ended.isEmpty {
            owned.pending.remove(.recheckQueues)
        } else {
            owned.pending.insert(.recheckQueues)
        }
    }

    /// The bits of the queues that have something for this mode.
    func queuedWork(_ mode: ModeState) -> Attention {
        let isCommon = mode.isCommon.load(ordering: .acquiring)
        var work: Attention = owned.ended.isEmpty ? [] : .finishing
        if !mode.performing.isEmpty || (isCommon && !common.performing.isEmpty) { work.insert(.performs) }
        let counts = (own: mode.queueings, common: common.queueings)
        // A queue that was empty is empty while nothing was queued, and then the lock is not needed.
        return counts == mode.emptyAt ? work : work.union(lookIntoQueues(mode, counts))
    }

    @inline(never)
    private func lookIntoQueues(_ mode: ModeState, _ counts: (own: UInt64, common: UInt64)) -> Attention {
        var work: Attention = []
        let isEmpty = shared.withLock { shared in
            // Under the lock: a thread that makes the mode a common one counts first.
            let isCommon = mode.isCommon.load(ordering: .relaxed)
            if !mode.isEmptyLocked(.block) || (isCommon && !common.isEmptyLocked(.block)) { work.insert(.blocks) }
            if !mode.isEmptyLocked(.perform) || (isCommon && !common.isEmptyLocked(.perform)) { work.insert(.performs) }
            if mode.signaled.hasSignal { work.insert(.signals) }
            if mode.messaged.hasMessage { work.insert(.messages) }
            if isCommon && !shared.jobs.isEmpty && !owned.jobs.isRunning { work.insert(.jobs) }
            return work.isEmpty && shared.jobs.isEmpty
        }
        if isEmpty { mode.emptyAt = counts }
        return work
    }

    /// Takes the bits that others have set, and carries out the changes they queued.
    ///
    /// Each step does so after it has taken what it is going to call: what a thread changes before it queues a closure, signals a source or
    /// sends a message takes effect before that is called. A closure may close a descriptor whose source was invalidated before, so
    /// the kernel must have dropped it.
    @inline(never)
    func carryOutPendingChanges(_ mode: ModeState) {
        takeAttention(mode)
        if owned.pending.contains(.changes) { applyChanges() }
    }

    /// Carries out pending changes, and makes the last callouts of items that other threads ended: at the end of a pass, so that a run does
    /// not finish with such a callout outstanding, and between taking performs and performing them.
    @inline(__always)
    func settleEnds(_ mode: ModeState) { /* DOES CALLOUT */
        if hasWork(.forEnds) { settlePendingEnds(mode) }
    }

    @inline(never)
    private func settlePendingEnds(_ mode: ModeState) { /* DOES CALLOUT */
        takeAttention(mode)
        settlePendingEnds()
    }

    func settlePendingEnds() { /* DOES CALLOUT */
        if owned.pending.contains(.changes) { applyChanges() }
        if owned.pending.contains(.finishing) { finishItems() }
    }

    // MARK: Whether the owner may sleep

    /// Whether there is something to do in this mode now. The owner asks after `Waker.beginSleep`.
    @inline(__always)
    func isReasonToStayAwake(_ frame: RunFrame, _ mode: ModeState) -> Bool {
        if runs.isStopRequested(frame) || (isEmpty(mode) && !frame.sleepsEvenIfEmpty) { return true }
        return hasWorkForSteps && isReasonPending(mode)
    }

    @inline(never)
    func isReasonPending(_ mode: ModeState) -> Bool {
        takeAttention(mode)
        if owned.pending.contains(.wake) || owned.pending.contains(.changes) { return true }
        if owned.pending.bits.isDisjoint(with: .queues) { return false }
        // These bits may concern other modes. Producers set them again, and a run of another mode rechecks the queues.
        owned.pending.replaceQueues(with: queuedWork(mode))
        return !owned.pending.bits.isDisjoint(with: .queues)
    }
}
