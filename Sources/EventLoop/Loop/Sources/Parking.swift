// Rule 4.11: a descriptor source that one mode serves often leaves the bases of other modes, until they run (decision 2).

extension RunLoop {
    /// How many servings cost as much as leaving a base and coming back.
    static let servingsBeforeParking: UInt32 = 32

    /// Counts a serving of a source on several bases, and drops what the others have collected for it: the call that follows serves that too.
    @inline(never) func countServing(_ membership: SourceMembership) {
        // An edge, or an only shot, is kept for the run that collected it, and a nested run of another mode may be quicker.
        membership.forEachRegistration { registration in registration.poller.use { $0.forgetReadiness(of: registration) } }
        let phase = owned.modeHistory.phase
        if membership.owned.countedInPhase != phase { (membership.owned.countedInPhase, membership.owned.servings) = (phase, 0) }
        membership.owned.servings += 1
        if membership.owned.servings == Self.servingsBeforeParking { park(membership) }
    }

    /// Takes a source out of the bases of modes that no run in progress is in.
    private func park(_ membership: SourceMembership) {
        var modes = ModeSet()
        membership.forEachRegistration { modes.insert(Int($0.pointee.tag)) }
        modes.forEach { modeIndex in
            if isRunning(modeIndex) { return }
            unregister(membership, modeIndex: modeIndex)
            membership.owned.parkedModes.insert(modeIndex)
            modeTable[modeIndex].owned.parked[ObjectIdentifier(membership)] = Borrowed(membership, keptBy: .record)
        }
    }

    private func isRunning(_ modeIndex: Int) -> Bool {
        // A hosted mode waits although no run is in it.
        var isRunning = owned.hosting.contains(modeIndex)
        runs.forEachFrame { if $0.mode?.index == modeIndex { isRunning = true } }
        return isRunning
    }

    @inline(never) func unpark(_ mode: ModeState) { /* DOES CALLOUT */
        let parked = mode.owned.parked.values.map { $0.object }
        mode.owned.parked = [:]
        for membership in parked { membership.owned.parkedModes.remove(mode.index) }
        registerAll(parked, in: mode)
    }

    /// The source has left the mode: it does not return.
    func forgetParked(_ membership: SourceMembership, modeIndex: Int) {
        if membership.owned.parkedModes.remove(modeIndex) { modeTable[modeIndex].owned.parked[ObjectIdentifier(membership)] = nil }
    }
}
