import Synchronization

extension RunLoop.DescriptorSource {
    /// The events that the source reports. Setting it takes effect before the loop waits next; from another thread it wakes the loop.
    /// Empty: the source stays in its modes and is silent. Thread-safe.
    public var events: Events {
        get { Events(rawValue: core.pointee.wanted.load(ordering: .acquiring)) }
        set { setEvents(newValue, callsOut: true) }
    }

    /// The same without a callout, for a caller that holds a lock.
    package func setEventsWithoutCallout(_ events: Events) { setEvents(events, callsOut: false) }

    private func setEvents(_ events: Events, callsOut: Bool) { /* DOES CALLOUT */
        if core.pointee.wanted.exchange(events.rawValue, ordering: .acquiringAndReleasing) == events.rawValue { return }
        watchDidChange(callsOut: callsOut)
    }

    /// Arms a one-shot source for its next shot. Nothing for other triggers. Thread-safe.
    public func rearm() {
        guard trigger == .oneShot else { return }
        core.pointee.isArmed.store(true, ordering: .releasing)
        watchDidChange()
    }
}

extension RunLoop.Source {
    /// Has every loop that the source is in read `watch` again.
    func watchDidChange(callsOut: Bool = true) { /* DOES CALLOUT */
        let (first, several) = state.withLock { ($0.first, $0.several) }
        guard let first else { return }
        guard let several else { return first.loop.submitRewatch(of: first, callsOut: callsOut) }
        SourceMembership.ownLoopLast(several) { $0.loop.submitRewatch(of: $0, callsOut: callsOut) }
    }
}

extension SourceMembership {
    /// Calls `change`, which changes something in a loop, for the memberships in other loops, and then for the one in the loop of this thread: only
    /// that loop carries out its changes at once and makes last callouts, and a callout may end the thread.
    static func ownLoopLast(_ memberships: [SourceMembership], _ change: (SourceMembership) -> Void) { /* DOES CALLOUT */
        for membership in memberships where !membership.loop.isCurrent { change(membership) }
        for membership in memberships where membership.loop.isCurrent { change(membership) }
    }
}
