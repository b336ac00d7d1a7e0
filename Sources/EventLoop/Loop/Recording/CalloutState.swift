// What a loop's thread is doing, as another thread sees it: for a watchdog.

import Synchronization

extension RunLoop {
    /// What the owner does at the moment.
    enum CalloutState {
        /// In a sleep, nested or not, or in no run; also after the end of the loop.
        case asleep
        /// Inside a run, between two callouts, or the owner does not publish its callouts yet.
        case working
        /// In a callout; if several are nested, in this one, the innermost.
        case inCallout(OpenCallout)
    }

    /// A callout in progress.
    struct OpenCallout {
        let kind: Recording.Kind
        let label: String?
        let site: CreationSite?
        /// When it began, and when it last went on: at its beginning, or at the end of the last run nested in it. In ticks.
        let startTicks: UInt64, resumedTicks: UInt64
        /// Changes with each callout, and with each return from a nested run.
        let serial: UInt64
    }

    /// What the owner does. Any thread; no lock. O(1).
    func calloutState() -> CalloutState {
        guard let observation = observation.load(), observation.isWatchAdopted.load(ordering: .acquiring) else {
            return runs.depth == 0 || waker.isSleeping ? .asleep : .working
        }
        if !observation.isWorking.load(ordering: .sequentiallyConsistent) { return .asleep }
        guard let span = observation.spans.innermost(), span.mark.kind.isCallout else { return .working }
        return .inCallout(
            OpenCallout(
                kind: span.mark.kind, label: span.label, site: CreationSite(word: span.mark.site), startTicks: span.startTicks,
                resumedTicks: span.resumedTicks, serial: span.serial))
    }

    /// Whether the owner publishes its callouts. Any thread.
    var hasAdoptedObservation: Bool { observation.load()?.isWatchAdopted.load(ordering: .acquiring) ?? false }

    /// Has the owner call `WatchdogAlarm.ring()` when it next begins to work: after a sleep, or with its next run. Any thread. Look at
    /// `calloutState()` afterwards: the owner may have begun before.
    func requestAlarm() { observationForWishes().alarm.store(true, ordering: .sequentiallyConsistent) }

    /// Has the owner publish its callouts, from its next pass on; wakes it. Any thread.
    func beginObservingCallouts(for reason: CalloutObservation) {
        observationForWishes().begin(reason)
        notifyOfObservers()
    }

    /// Any thread. The owner notices with its next pass.
    func endObservingCallouts(for reason: CalloutObservation) {
        observationForWishes().end(reason)
        if !belongsToParentProcess { waker.mark(.observers) }
    }

    func observationForWishes() -> Observation { observation.load() ?? observation.storeIfNil(Observation()) }

    /// The owner looks who observes it, before it sleeps again.
    func notifyOfObservers() {
        if belongsToParentProcess { return }
        // Its next run looks before it calls out.
        runsNeedCare.store(true, ordering: .sequentiallyConsistent)
        notify([.observers, .wake])
    }
}
