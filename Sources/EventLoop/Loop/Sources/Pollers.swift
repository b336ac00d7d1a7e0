// The bases of the modes: when they are made, and what is registered on them.

import Synchronization

extension RunLoop {
    /// Makes the mode's base and registers what the mode has. Nil while the process has no descriptors for it, nor any in reserve.
    func makePoller(_ mode: ModeState) -> Poller? { /* DOES CALLOUT */
        // Before the base: a main loop that has a base also has the handle.
        guard prepareMainQueue(), let poller = newPoller(mode) else { return nil }
        if servesMainQueue(in: mode) && !watchMainQueue(poller) { return nil }
        mode.owned.poller = poller
        observeGuests(of: poller)
        registerAll(shared.withLock { $0.sourcesToWatch(inMode: mode.index) }, in: mode)
        return poller
    }

    private func newPoller(_ mode: ModeState) -> Poller? {
        for isReserved in [false, true] {
            do {
                guard let poller = try isReserved ? Reserve.takePoller() : Poller() else { return nil }
                try poller.watch(waker.channel)
                if !isReserved { Reserve.complete() }
                return poller
            } catch {
                guard error.isShortage else {
                    preconditionFailure("no event base could be made for run loop mode \"\(mode.name)\": \(error)")
                }
            }
        }
        return nil
    }

    /// Has the kernel watch for many sources. Those that fail do so after the walk: their last callouts may take others out of the mode.
    func registerAll(_ memberships: [SourceMembership], in mode: ModeState) { /* DOES CALLOUT */
        let isOutermost = owned.changeBatch.begin()
        for membership in memberships { register(membership, in: mode) }
        if isOutermost {
            owned.changeBatch.end()
            applyChanges()
            failSources()
        }
    }

    /// Has the kernel watch for a source in one mode. Nothing when the mode has no base yet or the source is one that threads signal.
    func register(_ membership: SourceMembership, in mode: ModeState) {
        guard let poller = mode.owned.pollerReference, let watch = membership.source.watch, membership.source.isValid else { return }
        if membership.registration(inMode: mode.index) != nil { return }
        membership.source.willBeWatched()
        var stale: [UnsafeRawPointer] = []
        let owner = Borrowed(membership, keptBy: .record).address
        let result = poller.use { $0.register(watch, of: membership.source.core, owner: owner, tag: Int32(mode.index), stale: &stale) }
        if case .success(let registration) = result { membership.insert(registration) }
        failStale(stale)
        if case .failure(let error) = result { fail(membership.source, error) }
    }

    /// Updates the kernel on what a source watches for, in every mode that has a base.
    func updateRegistrations(_ membership: SourceMembership) {
        guard let watch = membership.source.watch, membership.source.isValid else { return }
        var stale: [UnsafeRawPointer] = []
        var failure: SourceError?
        membership.forEachRegistration { registration in
            if let error = registration.poller.use({ $0.update(registration, watch, stale: &stale) }) { failure = error }
        }
        // After the walk, because failing a source removes its registrations. A callout of a stale one may end this one.
        if let failure { membership.source.noteFailure(failure) }
        failStale(stale)
        if let failure { fail(membership.source, failure) }
    }

    /// Hears no more of a source until its registrations are updated.
    func suspendRegistrations(_ membership: SourceMembership) {
        guard var watch = membership.source.watch else { return }
        watch.wanted = []
        var stale: [UnsafeRawPointer] = []
        membership.forEachRegistration { registration in _ = registration.poller.use { $0.update(registration, watch, stale: &stale) } }
        failStale(stale)
    }

    /// The source leaves the loop.
    func unregister(_ membership: SourceMembership) {
        forgetPolled(membership)
        if !membership.owned.parkedModes.isEmpty { membership.owned.parkedModes.forEach { forgetParked(membership, modeIndex: $0) } }
        // Ends: each iteration removes one.
        while let last = membership.anyRegistration { unregister(membership, modeIndex: Int(last.pointee.tag)) }
    }

    func unregister(_ membership: SourceMembership, modeIndex: Int) {
        forgetParked(membership, modeIndex: modeIndex)
        guard let registration = membership.takeRegistration(inMode: modeIndex) else { return }
        let descriptor = registration.pointee.watch.descriptor
        let wasOpen = registration.poller.use {
            $0.unregister(registration, owner: membership, description: item(membership.source))
        }
        // The caller closed the descriptor first, and the kernel may go on reporting its file.
        if !wasOpen && !membership.source.isValid { membership.source.noteFailure(.badDescriptor(descriptor)) }
    }

    /// Fails the sources whose descriptors were closed, and whose numbers are other files' now.
    func failStale(_ owners: [UnsafeRawPointer]) { /* DOES CALLOUT */
        // Each is alive now, and has its reason, but the end of one may be the end of another.
        let sources = owners.map { Borrowed<SourceMembership>(at: $0, keptBy: .record).object.source }
        for source in sources { source.noteFailure(.badDescriptor(source.watch?.descriptor ?? -1)) }
        for source in sources { endFailed(source) }
    }

    /// Ends a source that cannot go on, with the reason for its `failure`: known before the callouts of others that fail with it, which may end it.
    func fail(_ source: Source, _ error: SourceError) { /* DOES CALLOUT */
        source.noteFailure(error)
        endFailed(source)
    }

    /// At once, or with the batch in progress.
    private func endFailed(_ source: Source) { /* DOES CALLOUT */ if !owned.changeBatch.hold(source) { source.invalidate() } }

    /// The libevent base that serves `mode`, for C libraries that register their own events on it. Owning thread only; not `.common`.
    ///
    /// Their events keep the mode from being empty and count as handled sources; their callbacks run inside the wait, before the observers of
    /// `.afterWaiting` are notified, and their timers run on libevent's own coarse clock (up to 4 ms early). A nested run of the same mode inside
    /// such a callback is a precondition failure; of another mode it works. Events must be freed on this thread before it ends (`RunLoopThread`'s
    /// `teardown`, once nothing holds the thread). Traps if the process has no descriptors left for a base. The pointer is an `event_base`.
    public func withEventBase<R, Failure>(
        forMode mode: Mode = .default, _ body: (OpaquePointer) throws(Failure) -> R
    ) throws(Failure) -> R {
        // First, because every caller is on another thread then, and the next precondition would blame the thread.
        precondition(
            !hasEnded.load(ordering: .acquiring),
            "withEventBase was called on a run loop that has ended, and its bases with it; use a C library's events before the loop's thread ends"
        )
        preconditionOnLoop("withEventBase")
        precondition(mode != .common, "withEventBase takes one mode; .common stands for several, so name the one you mean")
        let state = shared.withLock { $0.modes.makeLocked(mode) }
        guard let poller = state.owned.poller ?? makePoller(state) else {
            preconditionFailure(
                "withEventBase could not make an event base for run loop mode \"\(mode)\": the process has no descriptors left")
        }
        poller.hostForeignEvents()
        defer { didChangeSleep() }
        return try body(poller.state.base.raw)
    }
}
