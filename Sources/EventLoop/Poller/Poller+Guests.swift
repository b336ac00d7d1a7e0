// Waiting on a base that has events of C libraries: the poller's guests. libevent returns from `EVLOOP_ONCE` only when no callback of any level is
// left, so a guest that is always ready would keep the wait from ending. Our own events are therefore *internal* ones on the most urgent level:
// libevent runs their callbacks first in every round, does not count them, and continues with the guests. Our first callback has the wait end after
// the guests of this round, or at the beginning of the next.

internal import CPlatform

protocol GuestObserver: AnyObject {
    /// libevent may call C libraries from now on. If `isWaiting`, it may wait before.
    func willCallGuests(isWaiting: Bool) -> OpenCalloutSpan?
    func didCallGuests(_ span: OpenCalloutSpan, mayHaveWaited: Bool, wereCalled: Bool)
}

/// A callout that the owner has opened a span for: the index of the span, and the number of the observation that has it.
struct OpenCalloutSpan { let level: Int, adoption: UInt32 }

/// C libraries may have events on the base.
struct Guests {
    fileprivate let roundEnd: UnsafeMutablePointer<Poller.InternalRecord>
    fileprivate let roundStart: UnsafeMutablePointer<Poller.InternalRecord>
    /// How many events libevent had counted as added before the first guest could come. Ours are not counted any more since then.
    fileprivate let ownEvents: Int
    /// `roundEnd` ended the last call of libevent: there was one round since the end was asked for. Otherwise a guest's callback ran: libevent
    /// returned by itself or by `event_base_loopbreak`, or began a second round, which it only does after such a callback.
    fileprivate var endedWithRound = false
    /// `roundStart` has not run yet in a poll.
    fileprivate var isOpening = false
    fileprivate var isEnding = false
    /// The last wait left events active in libevent: what they were ready for may be gone.
    fileprivate(set) var mayHoldStaleEvents = false
}

extension Poller {
    /// C libraries may have events on the base from now on.
    func hostForeignEvents() {
        if state.guests != nil { return }
        precondition(!state.isInside, "the first C library comes to a base outside its wait")
        // Nobody else knows the base yet.
        if !state.closedEarly.isEmpty { sweepBeforeFirstGuest() }
        let ownEvents = state.base.addedEvents
        beginHosting(ownEvents: ownEvents)
        Internal.event(state.guests!.roundStart).add(afterMicroseconds: 1_000_000)
        precondition(
            state.base.addedEvents == ownEvents, "this libevent does not keep internal events apart (EVLIST_INTERNAL in event_struct.h)")
        Internal.event(state.guests!.roundStart).delete()
    }

    /// A poller on a base that a C program made and frees after it. None of our events is ever counted there. Only for Tests/LibeventRegress.
    convenience init(borrowing base: OpaquePointer, waking channel: borrowing WakeChannel) throws(RunLoop.SourceError) {
        try self.init(EventBase(base, isBorrowed: true))
        beginHosting(ownEvents: 0)
        try watchDeadline()
        try watch(channel)
    }

    private func beginHosting(ownEvents: Int) {
        let (roundEnd, roundStart) = (makeRecord(.roundEnd), makeRecord(.roundStart))
        state.internals += [roundEnd, roundStart]
        for record in state.internals { Internal.event(record).makeInternal() }
        forEachAdded { EventRecord.event($0).makeInternal() }
        state.guests = Guests(roundEnd: roundEnd, roundStart: roundStart, ownEvents: ownEvents)
        state.isWaitSpecial = true
    }

    /// Whether a C library has events that keep the mode from being empty.
    var hasForeignEvents: Bool { if let guests = state.guests { state.base.addedEvents > guests.ownEvents } else { false } }
    /// Whether the last wait, or code outside it, left a guest's callback to be called.
    var hasActiveGuest: Bool { state.guests != nil && state.base.activeEvents > 0 }

    /// When a guest's earliest timeout is due, in nanoseconds of the monotonic clock; `Int64.max` if there is none. Linear in the number of
    /// events, because libevent has no function for the time until which it would wait.
    var nextGuestTimeout: Int64 {
        guard let guests = state.guests else { return .max }
        if hasActiveGuest || state.isInside { return .min }
        let second: Int64 = 1_000_000
        // libevent reports due times as times of day. An event that is due in a second gives the reference.
        let probe = Internal.event(guests.roundStart)
        probe.add(afterMicroseconds: second)
        defer { probe.delete() }
        guard let reference = probe.timeout, let earliest = state.base.earliestTimeout(except: probe) else { return .max }
        // A library may set a timeout for longer than libevent's time can be added to.
        let left = earliest.subtractingSaturated(reference).addingSaturated(second)
        if left <= 0 { return .min }
        // A tick later the coarse clock is certain to have reached the timeout. Before that, libevent would find nothing due.
        var tick: Int64 = 0
        return cplatform_coarse_now(&tick).addingSaturated(left.addingSaturated(1).multipliedSaturated(by: 1000).addingSaturated(tick))
    }

    // MARK: Waiting
    /// Asks the kernel, and if there was nothing waits. The first question ends after two rounds at the latest, whatever the guests do. The wait
    /// behind it ends within two rounds of anything of ours: a wake-up, the deadline, a source. It could go on only if guests of two levels became
    /// ready at once, and the more urgent one stayed so. While somebody observes the loop's callouts, the thread waits on the base's epoll set, so
    /// that the time of the libraries' callbacks is separate from the wait: libevent reports the end of its wait only since 2.2. Their timeouts are
    /// then up to a tick of the kernel's clock late.
    func enterBesideGuests(waiting: Bool) { /* DOES CALLOUT, of C libraries only */
        let set = state.guestObserver == nil ? nil : epollSet()
        while true {  // ends: with an event of ours, or a callback of a C library
            askBesideGuests(waiting: false)
            if !waiting || state.collected > 0 || !state.outcome.isEmpty { return }
            guard let set else { return askBesideGuests(waiting: true) }
            // Our own deadline has a descriptor in the set; the timeouts of C libraries have none.
            let left = nextGuestTimeout.subtractingSaturated(RunLoop.Instant.now.nanoseconds)
            var entry = cplatform_polled(descriptor: set, wanted: Int32(CPLATFORM_READ), ready: 0)
            if left > 0 { cplatform_poll(&entry, 1, left) }
        }
    }

    /// One call of libevent, which an observer hears of. Without waiting it ends after two rounds at the latest.
    func askBesideGuests(waiting: Bool) { /* DOES CALLOUT, of C libraries only */
        assert(state.outcome.isEmpty, "what a call has brought ends the wait")
        let observer = state.guestObserver
        let span = observer?.willCallGuests(isWaiting: waiting)
        _ = state.base.takeMostActiveEvents()
        let ownCallbacks = state.collected + state.ignored
        state.guests!.endedWithRound = false
        // Nothing else ends a poll: the deadline is not armed, and nobody writes to a working loop.
        state.guests!.isOpening = !waiting
        if !waiting { Internal.event(state.guests!.roundStart).activate() }
        enterLibevent(waiting: waiting)
        if state.guests!.isEnding {
            Internal.event(state.guests!.roundEnd).delete()
            Internal.event(state.guests!.roundStart).delete()
            state.guests!.isEnding = false
        }
        let left = state.base.activeEvents
        state.guests!.mayHoldStaleEvents = left > 0
        // `roundStart` of a poll was one of the active events.
        let own = state.collected + state.ignored - ownCallbacks + (waiting ? 0 : 1)
        if !state.guests!.endedWithRound || state.base.takeMostActiveEvents() > own + left { state.outcome.insert(.foreign) }
        if let span { observer?.didCallGuests(span, mayHaveWaited: waiting, wereCalled: state.outcome.contains(.foreign)) }
    }

    /// Has the call of libevent in progress end when the guests of this round have had their turn.
    func endWaitBesideGuests() {
        if state.guests!.isEnding { return }
        state.guests!.isEnding = true
        Internal.event(state.guests!.roundEnd).activate()
        // Comes due in the next round, should libevent begin one.
        Internal.event(state.guests!.roundStart).add(afterMicroseconds: 0)
    }

    func roundDidEnd() {
        state.guests!.endedWithRound = true
        state.base.breakLoop()
    }

    func roundDidStart() {
        if !state.guests!.isOpening { return state.base.breakLoop() }
        state.guests!.isOpening = false
        endWaitBesideGuests()
    }
}
