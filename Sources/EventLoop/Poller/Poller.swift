internal import EventLoopLibC

/// The libevent base of one mode: registers descriptors, waits, collects what is ready. Owning thread only, without a lock. libevent's callbacks only
/// collect: no handler runs inside the wait, so nested runs may wait on the same base. Lifecycle of the base and of all its events: made when the
/// mode first asks the kernel, freed with the loop, on the loop's thread.
final class Poller {
    // SAFETY: the whole class belongs to the loop's thread; libevent calls back on that thread.
    @exclusivity(unchecked) var state: State
    // SAFETY: the poller's own, from init to deinit.
    /// Where libevent's callbacks put what is ready.
    let collector: UnsafeMutablePointer<Collector>

    /// What the loop's thread owns.
    struct State: ~Copyable {
        fileprivate(set) var base: EventBase
        var deadline: DeadlineTimer
        var internals: [UnsafeMutablePointer<InternalRecord>] = []

        var registrations = DescriptorTable()
        /// How many registrations were compared with the file of their number because the number was watched again.
        var testsOnlyComparisons = TestsOnlyCount()
        /// One wait reported all sources in the ready list, and runs that serve one source serve them in this order (Poller+Leftovers.swift).
        var isInServingOrder = false
        /// The first of the list, if it was found ready in this pass.
        var verifiedLeftover: RegistrationPointer?
        /// How many registrations have another priority than the default one.
        var unusualPriorities = 0
        var guests: Guests?
        // SAFETY: the loop that owns the poller.
        /// Nil if nobody observes the loop's callouts.
        unowned(unsafe) var guestObserver: (any GuestObserver)?
        var closedEarly = ClosedDescriptors()
        /// The base's epoll set, once somebody has looked for it.
        var knownSet: Int32?
        /// The set of a host, with this base's set in it (Poller+Hosting.swift).
        var outerSet: Int32?
        /// The next wait is not a plain one: there are guests, closed descriptors, or owners to be failed.
        var isWaitSpecial = false
        /// The thread is inside libevent.
        fileprivate(set) var isInside = false
        var outcome = WaitResult()
        var watchesMainQueue = false
        /// A pass that does not sleep asks the kernel also without registrations: the base watches the main queue, or it is hosted.
        var asksAlways = false
        var lastServing: UInt32 = 0

        var batchesInProgress = 0
        /// The owners of registrations whose number turned out to be another file's. The loop fails them when it serves the batch.
        var stale: [UnsafeRawPointer] = []
        /// Unregistered while a batch is being served; freed after it.
        var retired: [(registration: RegistrationPointer, owner: AnyObject)] = []

        /// How many of our own callbacks ran in the wait in progress, if it needs care.
        var collected = 0
        /// How many of our own callbacks, of all waits, were reports of files that were left behind.
        var ignored = 0
    }

    /// What a wait brought, beside the ready list.
    struct WaitResult: OptionSet {
        let rawValue: UInt8
        static let mainQueue = WaitResult(rawValue: 1 << 0)
        /// A callback of a C library ran, as far as libevent's counts show.
        static let foreign = WaitResult(rawValue: 1 << 1)
        /// There are owners in `stale`.
        static let stale = WaitResult(rawValue: 1 << 2)
    }

    /// Nothing wakes its wait before `watch(_:)`.
    convenience init() throws(RunLoop.SourceError) {
        guard let base = EventBase() else { throw .system(operation: "making an event base", errno: errno) }
        try self.init(base)
        try watchDeadline()
    }

    /// Nothing ends its wait before `watchDeadline` and `watch(_:)`.
    init(_ base: consuming EventBase) throws(RunLoop.SourceError) {
        let deadline = try DeadlineTimer(reportsEdges: base.reportsEdges)
        state = State(base: base, deadline: deadline)
        collector = .allocate(capacity: 1)
        collector.initialize(to: Collector(poller: Borrowed(self, keptBy: .event)))
        state.internals.reserveCapacity(2)  // the deadline and the wake-up, in one allocation
    }

    deinit {
        assert(!state.isInside && state.batchesInProgress == 0, "a poller ends outside its wait")
        for record in state.internals {
            EventRecord.event(record).delete()
            Internal.free(record)
        }
        state.registrations.forEach { registration in
            disconnect(registration)
            registration.giveBack()
        }
        freeRetired()
        collector.deinitialize(count: 1)
        collector.deallocate()
    }

    /// What is ready and was not served yet.
    var ready: ReadyList {
        @inline(__always) _read { yield collector.pointee.ready }
        @inline(__always) _modify { yield &collector.pointee.ready }
    }

    // MARK: Waiting
    /// Collects what is ready, without waiting.
    @inline(__always) func poll() -> WaitResult { inside(waiting: false) }

    /// Waits until something is ready, the channel is written, or `deadline` (monotonic nanoseconds; `Int64.max` for none) comes. May return earlier.
    @inline(__always) func wait(until deadline: Int64) -> WaitResult {
        state.deadline.arm(deadline)
        return inside(waiting: true)
    }

    /// Inlined into the pass: on the way back from the kernel the processor has forgotten where a return leads, so each costs a dozen instructions.
    @inline(__always) private func inside(waiting: Bool) -> WaitResult { /* DOES CALLOUT, of C libraries only */
        dropLevelTriggered()
        precondition(!state.isInside, Self.nestedUnderForeign)
        state.outcome = []
        state.isInServingOrder = false
        if state.isWaitSpecial { waitSpecially(waiting: waiting) } else { enterLibevent(waiting: waiting) }
        if state.deadline.hasFired { state.deadline.acknowledgeExpiry() }
        return state.outcome
    }

    /// One call of libevent. Without guests it is one round: all events are on one level, so libevent runs every callback, then returns.
    @inline(__always) func enterLibevent(waiting: Bool) { /* DOES CALLOUT, of C libraries only */
        state.isInside = true
        let code = waiting ? state.base.wait() : state.base.poll()
        state.isInside = false
        if code < 0 { recoverFromFailedWait() }
    }

    @inline(never) private func waitSpecially(waiting: Bool) { /* DOES CALLOUT, of C libraries only */
        state.collected = 0
        collector.pointee.isPlainWait = false
        // A nested run may wait before the outer batch has failed its stale owners.
        let waiting = waiting && state.stale.isEmpty
        if state.closedEarly.isEmpty || !enterAmongClosed(waiting: waiting) {
            if state.guests != nil { enterBesideGuests(waiting: waiting) } else { enterLibevent(waiting: waiting) }
        }
        collector.pointee.isPlainWait = true
        if !state.stale.isEmpty { state.outcome.insert(.stale) }
        updateIsWaitSpecial()
    }

    /// The thread ends inside the wait, or while it serves a batch. Neither goes on, and the poller is used no more.
    func abandon() {
        state.isInside = false
        state.batchesInProgress = 0
    }

    func updateIsWaitSpecial() { state.isWaitSpecial = state.guests != nil || !state.closedEarly.isEmpty || !state.stale.isEmpty }

    static let nestedUnderForeign = """
        a run in this mode cannot nest inside a libevent callback of the same mode, because libevent's wait is not re-entrant; \
        nest in another mode, or hand the work to the loop with perform and nest there
        """

    /// Whether the kernel could report anything beside the wake-up and the deadline.
    var watchesAnything: Bool { !state.registrations.isEmpty || state.guests != nil || state.asksAlways || !state.stale.isEmpty }

    // MARK: Another base
    /// Moves everything to a new base, because the old one's set has a file that nobody can take out: its closed descriptor has a duplicate.
    /// `event_reinit` would do it in place, but libevent 2.1.12 closes its signal sockets twice there, the second time perhaps another thread's.
    /// Returns false if the base stays: C libraries have events on it, which cannot be moved, or the process has no descriptors for another one.
    func rebuild() -> Bool {
        guard state.guests == nil, !state.isInside, let fresh = EventBase() else { return false }
        for record in state.internals { Internal.event(record).delete() }
        forEachAdded { EventRecord.event($0).delete() }
        let outer = leaveOuterSet()
        state.base = fresh
        state.knownSet = nil
        for record in state.internals {
            assign(record)
            let code = Internal.event(record).add()
            precondition(code == 0, "what one base watches another one watches too; errno \(code)")
        }
        state.deadline.eventWasMoved()
        do { if let outer { try join(outer) } } catch { preconditionFailure("what one base watches another one watches too; \(error)") }
        forEachAdded { registration in
            if add(registration) == 0 || registration.pointee.nestedPoller >= 0 { return }
            // Its number was reused too. The next registration of the number finds that.
            state.registrations.discountEvent(of: registration.pointee.watch)
        }
        state.closedEarly = ClosedDescriptors()
        updateIsWaitSpecial()
        return true
    }

    func forEachAdded(_ body: (RegistrationPointer) -> Void) { state.registrations.forEach { if $0.pointee.isAdded { body($0) } } }

    // MARK: Collecting
    /// Short, and without a call except the last: it runs once for each event.
    static let collect: EventCallback = { _, what, context in
        let registration = context.unsafelyUnwrapped.assumingMemoryBound(to: Registration.self)
        let collector = registration.pointee.collector
        let seen = EventFlags(rawValue: what)
        if registration.pointee.isPlainAndIdle && collector.pointee.isPlainWait && collector.pointee.ready.hasRoom {
            collector.pointee.ready.appendInRoom(registration)
            registration.pointee.pending = seen.readiness
        } else {
            take(registration, seen)
        }
    }

    @inline(never) private static func take(_ registration: RegistrationPointer, _ seen: EventFlags) {
        registration.poller.use { $0.collect(registration, seen) }
    }

    private func note(_ registration: RegistrationPointer, _ seen: Readiness) {
        if registration.pointee.pending.isEmpty { ready.append(registration) }
        registration.pointee.pending.formUnion(seen)
    }

    @inline(never) private func collect(_ registration: RegistrationPointer, _ what: EventFlags) {
        if !state.closedEarly.isEmpty && isReportOfClosedFile(registration) {
            state.ignored += 1
            return
        }
        countCollected()
        let seen = readiness(of: registration, what)
        if seen.isEmpty { return }
        if registration.pointee.watch.trigger == .oneShot { takeOff(registration) }
        note(registration, seen)
    }

    private func readiness(of registration: RegistrationPointer, _ what: EventFlags) -> Readiness {
        let watch = registration.pointee.watch
        if registration.pointee.nestedPoller >= 0 { return takeNestedReadiness(of: registration) }
        if state.guests?.mayHoldStaleEvents == true && watch.trigger == .level {
            return Readiness.now(of: watch.descriptor, wanted: watch.wanted)
        }
        return what.readiness
    }

    /// A callback of the poller's own ran. Beside guests libevent would go on, so the wait must be ended.
    func countCollected() {
        state.collected += 1
        if state.guests != nil { endWaitBesideGuests() }
    }

    /// Level-triggered leftovers are asked of the kernel again: what made them ready may be gone.
    @inline(__always) func dropLevelTriggered() { if !ready.isEmpty { dropPresentLevelTriggered() } }

    @inline(never) private func dropPresentLevelTriggered() {
        ready.removeAll { registration in
            if registration.pointee.isReportedAgain { registration.pointee.pending = [] }
            return registration.pointee.isReportedAgain
        }
    }

    /// Has the next batch serve a registration, although the kernel has not reported it.
    func addReady(_ registration: RegistrationPointer, for readiness: Readiness = .read) {
        state.isInServingOrder = false
        if registration.pointee.isAdded { note(registration, readiness) }
    }

    /// Takes a registration off the ready list, if it stands there.
    func forgetReadiness(of registration: RegistrationPointer) {
        if registration.pointee.pending.isEmpty { return }
        registration.pointee.pending = []
        ready.remove(registration)
    }
}
