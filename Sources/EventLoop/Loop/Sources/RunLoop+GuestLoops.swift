// Guest loops: they are asked before each poll of the kernel when they want to be called, and served like a source that is ready when that
// instant has come. A mode without guest loops pays for them with one branch in steps 5 and 7.

import Synchronization

extension RunLoop {
    /// Step 5 in a mode with guest loops.
    @inline(never)
    func findReadyBesideGuestLoops(_ mode: ModeState) -> Ready { /* DOES CALLOUT */
        // The host has slept until an instant that a guest gave. It has come, whatever the guest says now.
        let due = mode.hasSleptInHost ? dueGuestLoops(mode) : []
        mode.hasSleptInHost = false
        prepareGuestLoops(mode)
        let ready = askKernel(mode)
        return ready.union(makeReady(due, mode)).union(findDueGuestLoops(mode))
    }

    /// Step 7 in a mode with guest loops.
    @inline(never)
    func sleepBesideGuestLoops(_ frame: RunFrame, _ mode: ModeState) -> Ready { /* DOES CALLOUT */
        prepareGuestLoops(mode)
        if mode.nextGuestCall <= now().nanoseconds { return askKernel(mode).union(findDueGuestLoops(mode)) }
        return sleep(frame, mode, until: mode.nextGuestCall).union(findDueGuestLoops(mode))
    }

    /// Asks each guest loop of the mode when it wants to be called.
    func prepareGuestLoops(_ mode: ModeState) { /* DOES CALLOUT */
        mode.nextGuestCall = .max
        let (memberships, additions) = shared.withLock { _ in (mode.guestLoops, mode.guestLoopAdditions) }
        for membership in memberships {
            guard membership.source.isValid, isMember(membership, of: mode), membership.source.beginServing(on: membership, id) else {
                continue
            }
            let guest = membership.guestLoop
            _ = call(guest.core) {
                if isObserved { ask(guest, mode, Observed.self) } else { ask(guest, mode, Unobserved.self) }
                return true
            }
            // A nested run in the callout may have asked all of them, in another order.
            mode.nextGuestCall = min(mode.nextGuestCall, guest.nextCall.load(ordering: .relaxed))
        }
        // A guest that a callout has added is asked in the next pass, so the loop must not sleep before.
        if shared.withLock({ _ in mode.guestLoopAdditions != additions }) {
            mode.nextGuestCall = min(mode.nextGuestCall, now().nanoseconds)
        }
    }

    @inline(__always)
    private func ask<Observer: CalloutObserver>(_ guest: GuestLoop, _ mode: ModeState, _: Observer.Type) { /* DOES CALLOUT */
        let span = Observer.open(self, mode, guest.callout(.descriptorSource))
        guest.nextCall.store(callOutToPrepare(guest), ordering: .relaxed)
        Observer.close(self, span)
    }

    private func findDueGuestLoops(_ mode: ModeState) -> Ready { makeReady(dueGuestLoops(mode), mode) }

    /// The guest loops whose instants have come.
    private func dueGuestLoops(_ mode: ModeState) -> [SourceMembership] {
        if mode.nextGuestCall == .max { return [] }
        let present = now().nanoseconds
        if mode.nextGuestCall > present { return [] }
        return shared.withLock { _ in mode.guestLoops }.filter { $0.guestLoop.nextCall.load(ordering: .relaxed) <= present }
    }

    /// Has step 9 serve them.
    private func makeReady(_ due: [SourceMembership], _ mode: ModeState) -> Ready {
        var ready = Ready()
        for membership in due where membership.source.isValid {
            if let poller = mode.poller {
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
