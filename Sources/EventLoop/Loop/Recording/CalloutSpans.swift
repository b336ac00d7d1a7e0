import Synchronization

/// What is called, for an observer of callouts.
package struct CalloutItem {
    package let kind: RunLoop.Recording.Kind
    package var site: CreationSite?
    package var label: String?
    var flow: UInt64 = 0
}

extension RunLoop.Source {
    func callout(_ kind: RunLoop.Recording.Kind, flow: UInt64 = 0) -> CalloutItem {
        .init(kind: kind, site: site, label: label, flow: flow)
    }
}

extension RunLoop.Timer {
    /// A delayed perform is a closure, and has no label.
    var callout: CalloutItem { CalloutItem(kind: state.isPerform ? .perform : .timer, site: site, label: state.isPerform ? nil : label) }
}

extension RunLoop {
    @inline(__always) var isObserved: Bool { owned.pending.contains(.observed) }

    @inline(never) func takeObservers() {
        owned.pending.subtract(.observers)
        guard let observation = observation.load() else { return }
        let isWanted = observation.takeWishes()
        if isWanted != isObserved {
            observation.spans.removeAll()
            owned.hosting.pass = nil
            owned.observation = isWanted ? Borrowed(observation, keptBy: .loop) : nil
            owned.observationCount &+= 1
            if isWanted { owned.pending.formUnion(.observed) } else { owned.pending.subtract(.observed) }
            modeTable.forEach { if let poller = $0.owned.poller { observeGuests(of: poller) } }
            updateRunsAreUnusual()
        }
        // A thread that is about to sleep does not begin to work here. If it stays awake, its next callout or pass opens the runs.
        if runs.depth == 0 || owned.hosting.isBetweenSteps || !waker.isWorking { return }
        if isWanted { openRuns() }
        observation.beginWorking()
    }

    @inline(never) private func openRuns() {
        guard let observation = observation.load() else { return }
        var depth = 0
        let ticks = TickClock.ticks
        runs.forEachFrame { frame in
            depth += 1
            // Not a key path: the runtime builds its type at the first use, which a child must not do.
            guard let modeIndex = frame.owned.modeReference?.use({ $0.index }), depth > observation.runsOpen else { return }
            if depth == 1 { observation.beginWorking() }
            _ = observation.spans.push(SpanMark(.run, depth: depth, modeIndex: modeIndex), at: ticks)
        }
    }

    @inline(__always) func beginObservedPass(_ mode: ModeState) {
        guard let reference = owned.observation else { return }
        let mark = SpanMark(.pass, depth: runs.depth, modeIndex: mode.index)
        if reference.use({ $0.runsOpen }) < mark.depth { openRuns() }
        reference.use { $0.beginPass(mark) }
    }

    func endObservedRun() {
        guard let reference = owned.observation else { return }
        reference.use { $0.closeRuns(deeperThan: runs.depth) }
        if runs.depth == 0 && owned.hosting.pass == nil { reference.use { $0.endWorking() } }
    }

    /// The owner works for a host, or does not any more. A host that reports its passes works until their end.
    func observeHost(isWorking: Bool) {
        guard let reference = owned.observation else { return }
        if !isWorking && runs.depth == 0 && owned.hosting.pass != nil { return }
        reference.use { if isWorking { $0.beginWorking() } else { $0.endWorking() } }
    }

    @inline(never) func sleepObserved(_ frame: RunFrame, _ mode: ModeState, until latest: Int64) -> Ready { /* DOES CALLOUT */
        let reference = owned.observation!  // the loop is observed
        let (waits, wakeUps, waited) = (counters.waits.current, counters.wakeUps.current, counters.ticksWaiting.current)
        reference.use { $0.endWorking() }
        let ready =
            preparePoller(mode, mayStayWithout: false)
            ? mode.owned.pollerReference!.use { sleep(frame, mode, $0, until: latest) } : sleepWithoutPoller(frame, mode, until: latest)
        reference.use { $0.beginWorking() }
        if counters.waits.current != waits {
            // The counters have read the clock on both sides of the wait.
            let (mark, end) = (SpanMark(.sleep, depth: runs.depth, modeIndex: mode.index), counters.changedAt.current)
            reference.use { $0.recordSleep(mark, from: end &- (counters.ticksWaiting.current &- waited), until: end) }
            if counters.wakeUps.current != wakeUps {
                let wakeUp = SpanMark(.wakeUp, depth: mark.depth, modeIndex: mark.modeIndex)
                reference.use { $0.recordSleep(wakeUp, from: end, until: end) }
            }
        }
        return ready
    }

    /// Before a call. For a loop that nobody observes, a callout costs two tests of a bit.
    @inline(__always) func openSpan(_ mode: ModeState, _ item: @autoclosure () -> CalloutItem) -> OpenCalloutSpan? {
        isObserved ? openCallout(item(), mode) : nil
    }

    /// Before the call of a queued closure. Not given the closure, whose reference would be counted.
    @inline(__always)
    func openSpan(_ mode: ModeState, _ kind: Recording.Kind, _ sequence: UInt64, _ site: CreationSite) -> OpenCalloutSpan? {
        isObserved ? openCallout(CalloutItem(kind: kind, site: site, flow: FlowKey.closure(sequence)), mode) : nil
    }

    /// After the call. `isCalled`: there was somebody to call.
    @inline(__always)
    func closeSpan(_ span: OpenCalloutSpan?, isCalled: Bool = true) { if let span { closeCallout(span, isCalled: isCalled) } }

    @inline(never) func openCallout(_ item: CalloutItem, _ mode: ModeState) -> OpenCalloutSpan? {
        guard let reference = owned.observation else { return nil }
        let mark = SpanMark(item.kind, depth: runs.depth, modeIndex: mode.index, site: item.site?.word ?? 0, flow: item.flow)
        if reference.use({ $0.runsOpen }) < mark.depth { openRuns() }
        return reference.use { observation -> OpenCalloutSpan? in
            let level = observation.spans.depth
            if level == 0 { observation.beginWorking() }  // the last batch of a thread is performed outside any run
            let isOpen = observation.spans.push(mark, label: item.label, at: TickClock.ticks)
            return isOpen ? OpenCalloutSpan(level: level, adoption: owned.observationCount) : nil
        }
    }

    @inline(never) func closeCallout(_ span: OpenCalloutSpan, isCalled: Bool) {
        if span.adoption != owned.observationCount { return }  // the callout may have ended the observation and begun another one
        owned.observation?.use {
            if $0.spans.depth != span.level &+ 1 { return }
            if isCalled { $0.close(at: TickClock.ticks) } else { $0.spans.pop() }
            if span.level == 0 { $0.endWorking() }
        }
    }
}

// MARK: - The callbacks of C libraries inside the wait, for those who observe a loop's callouts
extension RunLoop: GuestObserver {
    func observeGuests(of poller: Poller) { poller.state.guestObserver = isObserved ? self : nil }

    func willCallGuests(isWaiting: Bool) -> OpenCalloutSpan? {
        let modeIndex = runs.modeIndex
        guard modeIndex >= 0, let span = openCallout(CalloutItem(kind: .hostedLibrary), modeTable[modeIndex]) else { return nil }
        if !isWaiting { observeHost(isWorking: true) }  // if libevent may wait, nobody can tell when the wait is over
        return span
    }

    func didCallGuests(_ span: OpenCalloutSpan, mayHaveWaited: Bool, wereCalled: Bool) {
        if span.adoption != owned.observationCount { return }  // a run inside the callback may have ended the observation
        if !mayHaveWaited && waker.isSleeping { observeHost(isWorking: false) }
        closeCallout(span, isCalled: wereCalled)
    }
}
