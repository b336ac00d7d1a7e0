// What the owner does for those who observe its callouts. Every function here is out of the way of a loop that nobody observes.

internal import CPlatform
import Synchronization

/// What is called, for an observer of callouts.
struct CalloutItem {
    let kind: RunLoop.Recording.Kind
    var site: CreationSite?
    var label: String?
    var flow: UInt64 = 0
}

/// How a step calls out. Each step that calls out is compiled for both: for a loop that nobody observes, a callout is the call and nothing
/// else.
protocol CalloutObserver {
    /// Before a call.
    static func open(_ loop: RunLoop, _ mode: ModeState, _ item: @autoclosure () -> CalloutItem) -> OpenCalloutSpan?
    /// Before the call of a queued closure. Not given the closure, whose reference would be counted.
    static func open(_ loop: RunLoop, _ mode: ModeState, _ kind: RunLoop.Recording.Kind, _ sequence: UInt64, _ site: CreationSite)
        -> OpenCalloutSpan?
    /// After it. `isCalled`: there was somebody to call.
    static func close(_ loop: RunLoop, _ span: OpenCalloutSpan?, isCalled: Bool)
}

enum Unobserved: CalloutObserver {
    @inline(__always)
    static func open(_ loop: RunLoop, _ mode: ModeState, _ item: @autoclosure () -> CalloutItem) -> OpenCalloutSpan? { nil }
    @inline(__always)
    static func open(_ loop: RunLoop, _ mode: ModeState, _ kind: RunLoop.Recording.Kind, _ sequence: UInt64, _ site: CreationSite)
        -> OpenCalloutSpan?
    { nil }
    @inline(__always)
    static func close(_ loop: RunLoop, _ span: OpenCalloutSpan?, isCalled: Bool) {}
}

enum Observed: CalloutObserver {
    @inline(__always)
    static func open(_ loop: RunLoop, _ mode: ModeState, _ item: @autoclosure () -> CalloutItem) -> OpenCalloutSpan? {
        loop.openCallout(item(), mode)
    }

    @inline(__always)
    static func open(_ loop: RunLoop, _ mode: ModeState, _ kind: RunLoop.Recording.Kind, _ sequence: UInt64, _ site: CreationSite)
        -> OpenCalloutSpan?
    { loop.openCallout(CalloutItem(kind: kind, site: site, flow: FlowKey.closure(sequence)), mode) }

    @inline(__always)
    static func close(_ loop: RunLoop, _ span: OpenCalloutSpan?, isCalled: Bool) {
        if let span { loop.closeCallout(span, isCalled: isCalled) }
    }
}

extension CalloutObserver {
    @inline(__always)
    static func close(_ loop: RunLoop, _ span: OpenCalloutSpan?) { close(loop, span, isCalled: true) }
}

extension RunLoop.Source {
    func callout(_ kind: RunLoop.Recording.Kind, flow: UInt64 = 0) -> CalloutItem {
        CalloutItem(kind: kind, site: site, label: label, flow: flow)
    }
}

extension RunLoop.Timer {
    /// A delayed perform is a closure, and has no label.
    var callout: CalloutItem { CalloutItem(kind: recordedKind, site: site, label: recordedKind == .perform ? nil : label) }
}

/// A callout that the owner has opened a span for.
struct OpenCalloutSpan {
    let level: Int
    let adoption: UInt32
}

extension RunLoop {
    /// Whether somebody observes the callouts of this loop. Owning thread only.
    @inline(__always)
    var isObserved: Bool { owned.pending.contains(.observed) }

    // MARK: Beginning and end

    /// The wishes of observers have changed.
    @inline(never)
    func takeObservers() {
        owned.pending.remove(.observers)
        guard let observation = observation.load() else { return }
        let isWanted = observation.takeWishes()
        if isWanted != isObserved {
            observation.spans.removeAll()
            owned.observation = isWanted ? .passUnretained(observation) : nil
            owned.observationCount &+= 1
            if isWanted { owned.pending.insert(.observed) } else { owned.pending.remove(.observed) }
            observation.isAdopted.store(isWanted, ordering: .releasing)
            modeTable.forEach { if let poller = $0.poller { observeGuests(of: poller) } }
            updateRunCare()
        }
        if runs.depth == 0 || owned.hosting.isBetweenSteps { return }
        // The runs in progress, and the pass of the innermost one, are seen from here on.
        if isWanted { openRuns() }
        observation.beginWorking()
    }

    @inline(never)
    private func openRuns() {
        guard let observation = observation.load() else { return }
        var depth = 0
        let ticks = TickClock.ticks
        runs.forEachFrame { frame in
            depth += 1
            // Not a key path: the runtime builds its type when it is first used, under a lock that a child of fork would inherit.
            guard let modeIndex = frame.modeReference?._withUnsafeGuaranteedRef({ $0.index }) else { return }
            if depth > observation.runsOpen {
                if depth == 1 { observation.beginWorking() }
                _ = observation.spans.push(SpanMark(.run, depth: depth, modeIndex: modeIndex), at: ticks)
            }
        }
    }

    // MARK: Runs, passes, sleeps

    @inline(__always)
    func beginObservedPass(_ mode: ModeState) {
        guard let reference = owned.observation else { return }
        let mark = SpanMark(.pass, depth: runs.depth, modeIndex: mode.index)
        if reference._withUnsafeGuaranteedRef({ $0.runsOpen }) < mark.depth { openRuns() }
        reference._withUnsafeGuaranteedRef { $0.beginPass(mark) }
    }

    /// A run has ended.
    func endObservedRun() {
        guard let reference = owned.observation else { return }
        reference._withUnsafeGuaranteedRef { $0.closeRuns(deeperThan: runs.depth) }
        if runs.depth == 0 { reference._withUnsafeGuaranteedRef { $0.endWorking() } }
    }

    /// The last pass of a run is over; what follows belongs to the run.
    func endObservedPass() { owned.observation?._withUnsafeGuaranteedRef { $0.endPass(depth: runs.depth) } }

    /// A host drives the loop, and the owner works for it, or does not any more.
    func observeHost(isWorking: Bool) {
        owned.observation?._withUnsafeGuaranteedRef { if isWorking { $0.beginWorking() } else { $0.endWorking() } }
    }

    /// Step 7 of a loop that is observed.
    @inline(never)
    func sleepObserved(_ frame: RunFrame, _ mode: ModeState, until latest: Int64) -> Ready {
        guard let reference = owned.observation else { return sleepUnobserved(frame, mode, until: latest) }
        let (waits, wakeUps, waited) = (counters.waits.current, counters.wakeUps.current, counters.waitedTicks)
        reference._withUnsafeGuaranteedRef {
            $0.waitedBeforeSleep.store(waited, ordering: .releasing)
            $0.endWorking()
        }
        let ready = sleepUnobserved(frame, mode, until: latest)
        reference._withUnsafeGuaranteedRef { $0.beginWorking() }
        if counters.waits.current != waits {
            // The counters have read the clock on both sides of the wait.
            let (mark, end) = (SpanMark(.sleep, depth: runs.depth, modeIndex: mode.index), counters.lastChange)
            reference._withUnsafeGuaranteedRef { $0.recordSleep(mark, from: end &- (counters.waitedTicks &- waited), until: end) }
            if counters.wakeUps.current != wakeUps { recordWakeUp(mark, at: end) }
        }
        return ready
    }

    @inline(never)
    private func recordWakeUp(_ sleep: SpanMark, at ticks: UInt64) {
        let mark = SpanMark(.wakeUp, depth: sleep.depth, modeIndex: sleep.modeIndex)
        owned.observation?._withUnsafeGuaranteedRef { $0.recordSleep(mark, from: ticks, until: ticks) }
    }

    // MARK: Callouts

    @inline(never)
    func openCallout(_ item: CalloutItem, _ mode: ModeState) -> OpenCalloutSpan? {
        guard let span = openCallout(item.kind, item.site?.word ?? 0, item.flow, mode) else { return nil }
        if let label = item.label { owned.observation?._withUnsafeGuaranteedRef { $0.spans.setLabel(label) } }
        return span
    }

    @inline(__always)
    private func openCallout(_ kind: Recording.Kind, _ site: UInt64, _ flow: UInt64, _ mode: ModeState) -> OpenCalloutSpan? {
        guard let reference = owned.observation else { return nil }
        let mark = SpanMark(kind, depth: runs.depth, modeIndex: mode.index, site: site, flow: flow)
        if reference._withUnsafeGuaranteedRef({ $0.runsOpen }) < mark.depth { openRuns() }
        let level = reference._withUnsafeGuaranteedRef { $0.spans.depth }
        guard reference._withUnsafeGuaranteedRef({ $0.beginCallout(mark) }) else { return nil }
        return OpenCalloutSpan(level: level, adoption: owned.observationCount)
    }

    @inline(never)
    func closeCallout(_ span: OpenCalloutSpan, isCalled: Bool) {
        // The callout may have ended the observation and begun another one.
        if span.adoption != owned.observationCount { return }
        owned.observation?._withUnsafeGuaranteedRef { $0.endCallout(level: span.level, isCalled: isCalled) }
    }
}
