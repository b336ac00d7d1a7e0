// The bases of the modes: made late, fed by the memberships, hosts to C libraries.

import Synchronization

#if canImport(Glibc)
import Glibc
#elseif canImport(Musl)
import Musl
#else
import Darwin
#endif

extension RunLoop {
    /// The libevent base that serves `mode`, for C libraries that register their own events on it. Owning thread only; not `.common`.
    ///
    /// Their events keep the mode from being empty and count as handled sources; their callbacks run inside the wait, before
    /// the observers of `.afterWaiting` are notified, and their timers run on libevent's own coarse clock (up to 4 ms early). A nested run of the same mode
    /// inside such a callback is a precondition failure; of another mode it works. Events must be freed on this thread
    /// before it ends (`RunLoopThread`'s `teardown`, once nothing holds the thread). Traps when the process has no descriptors left for a base, nor any in reserve. The pointer
    /// is an `event_base`.
    public func withEventBase<R>(forMode mode: Mode = .default, _ body: (OpaquePointer) throws -> R) rethrows -> R {
        // First: every caller is on another thread now, and the precondition on the thread would name that as the reason.
        precondition(
            !hasEnded.load(ordering: .acquiring),
            "withEventBase was called on a run loop that has ended, and its bases with it; use a C library's events before the loop's thread ends"
        )
        preconditionOnLoop("withEventBase")
        precondition(mode != .common, "withEventBase takes one mode; .common stands for several, so name the one you mean")
        let state = shared.withLock { $0.modes.makeLocked(mode) }
        guard let poller = state.poller ?? makePoller(state) else {
            preconditionFailure(
                "withEventBase could not make an event base for run loop mode \"\(mode)\": the process has no descriptors left")
        }
        poller.hostForeignEvents()
        defer { didChangeSleep() }
        return try body(poller.base.raw)
    }

    /// Makes the mode's base and registers what the mode has. Nil when the process has no descriptors for it, nor any in reserve: the
    /// caller tries again later.
    func makePoller(_ mode: ModeState) -> Poller? {
        // Before the base, so that a main loop that has a base has the handle as well.
        guard prepareMainQueue(), let poller = newPoller(mode) else { return nil }
        if servesMainQueue(in: mode) && !watchMainQueue(poller) { return nil }
        mode.poller = poller
        observeGuests(of: poller)
        let memberships = shared.withLock { shared in shared.sources.filter { $0.modes.contains(mode.index) } }
        registerAll(memberships, in: mode) { _ in }
        return poller
    }

    private func newPoller(_ mode: ModeState) -> Poller? {
        do {
            let poller = try Poller(waking: waker.channel)
            Reserve.complete()
            return poller
        } catch {
            guard error.isShortage else { preconditionFailure("no event base could be made for run loop mode \"\(mode.name)\": \(error)") }
        }
        guard let poller = Reserve.takePoller() else { return nil }
        do {
            try poller.watch(waker.channel)
            return poller
        } catch {
            guard error.isShortage else { preconditionFailure("no event base could be made for run loop mode \"\(mode.name)\": \(error)") }
            return nil
        }
    }

    /// Has the kernel watch for many sources. Those that fail are failed after the walk: their last callouts may take others of the list
    /// out of the mode.
    func registerAll(
        _ memberships: some Sequence<SourceMembership>, in mode: ModeState, _ beforeEach: (SourceMembership) -> Void
    ) { /* DOES CALLOUT */
        let isOutermost = owned.changeBatch.beginHoldingFailures()
        for membership in memberships {
            beforeEach(membership)
            register(membership, in: mode)
        }
        if isOutermost {
            owned.changeBatch.end()
            applyChanges()
            failSources()
        }
    }

    /// Has the kernel watch for a source in one mode. Nothing when the mode has no base yet or the source is one that threads signal.
    func register(_ membership: SourceMembership, in mode: ModeState) {
        guard let poller = mode.poller, let watch = membership.source.watch, membership.source.isValid else { return }
        if membership.registration(inMode: mode.index) != nil { return }
        var stale: [UnsafeRawPointer] = []
        let owner = Unmanaged.passUnretained(membership).toOpaque()
        let result = poller.register(watch, of: membership.source.core, owner: owner, tag: Int32(mode.index), stale: &stale)
        switch result {
        case .success(let registration): membership.insert(registration)
        case .failure(let error): fail(membership.source, error)
        }
        failStale(stale)
    }

    /// Updates the kernel on what a source watches for, in every mode that has a base.
    func updateRegistrations(_ membership: SourceMembership) {
        guard let watch = membership.source.watch, membership.source.isValid else { return }
        var stale: [UnsafeRawPointer] = []
        var failure: SourceError?
        for registration in membership.registrations {
            guard let poller = modeTable[Int(registration.pointee.tag)].poller else { continue }
            if let error = poller.update(registration, watch, stale: &stale) { failure = error }
        }
        // Failing a source takes its registrations away, so it comes after the walk; and those of others perhaps, so they are held before it.
        let reused = held(stale)
        if let failure { fail(membership.source, failure) }
        failStale(reused)
    }

    /// Hears no more of a source until its registrations are updated.
    func suspendRegistrations(_ membership: SourceMembership) {
        guard var watch = membership.source.watch else { return }
        watch.wanted = []
        var stale: [UnsafeRawPointer] = []
        for registration in membership.registrations {
            _ = modeTable[Int(registration.pointee.tag)].poller?.update(registration, watch, stale: &stale)
        }
        failStale(stale)
    }

    func unregister(_ membership: SourceMembership, modeIndex: Int) {
        forgetParked(membership, modeIndex: modeIndex)
        guard let registration = membership.takeRegistration(inMode: modeIndex) else { return }
        let source = membership.source
        let descriptor = registration.pointee.watch.descriptor
        let wasOpen = modeTable[modeIndex].poller!.unregister(  // it was registered there
            registration, owner: membership,
            description: source.typeDescription + (source.label.map { " \"\($0)\"" } ?? "") + ", made at \(source.site)")
        if wasOpen || source.isValid { return }
        // The caller's mistake, and perhaps a file that the kernel goes on reporting. `failure` is where a user looks.
        source.state.withLock { state in
            if state.failure == nil { state.failure = .badDescriptor(descriptor) }
        }
    }

    /// Fails the sources whose number turned out to be another file's while they were being served.
    func failStale(_ poller: Poller) { /* DOES CALLOUT */
        let owners = poller.stale
        poller.stale = []
        failStale(owners)
    }

    /// The descriptors of these were closed, and their numbers are other files' now.
    func failStale(_ owners: [UnsafeRawPointer]) { failStale(held(owners)) }

    /// Each is alive now, but the end of one may be the end of another.
    private func held(_ owners: [UnsafeRawPointer]) -> [SourceMembership] {
        owners.map { Unmanaged<SourceMembership>.fromOpaque($0).takeUnretainedValue() }
    }

    private func failStale(_ memberships: [SourceMembership]) {
        for membership in memberships {
            fail(membership.source, membership.source.watch.map { .badDescriptor($0.descriptor) } ?? .badDescriptor(-1))
        }
    }

    /// Ends a source that cannot go on, with the reason for its `failure`.
    func fail(_ source: Source, _ error: SourceError) {
        if owned.changeBatch.hold(source, error) { return }
        source.state.withLock { state in
            if state.failure == nil { state.failure = error }
        }
        source.invalidate()
    }
}
