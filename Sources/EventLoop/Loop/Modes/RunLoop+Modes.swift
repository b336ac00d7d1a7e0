extension RunLoop {
    /// The modes that have or had an item; a copy, in no order. `.common` is not among them. Thread-safe. See `CFRunLoopCopyAllModes`.
    public var modes: Set<Mode> { Set(modeTable.all.map(\.name)) }
    /// The modes that `.common` stands for; at first just `.default`. Thread-safe.
    public var commonModes: Set<Mode> { shared.withLockIfOwn { Set($0.modes.commonNames) } ?? [] }

    /// Makes a mode one of the common ones, for good: every item that was or will be added to `.common` is in it. Calls `schedule` of
    /// custom sources that it gains, on the calling thread. Twice is once. Thread-safe. See `CFRunLoopAddCommonMode`.
    public func addCommonMode(_ mode: Mode) { /* DOES CALLOUT */
        precondition(mode != .common, ".common stands for the set of common modes and cannot be one of them; name a mode of your own")
        var gained = shared.withLock { $0.addCommonMode(mode) }[...]
        CallInProgress.call {
            CallInProgress.callForEach({ gained.popFirst() }, { self.afterJoiningCommonMode($0.0, $0.1) })
        } then: {
            // Timers were filed as changes; closures queued for the common modes may be performed in this one now.
            if self.isCurrent { self.applyChanges() }
            self.waker.mark(.queues)
            self.notifyIfElsewhere(.queues)
        }
    }

    private func afterJoiningCommonMode(_ membership: SourceMembership, _ mode: ModeState) { /* DOES CALLOUT */
        let source = membership.source
        // Held until the callouts have returned; nobody is notified of an invalid source.
        guard source.rundown.enter() else { return }
        CallInProgress.call({ afterJoining(membership, ModeSet(mode.index), isQueued: source.kind.isWatched) }, then: { source.endUse() })
    }

    /// Keeps `mode` from being empty until the token is cancelled or released; with `.common`, every common mode. Thread-safe.
    public func keepAlive(forMode mode: Mode = .default) -> KeepAlive {
        let queues = shared.withLock { shared in
            let queues = mode == .common ? shared.modes.common : shared.modes.makeLocked(mode)
            queues.changePopulationLocked(by: 1)
            return queues
        }
        return KeepAlive { [self] in
            shared.withLockIfOwn { _ in queues.changePopulationLocked(by: -1) }
            notifyIfElsewhere(.wake)
        }
    }
}

extension LoopShared {
    fileprivate mutating func addCommonMode(_ name: RunLoop.Mode) -> [(SourceMembership, ModeState)] {
        guard modes.addCommonNameLocked(name) else { return [] }
        var gained: [(SourceMembership, ModeState)] = []
        // A mode without items is not made just because it is common.
        for membership in sources.filter({ $0.locked.isCommon }) {
            let mode = modes.makeLocked(name)
            guard put(membership, in: mode) else { continue }
            if membership.source.kind.isWatched { changes.enqueueChange(of: membership) }
            gained.append((membership, mode))
        }
        for timer in timers.filter(\.listing.isCommon) {
            guard let membership = Self.put(timer, in: modes.makeLocked(name), timer.state.value.loopID) else { continue }
            changes.enqueueJoin(timer, membership)
        }
        for observer in commonObservers { modes.makeLocked(name).insertObserverLocked(observer) }
        return gained
    }
}
