// Putting descriptors into a base and taking them out.

internal import CPlatform

#if canImport(Glibc)
import Glibc
#elseif canImport(Musl)
import Musl
#else
import Darwin
#endif

extension Poller {
    /// Watches a descriptor for `owner`, who stays alive until `unregister`. `tag` is for the owner.
    ///
    /// `stale` gets the owners whose descriptor was closed and its number taken by another file: they are watched no longer when this
    /// returns, and must be failed by the caller.
    func register(
        _ watch: Watch, owner: UnsafeRawPointer, tag: Int32, stale: inout [UnsafeRawPointer]
    ) -> Result<RegistrationPointer, RunLoop.SourceError> {
        if let error = checkNumber(watch, stale: &stale) { return .failure(error) }
        let registration = EventRecord.allocate(
            Registration(poller: .passUnretained(self), owner: owner, watch: watch, tag: tag))
        if let error = connect(registration) {
            EventRecord.free(registration)
            return .failure(error)
        }
        registrations.insert(registration)
        if watch.priority != .default { unusualLevels += 1 }
        return .success(registration)
    }

    /// Watches for something else, or arms a one-shot anew.
    func update(_ registration: RegistrationPointer, _ watch: Watch, stale: inout [UnsafeRawPointer]) -> RunLoop.SourceError? {
        let isUnchanged = registration.pointee.watch.wanted == watch.wanted
        let isInPlace = (registration.pointee.isAdded && !registration.pointee.isSpent) || watch.wanted.isEmpty
        if isUnchanged && isInPlace { return nil }
        if let error = checkNumber(watch, stale: &stale) { return error }
        disconnect(registration)
        registration.pointee.watch = watch
        return connect(registration)
    }

    /// Watches no more; the kernel has let go of the descriptor when this returns. `owner` is kept alive until no batch in progress can
    /// meet the registration.
    func unregister(_ registration: RegistrationPointer, owner: AnyObject) {
        disconnect(registration)
        registrations.remove(registration)
        if registration.pointee.watch.priority != .default { unusualLevels -= 1 }
        if batchesInProgress > 0 {
            buried.append((registration, owner))
        } else {
            EventRecord.free(registration)
        }
    }

    // MARK: Batches

    @inline(__always)
    func endBatch() {
        batchesInProgress -= 1
        if batchesInProgress == 0 && !buried.isEmpty { freeBuried() }
    }

    func freeBuried() {
        let dead = buried
        buried = []
        for (registration, _) in dead { EventRecord.free(registration) }
    }

    // MARK: The kernel's side

    /// Compares what the number stands for with what is watched under it.
    private func checkNumber(_ watch: Watch, stale: inout [UnsafeRawPointer]) -> RunLoop.SourceError? {
        guard let identity = FileIdentity(of: watch.descriptor), identity == watch.identity else {
            return .badDescriptor(watch.descriptor)
        }
        var found = false
        var next = registrations.first(of: watch.descriptor)
        while let registration = next {  // ends: the chain has an end
            next = registration.pointee.nextOnDescriptor
            if registration.pointee.watch.identity == identity { continue }
            found = true
            stale.append(registration.pointee.owner)
            disconnect(registration)
        }
        // A duplicate may keep the old file alive in the kernel's set, under the number that is another file's now.
        if found { rebuild() }
        return nil
    }

    /// Adds the event of a registration that had one to a new base, as it was.
    func reconnect(_ registration: RegistrationPointer) {
        let watch = registration.pointee.watch
        let gate = registration.pointee.gate
        let event = EventRecord.event(registration)
        let flags: EventFlags = gate >= 0 ? [.read, .persist] : watch.eventFlags
        event.assign(base, gate >= 0 ? gate : watch.descriptor, flags, level: watch.priority.level, Poller.collect, registration)
        if event.add() != 0 {
            // Its number has become another file's too, and nobody has looked yet: whoever watches it anew will.
            registration.pointee.isAdded = false
            ownEvents -= 1
        }
    }

    /// Adds the event, unless nothing is asked for.
    private func connect(_ registration: RegistrationPointer) -> RunLoop.SourceError? {
        let watch = registration.pointee.watch
        if watch.wanted.isEmpty { return nil }
        var flags = watch.eventFlags
        var watched = watch.descriptor
        if needsGate(registration) {
            let gate = cplatform_make_gate(watch.descriptor, watch.wanted.rawValue, watch.trigger == .edge, watch.trigger == .oneShot)
            if gate < 0 { return refusal(watch, errno) }
            registration.pointee.gate = gate
            flags = [.read, .persist]
            watched = gate
        }
        let event = EventRecord.event(registration)
        event.assign(base, watched, flags, level: watch.priority.level, Poller.collect, registration)
        let code = event.add()
        if code != 0 {
            closeGate(registration)
            return refusal(watch, code)
        }
        registration.pointee.isAdded = true
        registration.pointee.isPlain = registration.pointee.gate < 0 && watch.trigger != .oneShot
        ownEvents += 1
        return nil
    }

    /// Deletes the event and closes the gate. What was collected is forgotten.
    func disconnect(_ registration: RegistrationPointer) {
        registration.pointee.isSpent = false
        if registration.pointee.isAdded {
            EventRecord.event(registration).delete()
            registration.pointee.isAdded = false
            ownEvents -= 1
        }
        closeGate(registration)
        forgetReadiness(of: registration)
    }

    private func closeGate(_ registration: RegistrationPointer) {
        if registration.pointee.gate < 0 { return }
        close(registration.pointee.gate)
        registration.pointee.gate = -1
    }

    /// libevent 2.1 cannot watch for `.closed` alone (a hang-up matches nothing, and the wait spins), makes one kind of an edge and a
    /// level watcher of one descriptor, and knows edges only where the backend does. Such a source gets a small poller of its own,
    /// which the base watches as a plain readable descriptor.
    private func needsGate(_ registration: RegistrationPointer) -> Bool {
        let watch = registration.pointee.watch
        if watch.wanted == .closed { return true }
        let isEdge = watch.trigger == .edge
        if isEdge && !base.reportsEdges { return true }
        var next = registrations.first(of: watch.descriptor)
        while let other = next {  // ends: the chain has an end
            next = other.pointee.nextOnDescriptor
            if other != registration && other.pointee.isAdded && other.pointee.gate < 0 && (other.pointee.watch.trigger == .edge) != isEdge
            {
                return true
            }
        }
        return false
    }

    private func refusal(_ watch: Watch, _ code: Int32) -> RunLoop.SourceError {
        switch code {
        case EBADF: .badDescriptor(watch.descriptor)
        case EPERM: .notPollable(watch.descriptor)
        default: .system(operation: "watching descriptor \(watch.descriptor)", errno: code)
        }
    }
}

extension EventFlags {
    /// What an event reports. libevent's bits are ours, moved.
    @inline(__always)
    var readiness: Readiness {
        assert(Self.read.rawValue == 2 && Self.write.rawValue == 4 && Self.closed.rawValue == 0x80, "event.h numbers them so")
        return Readiness(rawValue: Int32(rawValue) >> 1 & 3 | Int32(rawValue) >> 5 & 4)
    }
}

extension Watch {
    fileprivate var eventFlags: EventFlags {
        var flags: EventFlags = []
        if wanted.contains(.read) { flags.insert(.read) }
        if wanted.contains(.write) { flags.insert(.write) }
        if wanted.contains(.closed) { flags.insert(.closed) }
        switch trigger {
        case .level: flags.insert(.persist)
        case .edge: flags.formUnion([.persist, .edge])
        case .oneShot: break
        }
        return flags
    }
}
