// Descriptors that were closed while the poller watched them. If a duplicate is open, the *file* stays in the epoll set, and no `epoll_ctl` can
// remove it. When it becomes ready, the kernel reports a number without an event, and libevent asks again without end, inside one wait. So if the
// kernel refuses to delete an event, the poller waits on the epoll descriptor itself, until a sweep through the set finds nothing left, or `rebuild`.

internal import CPlatform
internal import EventLoopLibC

/// Descriptors that were closed before their events left the base. The kernel's set may hold their files for ever.
struct ClosedDescriptors {
    /// For each descriptor a description of its source; empty if the source is not known.
    fileprivate var owners: [Int32: String] = [:]
    /// How many more polls come before the next sweep. A sweep costs as much as several polls, for each descriptor in the set.
    fileprivate var turnsBeforeSweep = 0
    /// The poller could not replace the base. The next sweep tries again.
    fileprivate var isStuck = false
    var isEmpty: Bool { owners.isEmpty }
    func lacksOwner(of descriptor: Int32) -> Bool { owners[descriptor] == "" }

    mutating func insert(_ descriptor: Int32, among count: Int) {
        if owners.isEmpty { putOffSweep(among: count) }
        if owners[descriptor] == nil { owners[descriptor] = "" }
    }

    fileprivate mutating func putOffSweep(among count: Int) { turnsBeforeSweep = max(16, count) }
}

extension Poller {
    /// Records which source the descriptor belonged to. The poller cannot replace a base that has guests, so the library warns at once.
    func recordClosedEarly(_ descriptor: Int32, _ owner: String) {
        state.closedEarly.owners[descriptor] = owner
        if state.guests != nil { warnOfPauses(descriptor, owner) }
    }

    /// Replaces the base if files were left behind. The first guest is about to use it, and from then on it cannot be replaced.
    func sweepBeforeFirstGuest() {
        if sweep(epollSet()) { return }
        for (descriptor, owner) in state.closedEarly.owners { warnOfPauses(descriptor, owner) }
    }

    private func warnOfPauses(_ descriptor: Int32, _ owner: String) {
        warnOfClosing(
            descriptor, owner,
            """
            . If a duplicate of it is open, the kernel goes on reporting it, and the loop asks the kernel every 10 ms instead of sleeping: \
            its base has events of a C library and cannot be replaced
            """)
    }

    private func warnOfClosing(_ descriptor: Int32, _ owner: String, _ consequence: String) {
        LibeventRuntime.warn(
            """
            descriptor \(descriptor)\(owner.isEmpty ? "" : ", of \(owner),") was closed before its source was invalidated\(consequence). \
            Invalidate the source first, and close the descriptor in onInvalidation.
            """)
    }

    /// Replaces the base: a duplicate may keep the old file in the kernel's set, under a number that is another file's now.
    func rebuildAfterReuse(of descriptor: Int32) {
        if rebuild() || !state.base.reportsEdges { return }
        state.closedEarly.insert(descriptor, among: state.registrations.count)
        state.closedEarly.isStuck = true
        state.isWaitSpecial = true
    }

    /// Whether libevent has reported, for this registration, a file that was left behind under the same number.
    func isReportOfClosedFile(_ registration: RegistrationPointer) -> Bool {
        let watch = registration.pointee.watch
        if registration.pointee.nestedPoller >= 0 || state.closedEarly.owners[watch.descriptor] == nil { return false }
        return Readiness.now(of: watch.descriptor, wanted: watch.wanted).isEmpty
    }

    // MARK: Waiting
    /// Waits on the epoll descriptor instead of in libevent, which would not return when the kernel reports a descriptor without an event. Guests
    /// have timers that the epoll descriptor knows nothing of, so beside them it asks every 10 ms at least. False when nothing was collected and the
    /// base has nothing left behind: the caller waits in libevent.
    func enterAmongClosed(waiting: Bool) -> Bool { /* DOES CALLOUT, of C libraries only */
        let set = epollSet()
        // Without the set the poller cannot look, so the first poll that finds nothing is enough.
        var isReady = set == nil
        var misses = set == nil ? 2 : 0
        while true {  // ends: with an event, or when the base has nothing left behind
            state.closedEarly.turnsBeforeSweep -= 1
            if state.closedEarly.turnsBeforeSweep < 0 && sweep(set) { return false }
            if state.guests != nil { askBesideGuests(waiting: false) } else { enterLibevent(waiting: false) }
            if !waiting || state.collected > 0 || !state.outcome.isEmpty || !state.stale.isEmpty { return true }
            misses = isReady ? misses + 1 : 0
            if misses == 3 {
                if !state.closedEarly.isStuck && sweep(set, isSpinning: true) { return false }
                _ = cplatform_wait_for_readable(-1, Self.pause)
                misses = 2
                if let set { isReady = cplatform_wait_for_readable(set, 0) }
            } else if let set {
                isReady = cplatform_wait_for_readable(set, state.guests == nil ? -1 : Self.pause)
            }
        }
    }

    private static var pause: Int32 { 10 }

    /// Looks for files that were left behind. Replaces the base if it finds some, or cannot look. False if the base must stay: some may remain.
    /// `isSpinning` means that the set is ready although libevent finds nothing. Then the base is replaced even if no file is found.
    private func sweep(_ set: Int32?, isSpinning: Bool = false) -> Bool {
        let left = set.flatMap { leftBehind(in: $0) }
        if left?.isEmpty == true && !isSpinning {
            state.closedEarly = ClosedDescriptors()
            return true
        }
        let suspects = isSpinning ? state.closedEarly.owners : [:]
        if rebuild() {
            for (descriptor, owner) in left ?? suspects {
                warnOfClosing(
                    descriptor, owner, ", and a duplicate of it is open, so the kernel went on reporting it; the event base was replaced")
            }
            return true
        }
        state.closedEarly.isStuck = true
        state.closedEarly.putOffSweep(among: state.registrations.count)
        return false
    }

    /// The descriptors under which the kernel's set holds a file that no event watches. Nil if it cannot be read, which takes a free descriptor.
    private func leftBehind(in set: Int32) -> [Int32: String]? {
        // Guests have descriptors in the set, too.
        let most = state.registrations.count + state.closedEarly.owners.count + state.internals.count + 16 + state.base.addedEvents
        var members = [Int32](repeating: -1, count: most)
        let count = members.withUnsafeMutableBufferPointer { cplatform_epoll_members(set, $0.baseAddress, Int32($0.count)) }
        guard count >= 0 else { return nil }
        var found: [Int32: Int] = [:]
        for member in members.prefix(Int(count)) where state.closedEarly.owners[member] != nil { found[member, default: 0] += 1 }
        return state.closedEarly.owners.filter { found[$0.key, default: 0] > (state.base.watches($0.key) ? 1 : 0) }
    }

    /// The base's epoll descriptor; nil with another backend. libevent has no function for it; it is the set that holds this base's timer descriptor.
    func epollSet() -> Int32? {
        if state.knownSet != nil || state.deadline.descriptor < 0 || !state.base.reportsEdges { return state.knownSet }
        state.deadline.forgetExpiry()
        let set = cplatform_find_epoll_set(state.deadline.descriptor)
        if set >= 0 { state.knownSet = set }
        return state.knownSet
    }

    // MARK: Waits that fail
    /// The kernel refuses to wait. A source whose descriptor was closed fails; any other reason ends the program.
    @inline(never) func recoverFromFailedWait() {
        let code = errno
        // select(2): "EBADF An invalid file descriptor was given in one of the sets".
        if code == EBADF && !state.base.reportsEdges {
            let before = state.stale.count
            forEachAdded { registration in
                if FileIdentity(of: registration.pointee.watch.descriptor) != nil { return }
                state.stale.append(registration.pointee.owner)
                disconnect(registration)
            }
            if state.stale.count > before {
                state.outcome.insert(.stale)
                return updateIsWaitSpecial()
            }
        }
        preconditionFailure(
            """
            the run loop cannot wait any more: \(state.base.method): \(String(cString: strerror(code))) (errno \(code)). Code that does not own \
            it has closed the descriptor that the loop waits with, or has put another file in its place
            """)
    }
}
