// Guest loops (rules 20.1 to 20.7). A mode without any pays one branch in steps 5 and 7.

import Synchronization

extension RunLoop {
    /// Step 5 in a mode with guest loops.
    @inline(never) func findReadyBesideGuestLoops(_ mode: ModeState) -> Ready { /* DOES CALLOUT */
        // The host has slept until the instant that a guest gave, so that guest is due.
        let due = mode.owned.hasSleptInHost ? dueGuestLoops(mode) : []
        mode.owned.hasSleptInHost = false
        prepareGuestLoops(mode)
        return askKernel(mode).union(makeReady(due, mode)).union(findDueGuestLoops(mode))
    }

    /// Step 7 in a mode with guest loops.
    @inline(never) func sleepBesideGuestLoops(_ frame: RunFrame, _ mode: ModeState) -> Ready { /* DOES CALLOUT */
        // Before the guests are asked: what is called may change what they want.
        if owned.pending.contains(.passEnd) { callPassEndListeners() }
        prepareGuestLoops(mode)
        if mode.owned.nextGuestCall <= now().nanoseconds { return askKernel(mode).union(findDueGuestLoops(mode)) }
        return sleep(frame, mode, until: mode.owned.nextGuestCall).union(findDueGuestLoops(mode))
    }

    /// Asks each guest loop of the mode when it wants to be called.
    func prepareGuestLoops(_ mode: ModeState) { /* DOES CALLOUT */
        mode.owned.nextGuestCall = .max
        // A guest that a callout adds is asked in the next pass, which comes without a sleep (`afterJoining`).
        for membership in shared.withLock({ _ in mode.locked.guestLoops }) {
            let guest = membership.guestLoop
            guard guest.isValid, guest.beginServing(on: membership, id) else { continue }
            // After the claim, so that a removal that returned before the claim is seen (Tests/Models/removal.pml).
            guard isMember(membership, of: mode) else {
                Source.endServing(guest.core)
                continue
            }
            _ = call(guest.core) {
                let span = openSpan(mode, guest.callout(.descriptorSource))
                guest.nextCall.store(callOutToPrepare(guest), ordering: .relaxed)
                closeSpan(span)
                return true
            }
            // A nested run in the callout may have asked all of them, in another order.
            mode.owned.nextGuestCall = min(mode.owned.nextGuestCall, guest.nextCall.load(ordering: .relaxed))
        }
    }

    private func findDueGuestLoops(_ mode: ModeState) -> Ready { makeReady(dueGuestLoops(mode), mode) }

    private func dueGuestLoops(_ mode: ModeState) -> [SourceMembership] {
        if mode.owned.nextGuestCall == .max { return [] }
        let present = now().nanoseconds
        if mode.owned.nextGuestCall > present { return [] }
        return shared.withLock { _ in mode.locked.guestLoops }.filter { $0.guestLoop.nextCall.load(ordering: .relaxed) <= present }
    }

    /// Has step 9 serve them.
    private func makeReady(_ due: [SourceMembership], _ mode: ModeState) -> Ready {
        var ready = Ready()
        for membership in due where membership.source.isValid {
            if let poller = mode.owned.poller {
                guard let registration = membership.registration(inMode: mode.index) else { continue }
                poller.addReady(registration)
                ready = .descriptors
            } else {
                addPolled(membership)
                ready = [.descriptors, .polled]
            }
        }
        return ready
    }
}

extension SourceMembership {
    /// Only guest loops are in the lists of guest loops.
    fileprivate var guestLoop: RunLoop.GuestLoop { unsafeDowncast(source, to: RunLoop.GuestLoop.self) }
}
