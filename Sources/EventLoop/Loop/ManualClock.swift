// Time that moves only when told to.

import Synchronization

extension RunLoop {
    /// Time that moves only when told to, for tests: a loop made to use it never waits for the wall.
    ///
    /// Descriptors, wake-ups and performs work as ever beside it. Several loops may share one. Thread-safe.
    public final class ManualClock: Sendable {
        fileprivate struct State {
            var now: Int64
            /// The loops that use the clock, until they end.
            var users: [User] = []
        }
        fileprivate struct User {
            let loop: RunLoop
            /// What it waits for; nil while it does not wait.
            var limit: Int64?
        }

        private let state: Guarded<State>
        private let autoAdvances: Bool

        /// With `autoAdvance`, a loop that has nothing ready jumps to its next deadline instead of sleeping; loops that share the clock
        /// jump together, to the earliest of their deadlines, when all of them wait.
        public init(start: Instant = Instant(nanoseconds: 0), autoAdvance: Bool = false) {
            state = Guarded(State(now: start.nanoseconds))
            autoAdvances = autoAdvance
        }

        public var now: Instant { Instant(nanoseconds: state.withLock { $0.now }) }

        /// Moves the time and wakes the loops that wait for what has come. A negative duration is a precondition failure.
        public func advance(by duration: Swift.Duration) {
            precondition(duration >= .zero, "a clock does not go backwards")
            let loops = state.withLock { state -> [RunLoop] in
                state.now = state.now.addingSaturated(duration.saturatedNanoseconds)
                return state.dueLoops
            }
            for loop in loops { loop.notify(.wake) }
        }

        func join(_ loop: RunLoop) { state.withLock { $0.users.append(User(loop: loop, limit: nil)) } }

        func leave(_ loop: RunLoop) {
            let (gone, others) = state.withLock { state -> ([User], [RunLoop]) in
                let gone = state.users.filter { $0.loop === loop }
                state.users.removeAll { $0.loop === loop }
                return (gone, advanceIfAllWait(&state))
            }
            withExtendedLifetime(gone) {}  // not let go of under the lock
            for other in others { other.notify(.wake) }
        }

        /// Jumps to the earliest deadline when every loop waits. The loops whose deadlines have come by that.
        private func advanceIfAllWait(_ state: inout State) -> [RunLoop] {
            guard autoAdvances, let earliest = state.commonDeadline, earliest > state.now else { return [] }
            state.now = earliest
            return state.dueLoops
        }

        /// Notes that a loop waits. True when time has come to its deadline, by this call or before it: then it must not sleep.
        func beginWaiting(_ loop: RunLoop, until limit: Int64) -> Bool {
            let (isDue, others) = state.withLock { state -> (Bool, [RunLoop]) in
                state.setLimit(of: loop, limit)
                let others = limit > state.now ? advanceIfAllWait(&state).filter { $0 !== loop } : []
                return (limit <= state.now, others)
            }
            for other in others { other.notify(.wake) }
            return isDue
        }

        func endWaiting(_ loop: RunLoop) { state.withLock { $0.setLimit(of: loop, nil) } }
    }

    /// Replaces this loop's time source. Owning thread, before anything is added.
    public func use(_ clock: ManualClock) {
        preconditionOnLoop("use(_:)")
        let isUnused = shared.withLock { shared in shared.timers.isEmpty && shared.sources.isEmpty }
        precondition(isUnused && owned.depth == 0, "a loop takes a manual clock before anything is added to it and before it runs")
        owned.manualClock?.leave(self)
        clock.join(self)
        owned.manualClock = clock
        manualClock.withLock { $0 = clock }
    }

    /// A wait in manual time: it asks the kernel, and sleeps only while neither the kernel nor the clock has anything.
    func wait(_ poller: Poller, until limit: Int64, on clock: ManualClock) -> Poller.Outcome {
        let outcome = poller.poll()
        if !poller.ready.isEmpty || outcome.mainQueueIsReady || outcome.servedForeign { return outcome }
        // The poll may have taken the edge of a wake-up that came since the loop said that it sleeps; the word still tells.
        if sleepState.load(ordering: .sequentiallyConsistent) == SleepState.woken { return outcome }
        defer { clock.endWaiting(self) }
        if clock.beginWaiting(self, until: limit) { return Poller.Outcome() }
        return poller.wait(until: .max)
    }
}

extension RunLoop.ManualClock.State {
    fileprivate mutating func setLimit(of loop: RunLoop, _ limit: Int64?) {
        for index in users.indices where users[index].loop === loop { users[index].limit = limit }
    }

    /// The loops whose deadlines have come.
    fileprivate var dueLoops: [RunLoop] { users.filter { $0.limit.map { $0 <= now } ?? false }.map(\.loop) }

    /// The earliest deadline, when every loop waits and none has been woken; nil otherwise, and when none has a deadline.
    fileprivate var commonDeadline: Int64? {
        var earliest = Int64.max
        for user in users {
            guard let limit = user.limit, user.loop.sleepState.load(ordering: .sequentiallyConsistent) == SleepState.asleep else {
                return nil
            }
            earliest = min(earliest, limit)
        }
        return earliest == .max ? nil : earliest
    }
}
