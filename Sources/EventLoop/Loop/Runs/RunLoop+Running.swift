// The calls that run a loop, and what a run does before its first step and after its last.

import Synchronization

extension RunLoop {
    /// Runs in `.default` until stopped or finished. On the owning thread only; calls out. See `CFRunLoopRun`.
    @available(*, noasync, message: "a run blocks its thread; run the loop on a RunLoopThread or the main thread; tasks call performAsync")
    @discardableResult
    public func run() -> RunResult { /* DOES CALLOUT */ run(.default, limit: .max, returnsAfterSource: false) }

    /// Runs in `mode` until stopped, finished, or until `deadline`; with `returnAfterSourceHandled`, until a source was handled.
    ///
    /// A deadline that has passed makes one pass that does not sleep. An empty mode, one that does not exist, and `.common` are
    /// `.finished` at once, without notifying observers. On the owning thread only (a precondition failure elsewhere); calls out; may be
    /// called from any handler, in any mode, up to 65,535 runs deep (beyond that, a precondition failure). See `CFRunLoopRunInMode`.
    @available(*, noasync, message: "a run blocks its thread; run the loop on a RunLoopThread or the main thread; tasks call performAsync")
    public func run(mode: Mode = .default, until deadline: Instant, returnAfterSourceHandled: Bool = false) -> RunResult
    { /* DOES CALLOUT */
        run(mode, limit: deadline.nanoseconds, returnsAfterSource: returnAfterSourceHandled)
    }

    /// Runs in `mode` for `timeout` from now; zero or less makes one pass that does not sleep. Otherwise as `run(mode:until:)`.
    @available(*, noasync, message: "a run blocks its thread; run the loop on a RunLoopThread or the main thread; tasks call performAsync")
    public func run(mode: Mode = .default, for timeout: Duration, returnAfterSourceHandled: Bool = false) -> RunResult { /* DOES CALLOUT */
        run(mode, limit: limit(after: timeout), returnsAfterSource: returnAfterSourceHandled)
    }

    /// Reads `limit` when the run has begun. The run of CFRunLoop `sleepsAfterBlocks` (rule 6.11).
    @inline(__always)
    package func run(_ name: Mode, limit: @autoclosure () -> Int64, returnsAfterSource: Bool, sleepsAfterBlocks: Bool = false) -> RunResult
    { /* DOES CALLOUT */
        guard let begun = beginRun(name) else { return .finished }
        return begun.pushed.use {
            $0.owned.sleepsAfterBlocks = sleepsAfterBlocks
            return run($0, name, limit(), returnsAfterSource, begun.outer)
        }
    }

    private func limit(after timeout: Duration) -> Int64 {
        let nanoseconds = timeout.saturatedNanoseconds
        if nanoseconds <= 0 { return .min }
        return nanoseconds == .max ? .max : now().nanoseconds.addingSaturated(nanoseconds)
    }

    /// How many runs of a loop may be in progress: each may be in a call of the same source, and a source counts its calls in 16 bits.
    static let deepestRun = Int(UInt16.max)

    /// Nil if the loop has ended. From here on the run takes stops, which are forgotten before: so this comes before all that the run prepares.
    @inline(__always) private func beginRun(_ name: Mode) -> (pushed: Borrowed<RunFrame>, outer: SuspendedRun)? {
        preconditionOnLoop("run")
        if runsAreUnusual.load(ordering: .relaxed), !prepareUnusualRun(name) { return nil }
        let depth = runs.depth
        if depth == 0 { return (runs.pushOutermost(), (wasWoken: false, isInWait: false)) }
        precondition(
            depth < Self.deepestRun,
            "run was called inside \(Self.deepestRun) runs of the same loop: a handler that runs its loop must return before so many are nested"
        )
        let outer = suspendOuterRun()
        return (runs.pushNested(in: depth), outer)
    }

    private func run(_ frame: RunFrame, _ name: Mode, _ limit: Int64, _ returnsAfterSource: Bool, _ outer: SuspendedRun) -> RunResult
    { /* DOES CALLOUT */
        let result = runIfNotEmpty(frame, name, limit, returnsAfterSource)
        // A sticky stop that came too late for this run is for the one around it, or is kept (rule 1.9).
        if runs.pop(frame), runs.requestStop(sticky: true) { waker.wakeUp() }
        if outer.wasWoken { owned.pending.formUnion(.wake) }
        if runsAreUnusual.load(ordering: .relaxed) { finishUnusualRun() }
        if outer.isInWait { resumeWait() }
        return result
    }

    @inline(__always) private func runIfNotEmpty(_ frame: RunFrame, _ name: Mode, _ limit: Int64, _ returnsAfterSource: Bool) -> RunResult
    { /* DOES CALLOUT */
        // The stop that was kept for the next run is not for a run that is refused: no loop runs in `.common`.
        if runs.depth == 1, runs.hasPendingStop, name != .common, runs.takePendingStop() { return .stopped }
        if runs.isTerminating { return .stopped }
        guard let mode = modeToRun(name) else {
            finishEndsWithoutPass()
            return finishWithoutPass(name, nil)
        }
        return mode.use { runMode(frame, $0, limit, returnsAfterSource) }
    }

    /// Makes the last callouts of what other threads have ended, as the end of a pass does, for a run that makes no pass.
    @inline(never) private func finishEndsWithoutPass() { /* DOES CALLOUT */
        guard hasPendingWork || !owned.ended.isEmpty else { return }
        applyChanges()
        finishItems()
    }

    @inline(__always) private func runMode(_ frame: RunFrame, _ mode: ModeState, _ limit: Int64, _ returnsAfterSource: Bool) -> RunResult
    { /* DOES CALLOUT */
        if isEmpty(mode) {
            finishEndsWithoutPass()
            if isEmpty(mode) { return finishWithoutPass(mode.name, mode) }
        }
        mode.owned.pollerReference?.use { precondition(!$0.state.isInside, Poller.nestedUnderForeign) }
        frame.owned.modeReference = Borrowed(mode, keptBy: .loop)
        frame.modeIndex.store(mode.index, ordering: .releasing)
        (frame.owned.limit, frame.owned.returnsAfterSource) = (limit, returnsAfterSource)
        frame.owned.pollsOnly = limit != .max && (limit == .min || limit <= now().nanoseconds)
        let isNested = runs.depth > 1
        // The pending bits were set for another mode, unless only runs of this one came before.
        if owned.modeHistory.turn(to: mode.index, isNested: isNested) { recheckQueues(of: mode) }
        if !mode.owned.parked.isEmpty { unpark(mode) }
        Reserve.completeAgain()
        if !isNested { counters.beginRunning() }
        let result = runPasses(frame, in: mode)
        if !isNested { counters.endWork() }
        // This run may have taken bits that were set for the outer one.
        if isNested { owned.pending.formUnion(.recheckQueues) }
        return result
    }

    /// Nil when there is no such mode, and for `.common`, which is none. Modes live as long as their loop.
    @inline(__always) func modeToRun(_ name: Mode) -> Borrowed<ModeState>? { modeTable.referenceAmongFirst(name) ?? modeUnderLock(name) }

    /// A common mode that nobody has added anything to has what was queued for all common modes.
    @inline(never) private func modeUnderLock(_ name: Mode) -> Borrowed<ModeState>? {
        if name == .common { return nil }
        return shared.withLock { shared in
            if let mode = shared.modes.referenceLocked(name) { return mode }
            guard shared.modes.commonNames.contains(name), hasSomethingForCommonModes else { return nil }
            return Borrowed(shared.modes.makeLocked(name), keptBy: .loop)
        }
    }

    private var hasSomethingForCommonModes: Bool {
        common.population > 0 || !owned.jobs.batch.isEmpty || !common.performing.isEmpty || servesMainQueue
    }

    /// What the run around a nested one gets back at its end. `wasWoken`: a wake-up that it has not noticed yet, and that the nested run must not
    /// drop. `isInWait`: it is asleep, and the nested run begins in a callback of a C library, inside the wait.
    private typealias SuspendedRun = (wasWoken: Bool, isInWait: Bool)

    /// Items that the outer run has taken and not reached go back to the queues. The runs further out have given theirs back when that one began.
    private func suspendOuterRun() -> SuspendedRun {
        runs.innermostFrame.use { returnUnserved(of: $0) }
        if waker.untaken.contains(.wake) { owned.pending.formUnion(.wake) }
        let isInWait = !waker.isWorking
        if isInWait { suspendWait() }
        return (wasWoken: owned.pending.contains(.wake), isInWait: isInWait)
    }

    @inline(__always) private func returnUnserved(of outer: RunFrame) {
        outer.owned.lostItsBatch = true
        // The kernel reports level-triggered sources again. Edges stay for the next pass, of whichever run.
        outer.owned.modeReference?.use { $0.owned.pollerReference?.use { $0.dropLevelTriggered() } }
        if outer.owned.signals.hasRest || outer.owned.timers.hasRest { returnUnservedItems(of: outer) }
    }

    @inline(never) private func returnUnservedItems(of outer: RunFrame) {
        if outer.owned.signals.hasRest { requeue(outer.owned.signals.rest, in: outer.mode) }
        if outer.owned.timers.hasRest { for timer in outer.owned.timers.rest { putBack(timer) } }
    }

    /// Handles the bits that others have set, and drops wake-ups that came before the pass: it checks everything anyway.
    @inline(__always) func beginPass(_ mode: ModeState) { /* DOES CALLOUT */
        counters.passes.increment()
        if hasWork(.forPass) { beginPassWithPendingWork(mode) }
    }

    @inline(never) private func beginPassWithPendingWork(_ mode: ModeState) { /* DOES CALLOUT */
        takeAttention(mode)
        owned.pending.subtract(.wake)
        if isObserved { beginObservedPass(mode) }
        carryOutPendingEnds()
    }

    @inline(never) func callPassEndListeners() { /* DOES CALLOUT */
        owned.pending.subtract(.passEnd)
        // One at a time, so that a nested run calls the rest. Ends: a listener asks again only when a task has written again, and none runs here.
        while !owned.passEnds.isEmpty { owned.passEnds.popFirst().passWillEnd() }
    }

    /// Whether nothing in `mode` could ever happen. Observers never count.
    @inline(__always) func isEmpty(_ mode: ModeState) -> Bool { mode.population <= 0 && isEmptySlowly(mode) }

    @inline(never) private func isEmptySlowly(_ mode: ModeState) -> Bool {
        if mode.population > 0 || !mode.performing.isEmpty { return false }
        if mode.isCommon.load(ordering: .acquiring) && hasSomethingForCommonModes { return false }
        return !(mode.owned.poller?.hasForeignEvents ?? false)
    }

    /// The mode of the innermost run in progress; nil outside any run. Thread-safe. See `CFRunLoopCopyCurrentMode`.
    public var currentMode: Mode? {
        let index = runs.modeIndex
        return index < 0 ? nil : modeTable[index].name
    }

    /// How many runs are in progress, one inside the other; 0 outside any run. Thread-safe.
    public var runDepth: Int { runs.depth }
    /// The present in the loop's own time: manual when it uses a `ManualClock`. Thread-safe.
    package func now() -> Instant { time.now }

    /// Ends the innermost run. If there is none, does nothing; with `sticky`, the next run ends at once with `.stopped`, and notifies no observer.
    ///
    /// The pass in progress is completed, without sleeping. A stop acts on the run that is innermost at the moment of the call; two stops before one
    /// is noticed end one run. A run that returns `.handledSource` uses up an ordinary stop; a sticky one is kept for the next run. Any thread, and
    /// any signal handler: it takes no lock, allocates nothing, keeps errno. No-op in a child of the loop's process. See `CFRunLoopStop`.
    public func stop(sticky: Bool = false) {
        // Async-signal-safe: only atomics and a write, no lock, no allocation, no reference counting.
        guard isOurs else { return }
        // A stop that waits for the next run is a reason for a host to make it.
        if runs.requestStop(sticky: sticky) || (sticky && waker.isHosted) { waker.wakeUp() }
    }
}
