// Errors that no handler takes, and reports that vanish when they are read. A message in a socket's error queue (a timestamp, the end of a zero-copy
// send) is an error that no read or write removes. A source without `.error` would be called without end. So if an error is all there is, the poller
// *mutes* the registration: a nested poller reports the next change of any kind. `checkFile` decides, because asking costs a system call.

internal import CPlatform

extension Watch {
    /// The kernel may report the readiness once only, to the first who asks (/proc/self/mounts, pressure stall triggers), and a set inside a set asks
    /// twice. Such a registration is ready when its nested poller says so, although that finds nothing.
    var isOfReportsThatVanish: Bool { trigger != .level && wanted.contains(.priority) && wanted.isSubset(of: [.priority, .error]) }
}

extension Poller {
    /// Mutes a registration that an error alone makes ready. The source is about to be called, so what is taken here reaches it.
    func muteErrorAlone(_ registration: RegistrationPointer) {
        let watch = registration.pointee.watch
        let isOneShot = watch.trigger == .oneShot
        if watch.trigger == .edge || watch.wanted.contains(.error) || registration.pointee.isMuted { return }
        // A level behind a nested poller is muted when it is collected.
        if registration.pointee.nestedPoller >= 0 && !isOneShot { return }
        let seen = Readiness.now(of: watch.descriptor, wanted: watch.wanted)
        guard seen.isErrorAlone else {
            // The error may be what stays.
            if seen.contains(.error) { registration.pointee.comparison.checkNext() }
            return
        }
        let nestedPoller = cplatform_make_nested_poller(watch.descriptor, watch.wanted.rawValue, true, false)
        // No descriptors: it is tried again later.
        if nestedPoller < 0 { return }
        guard Readiness(rawValue: cplatform_poll_nested_poller(nestedPoller)).isErrorAlone else {
            cplatform_close(nestedPoller)
            return
        }
        if registration.pointee.isAdded { takeOff(registration) }
        closeNestedPoller(registration)
        registration.pointee.nestedPoller = nestedPoller
        registration.pointee.isMuted = true
        registration.pointee.isPlain = false
        if isOneShot || add(registration) == 0 { return }
        // No memory: as before, and if that is impossible too, the source fails.
        closeNestedPoller(registration)
        registration.pointee.isMuted = false
        if connect(registration) == nil { return }
        state.stale.append(registration.pointee.owner)
        state.isWaitSpecial = true
    }

    /// Arms a muted one-shot again without making it ready by the error that it was called for. False if it must be connected again.
    func rearmMuted(_ registration: RegistrationPointer) -> Bool {
        let watch = registration.pointee.watch
        guard watch.trigger == .oneShot, !registration.pointee.isAdded else { return false }
        let seen = Readiness.now(of: watch.descriptor, wanted: watch.wanted)
        return (seen.isEmpty || seen.isErrorAlone) && add(registration) == 0
    }

    /// What a nested poller has collected.
    func takeNestedReadiness(of registration: RegistrationPointer) -> Readiness {
        let watch = registration.pointee.watch
        let seen = Readiness(rawValue: cplatform_poll_nested_poller(registration.pointee.nestedPoller))
        if seen.isEmpty && watch.isOfReportsThatVanish { return .priority }
        if watch.trigger != .level || watch.wanted.contains(.error) || seen.isEmpty { return seen }
        if seen.isErrorAlone == registration.pointee.isMuted { return seen }
        setMuted(registration, seen.isErrorAlone)
        if !seen.isErrorAlone { return seen }
        // The change reports what is ready once more.
        let more = Readiness(rawValue: cplatform_poll_nested_poller(registration.pointee.nestedPoller))
        if more.isEmpty || more.isErrorAlone { return seen }
        setMuted(registration, false)
        return more
    }

    /// Whether the nested poller reports the next change only, or what is ready as long as it lasts.
    private func setMuted(_ registration: RegistrationPointer, _ isMuted: Bool) {
        let watch = registration.pointee.watch
        let code = cplatform_set_nested_trigger(registration.pointee.nestedPoller, watch.descriptor, watch.wanted.rawValue, isMuted)
        if code == 0 { registration.pointee.isMuted = isMuted }
    }
}
