// The callbacks of C libraries inside the wait, for those who observe a loop's callouts.

import Synchronization

extension RunLoop: GuestObserver {
    /// The base of a mode reports from now on when C libraries are called, or no longer does.
    func observeGuests(of poller: Poller) { poller.guestObserver = isObserved ? self : nil }

    func willCallGuests(isWaiting: Bool) -> GuestCalls? {
        let modeIndex = runs.modeIndex
        guard modeIndex >= 0, let span = openCallout(CalloutItem(kind: .hostedLibrary), modeTable[modeIndex]) else { return nil }
        // If libevent may wait, nobody can tell when the wait is over.
        if !isWaiting { observeHost(isWorking: true) }
        return GuestCalls(level: span.level, adoption: span.adoption, mayHaveWaited: isWaiting)
    }

    func didCallGuests(_ calls: GuestCalls, wereCalled: Bool) {
        // A callback may have run the loop, and that run may have found that nobody observes it any more.
        if calls.adoption != owned.observationCount { return }
        if !calls.mayHaveWaited && waker.isSleeping { observeHost(isWorking: false) }
        closeCallout(OpenCalloutSpan(level: calls.level, adoption: calls.adoption), isCalled: wereCalled)
    }
}
