internal import CPlatform
internal import EventLoopLibC

extension Poller {
    /// Watches a descriptor of a source for `owner`, who stays alive until `unregister`, and keeps the source alive. `tag` is for the owner. `stale`
    /// gets the owners whose number is another file's by now: they are no longer watched, and the caller must fail them.
    func register(
        _ watch: Watch, of core: SourceCorePointer, owner: UnsafeRawPointer, tag: Int32, stale: inout [UnsafeRawPointer]
    ) -> Result<RegistrationPointer, RunLoop.SourceError> {
        if let error = checkNumber(watch, stale: &stale) { return .failure(error) }
        let registration = Registration.take(for: core, in: self, owner: owner, watch: watch, tag: tag)
        if let error = connect(registration) {
            registration.giveBack()
            return .failure(error)
        }
        state.registrations.insert(registration)
        if watch.priority != .default { state.unusualPriorities += 1 }
        return .success(registration)
    }

    /// Watches for other events, or rearms a one-shot.
    func update(_ registration: RegistrationPointer, _ watch: Watch, stale: inout [UnsafeRawPointer]) -> RunLoop.SourceError? {
        let isUnchanged = registration.pointee.watch.wanted == watch.wanted
        if isUnchanged && (registration.pointee.isAdded || watch.wanted.isEmpty) { return nil }
        if let error = checkNumber(watch, stale: &stale) { return error }
        if isUnchanged && registration.pointee.isMuted && rearmMuted(registration) { return nil }
        disconnect(registration)
        registration.pointee.watch = watch
        return connect(registration)
    }

    /// Stops watching; when this returns, the kernel has dropped the descriptor. `owner` lives until no batch in progress can meet the registration.
    /// False when the kernel did not know the descriptor any more: it was closed before. `description` says whose it was.
    @discardableResult
    func unregister(_ registration: RegistrationPointer, owner: AnyObject, description: @autoclosure () -> String = "") -> Bool {
        let number = registration.pointee.watch.descriptor
        var wasOpen = disconnect(registration)
        // The kernel may have reported it earlier, without its owner.
        if state.isWaitSpecial && state.closedEarly.lacksOwner(of: number) && !isStillItself(registration) { wasOpen = false }
        if !wasOpen { recordClosedEarly(number, description()) }
        state.registrations.remove(registration)
        if registration.pointee.watch.priority != .default { state.unusualPriorities -= 1 }
        if state.batchesInProgress > 0 {
            state.retired.append((registration, owner))
        } else {
            // No batch keeps alive a source that was to fail after the wait.
            if !state.stale.isEmpty { state.stale.removeAll { $0 == registration.pointee.owner } }
            registration.giveBack()
        }
        return wasOpen
    }

    // MARK: The kernel's side
    /// Compares what the number stands for with what is watched under it.
    private func checkNumber(_ watch: Watch, stale: inout [UnsafeRawPointer]) -> RunLoop.SourceError? {
        guard let identity = FileIdentity(of: watch.descriptor), identity == watch.identity else { return .badDescriptor(watch.descriptor) }
        var next = state.registrations.first(of: watch.descriptor)
        // If the first has this file, all behind it were compared when it was inserted. So registering is not linear in the sources of one number.
        if let next, next.pointee.watch.identity == identity { return nil }
        let before = stale.count
        while let registration = next {  // ends: the chain has an end
            next = registration.pointee.nextOnDescriptor
            state.testsOnlyComparisons.increment()
            if registration.pointee.watch.identity == identity { continue }
            stale.append(registration.pointee.owner)
            disconnect(registration)
        }
        if stale.count > before { rebuildAfterReuse(of: watch.descriptor) }
        return nil
    }

    /// Has the base watch a registration's nested poller, or its number if there is none. 0, or the errno of the kernel's refusal.
    @inline(__always) func add(_ registration: RegistrationPointer) -> Int32 {
        let (watch, nestedPoller) = (registration.pointee.watch, registration.pointee.nestedPoller)
        let event = EventRecord.event(registration)
        event.assign(
            state.base, nestedPoller < 0 ? watch.descriptor : nestedPoller, nestedPoller < 0 ? watch.eventFlags : [.read, .persist],
            isInternal: state.guests != nil, Poller.collect, registration)
        let code = event.add()
        registration.pointee.isAdded = code == 0
        return code
    }

    /// Adds the event, unless nothing is asked for.
    func connect(_ registration: RegistrationPointer) -> RunLoop.SourceError? {
        let watch = registration.pointee.watch
        if watch.wanted.isEmpty { return nil }
        // Adding the descriptor to a set takes such a report.
        var vanishing: Readiness = []
        if watch.isOfReportsThatVanish { vanishing = .now(of: watch.descriptor, wanted: watch.wanted).union(registration.pointee.kept) }
        registration.pointee.kept = []
        if needsNestedPoller(watch) {
            let nestedPoller = cplatform_make_nested_poller(
                watch.descriptor, watch.wanted.rawValue, watch.trigger == .edge, watch.trigger == .oneShot)
            if nestedPoller < 0 { return .refusal(toWatch: watch.descriptor, errno) }
            registration.pointee.nestedPoller = nestedPoller
        }
        let code = add(registration)
        if code != 0 {
            closeNestedPoller(registration)
            return .refusal(toWatch: watch.descriptor, code)
        }
        let isDirect = registration.pointee.nestedPoller < 0
        if isDirect { state.registrations.countEvent(of: watch) }
        registration.pointee.isPlain = isDirect && watch.trigger != .oneShot
        if vanishing.contains(.priority) {
            // The batch in progress leaves it for the next one: its handler may connect it again without end.
            registration.pointee.servedAt = state.lastServing
            addReady(registration, for: vanishing)
        }
        return nil
    }

    /// Deletes the event and closes the nested poller. What was collected is forgotten. False when the kernel did not know the descriptor any more.
    @discardableResult
    func disconnect(_ registration: RegistrationPointer) -> Bool {
        if registration.pointee.isMuted {
            registration.pointee.isMuted = false
            registration.pointee.comparison.checkNext()
        }
        let wasOpen = registration.pointee.isAdded ? takeOff(registration) : true
        closeNestedPoller(registration)
        forgetReadiness(of: registration)
        return wasOpen
    }

    /// Deletes an event that is added. False when the kernel did not know the descriptor any more.
    @discardableResult
    func takeOff(_ registration: RegistrationPointer) -> Bool {
        let code = EventRecord.event(registration).delete()
        registration.pointee.isAdded = false
        if registration.pointee.nestedPoller < 0 { state.registrations.discountEvent(of: registration.pointee.watch) }
        if code == 0 || registration.pointee.nestedPoller >= 0 || !state.base.reportsEdges { return true }
        state.closedEarly.insert(registration.pointee.watch.descriptor, among: state.registrations.count)
        state.isWaitSpecial = true
        return false
    }

    func closeNestedPoller(_ registration: RegistrationPointer) {
        if registration.pointee.nestedPoller < 0 { return }
        cplatform_close(registration.pointee.nestedPoller)
        registration.pointee.nestedPoller = -1
    }

    /// Whether a source needs a small poller of its own, which the base watches as a plain readable descriptor. libevent 2.1 knows neither
    /// `.priority` nor `.error`, cannot watch for `.closed` alone (a hang-up matches nothing, and the wait spins), has one entry of the kernel's set
    /// for all events of a descriptor, and reports edges only if the backend does. An entry has one trigger, and reports an edge once: an event that
    /// joins it later, or is set again, is not reported for readable data. So an edge-triggered source shares none.
    private func needsNestedPoller(_ watch: Watch) -> Bool {
        watch.wanted == .closed || !watch.wanted.isDisjoint(with: [.priority, .error])
            || (watch.trigger == .edge && !state.base.reportsEdges) || !state.registrations.hasRoom(forEventOf: watch)
    }
}

extension EventFlags {
    /// What an event reports. libevent's bits are ours, moved.
    @inline(__always) var readiness: Readiness {
        assert(Self.read.rawValue == 2 && Self.write.rawValue == 4 && Self.closed.rawValue == 0x80, "event.h numbers them so")
        return Readiness(rawValue: Int32(rawValue) >> 1 & 3 | Int32(rawValue) >> 5 & 4)
    }
}

extension Watch {
    fileprivate var eventFlags: EventFlags {
        // A one-shot is taken off by `collect`: libevent would not say whether the kernel still knew the descriptor.
        let kept: EventFlags = trigger == .edge ? [.persist, .edge] : .persist
        return kept.union(EventFlags(rawValue: Int16(wanted.rawValue & 3) << 1 | Int16(wanted.rawValue & 4) << 5))
    }
}
