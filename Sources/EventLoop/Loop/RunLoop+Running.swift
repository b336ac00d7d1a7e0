// The calls that run a loop, and what a run does before its first step and after its last.

import Synchronization

extension RunLoop {
    /// Runs in `.default` until stopped or finished. On the owning thread only; calls out. See `CFRunLoopRun`.
    @available(*, noasync)
    @discardableResult
    public func run() -> RunResult { /* DOES CALLOUT */
        run(.default, limit: .max, returnsAfterSource: false)
    }

    /// Runs in `mode` until stopped, finished, or until `deadline`; with `returnAfterSourceHandled`, until a source was handled.
    ///
    /// A deadline that has passed makes one pass that does not sleep. An empty mode, one that does not exist, and `.common` are
    /// `.finished` at once, without telling observers. On the owning thread only (a precondition failure elsewhere); calls out; may be
    /// called from any handler, in any mode. See `CFRunLoopRunInMode`.
    @available(*, noasync)
    public func run(mode: Mode = .default, until deadline: Instant, returnAfterSourceHandled: Bool = false) -> RunResult
    { /* DOES CALLOUT */
        run(mode, limit: deadline.nanoseconds, returnsAfterSource: returnAfterSourceHandled)
    }

    /// Runs in `mode` for `timeout` from now; zero or less makes one pass that does not sleep. Otherwise as `run(mode:until:)`.
    @available(*, noasync)
    public func run(mode: Mode = .default, for timeout: Duration, returnAfterSourceHandled: Bool = false) -> RunResult { /* DOES CALLOUT */
        preconditionOnLoop("run(mode:for:)")
        let nanoseconds = timeout.saturatedNanoseconds
        let limit: Int64 =
            nanoseconds <= 0 ? .min : (nanoseconds == .max ? .max : now().nanoseconds.addingSaturated(nanoseconds))
        return run(mode, limit: limit, returnsAfterSource: returnAfterSourceHandled)
    }

    func run(_ name: Mode, limit: Int64, returnsAfterSource: Bool) -> RunResult { /* DOES CALLOUT */
        preconditionOnLoop("run")
        if hasEnded.load(ordering: .relaxed) { return .finished }
        // Lent, as all that a run needs and the loop holds: each count of a reference is a locked instruction.
        return beginRun()._withUnsafeGuaranteedRef { run in
            let result = runIfNotEmpty(run, name, limit, returnsAfterSource)
            endRun(run, with: result)
            return result
        }
    }

    private func runIfNotEmpty(_ run: Activation, _ name: Mode, _ limit: Int64, _ returnsAfterSource: Bool) -> RunResult
    { /* DOES CALLOUT */
        if owned.depth == 1 && takePendingStop(for: name) || isTerminating.load(ordering: .acquiring) { return .stopped }
        guard let mode = modeToRun(name) else {
            settleWithoutPass()
            return .finished
        }
        return mode._withUnsafeGuaranteedRef {
            isEmpty($0) && isEmptyWhenSettled($0) ? .finished : runMode(run, $0, limit, returnsAfterSource)
        }
    }

    /// Makes the last callouts of what other threads have ended, as the end of a pass does, for a run that makes no pass.
    private func settleWithoutPass() { /* DOES CALLOUT */
        guard hasNews else { return }
        applyChanges()
        finishItems()
    }

    @inline(never)
    private func isEmptyWhenSettled(_ mode: ModeState) -> Bool { /* DOES CALLOUT */
        settleWithoutPass()
        return isEmpty(mode)
    }

    @inline(__always)
    private func runMode(_ run: Activation, _ mode: ModeState, _ limit: Int64, _ returnsAfterSource: Bool) -> RunResult
    { /* DOES CALLOUT */
        mode.pollerReference?._withUnsafeGuaranteedRef { precondition(!$0.isInside, Poller.nestedUnderForeign) }
        run.modeReference = .passUnretained(mode)
        run.limit = limit
        run.returnsAfterSource = returnsAfterSource
        run.pollsOnly = limit != .max && (limit == .min || limit <= now().nanoseconds)
        let outerIndex = currentModeIndex.load(ordering: .relaxed)
        currentModeIndex.store(mode.index, ordering: .releasing)
        noteMode(mode)
        noteRun(of: mode)
        Reserve.completeAgain()
        if owned.depth == 1 { counters.beginRunning() }
        let result = runActivation(run, in: mode)
        if owned.depth == 1 { counters.endRunning() }
        currentModeIndex.store(outerIndex, ordering: .releasing)
        // What was noted for the run further out may have been taken here.
        if owned.depth > 1 { owned.pending.insert(.lookAgain) }
        return result
    }

    /// A run begins in this mode. What is pending was noted for another one, unless nothing but runs of this mode came before.
    @inline(__always)
    private func noteMode(_ mode: ModeState) {
        if owned.depth == 1 && owned.lastModeIndex == mode.index { return }
        owned.lastModeIndex = owned.depth == 1 ? mode.index : -1
        owned.pending.insert(.lookAgain)
    }

    /// Nil when there is no such mode, and for `.common`, which is none. Modes live as long as their loop.
    func modeToRun(_ name: Mode) -> Unmanaged<ModeState>? {
        for mode in owned.modeTable where mode._withUnsafeGuaranteedRef({ $0.name == name }) { return mode }
        return name == .common ? nil : modeNotSeen(name)
    }

    @inline(never)
    private func modeNotSeen(_ name: Mode) -> Unmanaged<ModeState>? {
        let mode = shared.withLock { shared in
            var mode = shared.mode(name)
            if mode == nil && shared.commonModes.contains(name) && hasSomethingForCommonModes { mode = shared.makeMode(name) }
            owned.modes = shared.modes
            return mode
        }
        return mode.map { .passUnretained($0) }
    }

    private var hasSomethingForCommonModes: Bool {
        commonPopulation.load(ordering: .acquiring) > 0 || jobPopulation.load(ordering: .acquiring) > 0 || !owned.commonPerforming.isEmpty
            || servesMainQueue
    }

    /// Makes the activation of one more level, and hands what the levels further out have not got round to back to the queues, so that
    /// the new run finds it.
    private func beginRun() -> Unmanaged<Activation> {
        let level = owned.depth
        if level == owned.activations.count { owned.activations.append(Activation()) }
        if level > 0 { returnUnserved(upTo: level) }
        let reference = owned.activations.reference(level)
        owned.depth = level + 1
        depth.store(level + 1, ordering: .releasing)
        // A wake-up that the run further out has not noticed yet is not this one's to drop.
        if attention.load(ordering: .relaxed) & Attention.wake.rawValue != 0 { owned.pending.insert(.wake) }
        reference._withUnsafeGuaranteedRef { run in
            run.outerWasWoken = level > 0 && owned.pending.contains(.wake)
            // In this order: whoever finds the activation innermost finds it running.
            run.stopWord.store(StopWord.running, ordering: .releasing)
        }
        let address = UInt(bitPattern: reference.toOpaque())
        if level > 0 {
            innermost.store(address, ordering: .releasing)
        } else {
            // Whoever leaves a stop for the next run looks here after it; the run looks for one after this.
            innermost.store(address, ordering: .sequentiallyConsistent)
        }
        return reference
    }

    private func endRun(_ run: Activation, with result: RunResult) {
        let level = owned.depth - 1
        owned.depth = level
        depth.store(level, ordering: .releasing)
        innermost.store(level == 0 ? 0 : UInt(bitPattern: owned.activations.reference(level - 1).toOpaque()), ordering: .releasing)
        let word = run.stopWord.exchange(StopWord.idle, ordering: .sequentiallyConsistent)
        // A sticky stop that came too late to end this run ends the next one; an ordinary one dies with its run.
        if word & StopWord.isSticky != 0 { keepStop() }
        if run.outerWasWoken { owned.pending.insert(.wake) }
    }

    @inline(never)
    private func keepStop() {
        if owned.depth == 0 { pendingStop.store(true, ordering: .sequentiallyConsistent) } else { stop(sticky: true) }
    }

    private func returnUnserved(upTo level: Int) {
        for index in 0..<level {
            owned.activations.reference(index)._withUnsafeGuaranteedRef { outer in
                // What the kernel reports as a level is asked of it again; edges wait for whichever pass comes first.
                outer.lostItsBatch = true
                outer.modeReference?._withUnsafeGuaranteedRef { mode in
                    mode.pollerReference?._withUnsafeGuaranteedRef { if !$0.ready.isEmpty { $0.dropLevelTriggered() } }
                }
                if outer.nextSignal < outer.signals.count || outer.nextTimer < outer.timers.count { returnBatches(outer) }
            }
        }
    }

    @inline(never)
    private func returnBatches(_ outer: Activation) {
        if outer.nextSignal < outer.signals.count { requeue(outer.signals[outer.nextSignal...], in: outer.mode) }
        for timer in outer.timers[min(outer.nextTimer, outer.timers.count)...] { fileAgain(timer) }
    }

    // MARK: Passes

    /// Takes note of what other threads did, and drops the wake-ups that came before the pass: it looks at everything anyway.
    @inline(__always)
    func beginPass(_ mode: ModeState) { /* DOES CALLOUT */
        counters.passes.increment()
        if hasNews { beginPassWithNews(mode) }
    }

    @inline(never)
    private func beginPassWithNews(_ mode: ModeState) { /* DOES CALLOUT */
        takeAttention(mode)
        owned.pending.remove(.wake)
        if owned.pending.contains(.changes) { applyChanges() }
        if owned.pending.contains(.finishing) { finishItems() }
    }

    /// Whether anything was told or waits to be looked after. Most steps of most passes come to this test and no further: what they do
    /// otherwise stands out of the way, because the way to the kernel and back is as fast as it is short.
    @inline(__always)
    var hasNews: Bool { attention.load(ordering: .sequentiallyConsistent) | owned.pending.rawValue != 0 }

    /// Takes note of what other threads told; and, where a run of another mode has begun or ended since, of what waits in the queues.
    @inline(never)
    func takeAttention(_ mode: ModeState) {
        if owned.pending.contains(.lookAgain) {
            owned.pending.remove(.lookAgain)
            owned.pending.formUnion(queuedWork(mode))
            if owned.pending.contains(.messages) { owned.owed.insert(.messages) }
        }
        if attention.load(ordering: .sequentiallyConsistent) == 0 { return }
        owned.pending.formUnion(Attention(rawValue: attention.exchange(0, ordering: .sequentiallyConsistent)))
        if owned.pending.contains(.messages) { owned.owed.insert(.messages) }
    }

    /// What waits for this mode in the queues.
    func queuedWork(_ mode: ModeState) -> Attention {
        let isCommon = mode.isCommon.load(ordering: .acquiring)
        var work: Attention = owned.finishing.isEmpty ? [] : .finishing
        if !mode.performing.isEmpty || (isCommon && !owned.commonPerforming.isEmpty) { work.insert(.performs) }
        let counts = (own: mode.queueings.load(ordering: .acquiring), common: commonQueueings.load(ordering: .acquiring))
        // What was empty is empty while nothing was queued: the lock is for the others.
        return counts == mode.emptyAt ? work : work.union(lookIntoQueues(mode, counts))
    }

    @inline(never)
    private func lookIntoQueues(_ mode: ModeState, _ counts: (own: UInt64, common: UInt64)) -> Attention {
        var work: Attention = []
        let isEmpty = shared.withLock { shared in
            // Under the lock: who makes the mode a common one counts first.
            let isCommon = mode.isCommon.load(ordering: .relaxed)
            if !mode.blocks.isEmpty || (isCommon && !shared.blocks.isEmpty) { work.insert(.blocks) }
            if !mode.performs.isEmpty || (isCommon && !shared.performs.isEmpty) { work.insert(.performs) }
            if mode.signaled.contains(where: { $0.custom.isSignaled }) { work.insert(.signals) }
            if mode.hasMessagesLocked { work.insert(.messages) }
            if isCommon && !shared.jobs.isEmpty && !owned.isPerformingJobs { work.insert(.jobs) }
            return work.isEmpty && shared.jobs.isEmpty
        }
        if isEmpty { mode.emptyAt = counts }
        return work
    }

    /// Carries out what other threads changed meanwhile, and makes the last callouts of items that they ended: at the end of a pass, so
    /// that a run does not finish with such a callout outstanding, and between taking performs and performing them, because what a thread
    /// changes before it queues a perform takes effect before the perform.
    @inline(__always)
    func settleEnds(_ mode: ModeState) { /* DOES CALLOUT */
        if hasNews { settleEndsWithNews(mode) }
    }

    @inline(never)
    private func settleEndsWithNews(_ mode: ModeState) { /* DOES CALLOUT */
        takeAttention(mode)
        if owned.pending.contains(.changes) { applyChanges() }
        if owned.pending.contains(.finishing) { finishItems() }
    }

    @inline(__always)
    func limitHasPassed(_ run: Activation) -> Bool {
        run.limit != .max && run.limit <= now().nanoseconds
    }

    /// Whether nothing in `mode` could ever happen. Observers never count.
    @inline(__always)
    func isEmpty(_ mode: ModeState) -> Bool {
        mode.population.load(ordering: .acquiring) <= 0 && isEmptySlowly(mode)
    }

    @inline(never)
    private func isEmptySlowly(_ mode: ModeState) -> Bool {
        if mode.population.load(ordering: .acquiring) > 0 || !mode.performing.isEmpty { return false }
        if mode.isCommon.load(ordering: .acquiring) && hasSomethingForCommonModes { return false }
        return !(mode.poller?.hasForeignEvents ?? false)
    }

    // MARK: Asking

    /// The mode of the innermost run in progress; nil outside any run. Thread-safe. See `CFRunLoopCopyCurrentMode`.
    public var currentMode: Mode? {
        let index = currentModeIndex.load(ordering: .acquiring)
        return index < 0 ? nil : shared.withLock { $0.modes[index].name }
    }

    /// How many runs are in progress, one inside the other; 0 outside any run. Thread-safe.
    public var runDepth: Int { depth.load(ordering: .acquiring) }

    /// The present in the loop's own time: manual when it uses a `ManualClock`. Owning thread only.
    func now() -> Instant { owned.manualClock?.now ?? .now }
}
