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
        if name == .common || hasEnded.load(ordering: .relaxed) { return .finished }
        let run = beginRun()
        let result = runIfNotEmpty(run, name, limit, returnsAfterSource)
        endRun(run, with: result)
        return result
    }

    private func runIfNotEmpty(_ run: Activation, _ name: Mode, _ limit: Int64, _ returnsAfterSource: Bool) -> RunResult
    { /* DOES CALLOUT */
        if owned.depth == 1 && takePendingStop() || isTerminating.load(ordering: .acquiring) { return .stopped }
        guard let mode = modeToRun(name), !isEmpty(mode) else { return .finished }
        if let poller = mode.poller { precondition(!poller.isInside, Poller.nestedUnderForeign) }
        run.mode = mode
        run.limit = limit
        run.returnsAfterSource = returnsAfterSource
        run.pollsOnly = limit != .max && (limit == .min || limit <= now().nanoseconds)
        let outerIndex = currentModeIndex.load(ordering: .relaxed)
        currentModeIndex.store(mode.index, ordering: .releasing)
        owned.mustLookAgain = true
        if owned.depth == 1 { counters.beginRunning() }
        let result = runActivation(run)
        if owned.depth == 1 { counters.endRunning() }
        currentModeIndex.store(outerIndex, ordering: .releasing)
        // What was noted for the run further out may have been taken here.
        owned.mustLookAgain = true
        return result
    }

    private func modeToRun(_ name: Mode) -> ModeState? {
        for mode in owned.modes where mode.name == name { return mode }
        return shared.withLock { shared in
            var mode = shared.mode(name)
            if mode == nil && shared.commonModes.contains(name) && hasSomethingForCommonModes { mode = shared.makeMode(name) }
            owned.modes = shared.modes
            return mode
        }
    }

    private var hasSomethingForCommonModes: Bool {
        commonPopulation.load(ordering: .acquiring) > 0 || !owned.commonPerforming.isEmpty || servesMainQueue
    }

    /// Makes the activation of one more level, and hands what the levels further out have not got round to back to the queues, so that
    /// the new run finds it.
    private func beginRun() -> Activation {
        if owned.depth == owned.activations.count { owned.activations.append(Activation()) }
        for outer in owned.activations[..<owned.depth] { returnUnserved(outer) }
        let run = owned.activations[owned.depth]
        owned.depth += 1
        depth.store(owned.depth, ordering: .releasing)
        // A wake-up that the run further out has not noticed yet is not this one's to drop.
        if attention.load(ordering: .relaxed) & Attention.wake.rawValue != 0 { owned.pending.insert(.wake) }
        run.outerWasWoken = owned.depth > 1 && owned.pending.contains(.wake)
        // In this order: whoever finds the activation innermost finds it running.
        run.stopWord.store(StopWord.running, ordering: .sequentiallyConsistent)
        innermost.store(address(of: run), ordering: .sequentiallyConsistent)
        return run
    }

    private func endRun(_ run: Activation, with result: RunResult) {
        owned.depth -= 1
        depth.store(owned.depth, ordering: .releasing)
        innermost.store(owned.depth == 0 ? 0 : address(of: owned.activations[owned.depth - 1]), ordering: .sequentiallyConsistent)
        let word = run.stopWord.exchange(StopWord.idle, ordering: .sequentiallyConsistent)
        // A sticky stop that came too late to end this run ends the next one; an ordinary one dies with its run.
        if word & StopWord.isSticky != 0 {
            if owned.depth == 0 { pendingStop.store(true, ordering: .sequentiallyConsistent) } else { stop(sticky: true) }
        }
        if run.outerWasWoken { owned.pending.insert(.wake) }
    }

    private func address(of run: Activation) -> UInt { UInt(bitPattern: Unmanaged.passUnretained(run).toOpaque()) }

    private func returnUnserved(_ outer: Activation) {
        if outer.nextSignal < outer.signals.count { requeue(outer.signals[outer.nextSignal...], in: outer.mode) }
        if outer.nextPort < outer.ports.count {
            outer.mode.poller?.returnToReady(outer.ports[outer.nextPort...])
            outer.nextPort = outer.ports.count
        }
        for timer in outer.timers[min(outer.nextTimer, outer.timers.count)...] { fileAgain(timer) }
    }

    // MARK: Passes

    /// Takes note of what other threads did, and drops the wake-ups that came before the pass: it looks at everything anyway.
    func beginPass(_ mode: ModeState) { /* DOES CALLOUT */
        counters.passes.increment()
        takeAttention(mode)
        owned.pending.remove(.wake)
        if owned.pending.contains(.changes) { applyChanges() }
        if owned.pending.contains(.finishing) { finishItems() }
    }

    /// Takes note of what other threads told; and, where a run of another mode has begun or ended since, of what waits in the queues.
    @inline(__always)
    func takeAttention(_ mode: ModeState) {
        if owned.mustLookAgain {
            owned.mustLookAgain = false
            owned.pending.formUnion(queuedWork(mode))
        }
        if attention.load(ordering: .sequentiallyConsistent) == 0 { return }
        owned.pending.formUnion(Attention(rawValue: attention.exchange(0, ordering: .sequentiallyConsistent)))
    }

    /// What waits for this mode in the queues.
    func queuedWork(_ mode: ModeState) -> Attention {
        let isCommon = mode.isCommon.load(ordering: .acquiring)
        var work: Attention = owned.finishing.isEmpty ? [] : .finishing
        if !mode.performing.isEmpty || (isCommon && !owned.commonPerforming.isEmpty) { work.insert(.performs) }
        shared.withLock { shared in
            if !shared.changes.isEmpty { work.insert(.changes) }
            if !mode.blocks.isEmpty || (isCommon && !shared.blocks.common.isEmpty) { work.insert(.blocks) }
            if !mode.performs.isEmpty || (isCommon && !shared.performs.common.isEmpty) { work.insert(.performs) }
            if shared.blocks.mixed.contains(where: { $0.isEligible(in: mode) }) { work.insert(.blocks) }
            if shared.performs.mixed.contains(where: { $0.isEligible(in: mode) }) { work.insert(.performs) }
            if mode.signaled.contains(where: { $0.custom.isSignaled }) { work.insert(.signals) }
        }
        return work
    }

    /// Carries out what other threads ended meanwhile, so that a run does not finish with an item's last callout outstanding.
    @inline(__always)
    func settleEnds(_ mode: ModeState) { /* DOES CALLOUT */
        takeAttention(mode)
        if owned.pending.contains(.changes) { applyChanges() }
        if owned.pending.contains(.finishing) { finishItems() }
    }

    func limitHasPassed(_ run: Activation) -> Bool {
        run.limit != .max && run.limit <= now().nanoseconds
    }

    /// Whether nothing in `mode` could ever happen. Observers never count.
    func isEmpty(_ mode: ModeState) -> Bool {
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
