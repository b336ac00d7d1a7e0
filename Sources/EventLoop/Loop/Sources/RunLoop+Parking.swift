// Descriptors in several modes that have run.
//
// Each mode has a base of its own, so that another mode begins to run at no cost, however many sources it has. The price is the kernel's: it
// reports each event to every base that the descriptor is on, 45 ns a base. A source that is served again and again in one mode would pay
// it for modes that do not run. So it leaves their bases after a while, and returns when they run: by then it has paid as much as that
// costs, and no more, so that neither many events nor many changes of mode cost more than twice what the better of the two ways would.

extension RunLoop {
    /// How many servings cost as much as leaving a base and coming back.
    static let servingsBeforeParking: UInt32 = 32

    /// Counts a serving of a source that is on several bases, and drops what the others have collected for it: the call that follows
    /// serves that too.
    @inline(never)
    func countServing(_ membership: SourceMembership) {
        forgetCollected(membership)
        let epoch = owned.modeHistory.epoch
        if membership.countedInEpoch != epoch { (membership.countedInEpoch, membership.servings) = (epoch, 0) }
        membership.servings += 1
        if membership.servings == Self.servingsBeforeParking { park(membership) }
    }

    /// An edge, or an only shot, is kept for the run that collected it, and a nested run of another mode may be quicker.
    private func forgetCollected(_ membership: SourceMembership) {
        var next = membership.anyRegistration
        while let registration = next {  // ends: the list has an end
            next = registration.pointee.nextOfOwner
            registration.poller._withUnsafeGuaranteedRef { $0.forgetReadiness(of: registration) }
        }
    }

    /// Takes a source out of the bases of modes that no run in progress is in.
    private func park(_ membership: SourceMembership) {
        for modeIndex in membership.registrations.map({ Int($0.pointee.tag) }) where !isRunning(modeIndex) {
            unregister(membership, modeIndex: modeIndex)
            membership.parkedModes.insert(modeIndex)
            modeTable[modeIndex].parked[ObjectIdentifier(membership)] = Unmanaged.passUnretained(membership)
        }
    }

    private func isRunning(_ modeIndex: Int) -> Bool {
        // A hosted mode waits although no run is in it.
        var isRunning = owned.hosting.contains(modeIndex)
        runs.forEachFrame { if $0.mode?.index == modeIndex { isRunning = true } }
        return isRunning
    }

    /// Puts the sources that have left the mode's base back.
    @inline(never)
    func unpark(_ mode: ModeState) { /* DOES CALLOUT */
        let parked = mode.parked
        mode.parked = [:]
        registerAll(parked.values.map { $0.takeUnretainedValue() }, in: mode) { $0.parkedModes.remove(mode.index) }
    }

    /// The source has left the mode, or the loop: it does not return.
    func forgetParked(_ membership: SourceMembership, modeIndex: Int) {
        if membership.parkedModes.remove(modeIndex) { modeTable[modeIndex].parked[ObjectIdentifier(membership)] = nil }
    }

    func forgetParked(_ membership: SourceMembership) {
        membership.parkedModes.forEach { modeTable[$0].parked[ObjectIdentifier(membership)] = nil }
        membership.parkedModes = ModeSet()
    }
}
