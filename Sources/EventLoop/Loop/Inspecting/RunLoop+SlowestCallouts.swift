// The slowest callouts of a loop, for its readers.

import Synchronization

extension RunLoop {
    /// Empties the list of the slowest callouts. Later callouts enter it again. Thread-safe.
    public func resetSlowestCallouts() { observation.load()?.slowest.reset() }

    /// Empty if nobody has read the list before.
    var slowestCalloutsNow: [SlowCallout] {
        guard let observation = observation.load(), observation.wantsSlowest else { return [] }
        return observation.slowest.list(nanosecondsPerTick: TickClock.nanosecondsPerTick)
    }

    /// The list as it was when the statistics were read. Only the first reader of the list has the loop find it: timing each callout is a few per
    /// cent of the work of a busy loop.
    struct SlowestAtReading: Sendable, Hashable {
        let list: [SlowCallout]
        let loopID: UInt64
    }
}

extension RunLoop.Statistics {
    /// The longest callouts since the loop was first asked for them or `resetSlowestCallouts()`, slowest first, at most eight, one for each place of
    /// creation.
    ///
    /// The first read of this property has the loop time its callouts from then on, until it ends; before that the list is empty. Real time;
    /// nested runs are included. Callouts without a place of creation (jobs, the main queue) are one place for each kind.
    public var slowestCallouts: [RunLoop.SlowCallout] {
        if let loop = LoopRegistry.loop(slowest.loopID), loop.observation.load()?.wantsSlowest != true {
            loop.beginObservingCallouts(for: .slowest)
        }
        return slowest.list
    }
}
