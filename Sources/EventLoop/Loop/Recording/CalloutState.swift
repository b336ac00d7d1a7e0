import Synchronization

extension RunLoop {
    /// What the owner does at the moment, for a watchdog on another thread.
    package enum CalloutState {
        /// In a sleep, nested or not, or in no run; also after the end of the loop.
        case asleep
        /// Inside a run, between two callouts, or the owner does not publish its callouts yet.
        case working
        /// In this callout, the innermost. `resumedTicks`: when it began, or the last run nested in it ended. `serial` changes with each of both.
        case inCallout(CalloutItem, resumedTicks: UInt64, serial: UInt64)
    }

    /// Any thread; no lock. O(1).
    package func calloutState() -> CalloutState {
        guard let observation = observation.load(), observation.isWatchAdopted.load(ordering: .acquiring) else {
            return runs.depth == 0 || waker.isSleeping ? .asleep : .working
        }
        if !observation.isWorking.load(ordering: .sequentiallyConsistent) { return .asleep }
        guard let span = observation.spans.innermost(), span.mark.kind.isCallout else { return .working }
        let item = CalloutItem(kind: span.mark.kind, site: CreationSite(word: span.mark.site), label: span.label)
        return .inCallout(item, resumedTicks: span.resumedTicks, serial: span.serial)
    }

    /// Whether the owner publishes its callouts. Any thread.
    var hasAdoptedObservation: Bool { observation.load()?.isWatchAdopted.load(ordering: .acquiring) ?? false }
    /// Whether a working loop may be in a callout that began before the loop published its callouts. The pass of that callout is not published
    /// either, even if a run nested in it has begun to publish. If the loop makes another pass, the callout is over.
    package var isInUnpublishedCallout: Bool { !hasAdoptedObservation || observation.load()?.spans.innermost()?.mark.kind == .run }
    /// Has the owner wake the watchdogs' thread when it begins to work. Any thread. Look at `calloutState()` afterwards: it may have begun before.
    package func requestAlarm() { observationForWishes().alarm.store(true, ordering: .sequentiallyConsistent) }

    /// Has the owner publish its callouts for one more watchdog, from its next pass on; wakes it. Any thread.
    package func beginObservingCallouts() {
        observationForWishes().wishes.withLock { $0.watchdogs += 1 }
        notifyOfObservers()
    }

    /// Ends that for one watchdog. Any thread. The owner notices with its next pass.
    package func endObservingCallouts() {
        observationForWishes().wishes.withLock { $0.watchdogs -= 1 }
        waker.mark(.observers)
    }

    func observationForWishes() -> Observation { observation.load() ?? observation.storeIfNil(Observation()) }

    /// The owner looks who observes it, before it sleeps again.
    func notifyOfObservers() {
        runsAreUnusual.store(true, ordering: .sequentiallyConsistent)  // its next run looks before it calls out
        notify([.observers, .wake])
    }
}

extension CalloutItem {
    /// What a loop calls that does not publish its callouts yet: the item that knows that it is being called; else, as for a block, the pass.
    package init(unpublishedOf loop: RunLoop) {
        self = loop.shared.withLock { shared in
            if let timer = shared.timers.filter({ $0.isFiring }).last { return timer.callout }
            let served = shared.sources.filter { $0.source.core.pointee.servingLoop.load(ordering: .relaxed) == loop.id }
            if let source = served.last?.source { return source.callout(source.recordedKind) }
            let observers = shared.modes.all.lazy.flatMap { $0.locked.observers }
            guard let observer = observers.first(where: { $0.isFiring }) else { return CalloutItem(kind: .pass) }
            return CalloutItem(kind: .observer, site: observer.site, label: observer.label)
        }
    }
}
