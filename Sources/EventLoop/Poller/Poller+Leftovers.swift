// Ready sources that a run which returns after one source leaves for the next: decision 45, gated as W18.single256.

internal import CPlatform

extension Poller {
    /// So many leftovers that are ready no more are worth a call of the kernel each; then it is asked about all descriptors.
    private static let mostChecks = 8

    /// Whether a source that an earlier run has left is ready, and the first of the list. Then a run that serves one asks the kernel about no other.
    /// One system call for a level-triggered source, because somebody else may have read its data. A descriptor that has become ready since waits
    /// until those that were reported with the leftovers are served.
    @inline(never) func hasVerifiedLeftover() -> Bool {
        state.verifiedLeftover = nil
        // Another level may be more urgent by now; the main queue, hosts and C libraries are ready without an entry in the list.
        guard state.isInServingOrder, state.unusualPriorities == 0, !state.isWaitSpecial, !state.asksAlways else { return false }
        for _ in 0..<Self.mostChecks {
            guard let first = ready.first else { return false }
            let seen = readinessNow(of: first)
            // It may be a closed descriptor, for which poll(2) has the same answer. The kernel reports a level-triggered source again.
            if seen.contains(.broken) && first.pointee.isReportedAgain { return false }
            if !seen.isEmpty {
                first.pointee.pending = seen
                state.verifiedLeftover = first
                return true
            }
            forgetReadiness(of: first)
        }
        return false
    }

    /// The source for a run that serves one: the least recently served. Fair to those that stand behind an always-ready one in the kernel's list.
    @inline(never) func nextSingle(_ level: Int32?) -> RegistrationPointer? {
        if level != nil { return nextOfLevels() }
        if !state.isInServingOrder {
            state.isInServingOrder = true
            // Those served never, in the order of the kernel's list.
            sortReady { UInt64(age(of: $0)) }
            return ready.first
        }
        // What was found ready in this pass may have left the list since.
        if let first = ready.first, first == state.verifiedLeftover { return first }
        return hasVerifiedLeftover() ? ready.first : nil
    }

    /// Edge-triggered and one-shot sources are leftovers until they are served, because the kernel reports them once.
    private func readinessNow(of registration: RegistrationPointer) -> Readiness {
        let watch = registration.pointee.watch
        if !registration.pointee.isReportedAgain { return registration.pointee.pending }
        let nested = registration.pointee.nestedPoller
        if nested >= 0 { return Readiness(rawValue: cplatform_poll_nested_poller(nested)) }
        return Readiness.now(of: watch.descriptor, wanted: watch.wanted)
    }
}
