// The bases of the modes: when they are made, and what is registered on them.

extension RunLoop {
    /// Makes the mode's base and registers what the mode has. Nil when the process has no descriptors for it, nor any in reserve: the
    /// caller tries again later.
    func makePoller(_ mode: ModeState) -> Poller? {
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

    /// Has the kernel watch for many sources. Those that fail are failed after the walk: their last callouts may take others of the list
    /// out of the mode.
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
        let owner = Borrowed(membership, keptBy: .caller).address
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
        membership.forEachRegistration { registration in
            _ = registration.poller.use { $0.update(registration, watch, stale: &stale) }
        }
        failStale(stale)
    }

    func unregister(_ membership: SourceMembership, modeIndex: Int) {
        forgetParked(membership, modeIndex: modeIndex)
        guard let registration = membership.takeRegistration(inMode: modeIndex) else { return }
        let source = membership.source
        let descriptor = registration.pointee.watch.descriptor
        let wasOpen = registration.poller.use {
            $0.unregister(registration, owner: membership, description: item(source.typeDescription, source.label, source.site))
        }
        if wasOpen || source.isValid { return }
        // The caller closed the descriptor first, and the kernel may go on reporting its file. `failure` says so.
        source.noteFailure(.badDescriptor(descriptor))
    }

    /// Fails the sources whose descriptors were closed, and whose numbers are other files' now.
    func failStale(_ owners: [UnsafeRawPointer]) { /* DOES CALLOUT */
        // Each is alive now, and has its reason, but the end of one may be the end of another.
        let sources = owners.map { Borrowed<SourceMembership>(at: $0, keptBy: .event).object.source }
        for source in sources { source.noteFailure(.badDescriptor(source.watch?.descriptor ?? -1)) }
        for source in sources { endFailed(source) }
    }

    /// Ends a source that cannot go on, with the reason for its `failure`: known before the callouts of others that fail with it, which may end it.
    func fail(_ source: Source, _ error: SourceError) { /* DOES CALLOUT */
        source.noteFailure(error)
        endFailed(source)
    }

    /// At once, or with the batch in progress.
    private func endFailed(_ source: Source) { /* DOES CALLOUT */
        if !owned.changeBatch.hold(source) { source.invalidate() }
    }
}
