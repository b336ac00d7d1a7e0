// Time that moves only when told to.

import Synchronization

extension RunLoop {
    /// Time that moves only when told to, for tests: a loop made to use it never waits for the wall.
    ///
    /// Descriptors, wake-ups and performs work as ever beside it. Several loops may share one. Thread-safe.
    public final class ManualClock: Sendable {
        fileprivate struct State {
            var now: Int64
            /// The loops that use the clock: `Int64.min` for one that does not wait, else what it waits for.
            var waitingUntil: [UInt64: Int64] = [:]
        }
        private static let notWaiting = Int64.min

        private let state: Mutex<State>
        private let autoAdvances: Bool

        /// With `autoAdvance`, a loop that has nothing ready jumps to its next deadline instead of sleeping; loops that share the clock
        /// jump together, to the earliest of their deadlines, when all of them wait.
        public init(start: Instant = Instant(nanoseconds: 0), autoAdvance: Bool = false) {
            state = Mutex(State(now: start.nanoseconds))
            autoAdvances = autoAdvance
        }

        public var now: Instant { Instant(nanoseconds: state.withLock { $0.now }) }

        /// Moves the time and wakes the loops that wait for what has come. A negative duration is a precondition failure.
        public func advance(by duration: Swift.Duration) {
            precondition(duration >= .zero, "a clock does not go backwards")
            let loops = state.withLock { state -> [UInt64] in
                state.now = state.now.addingSaturated(duration.saturatedNanoseconds)
                return state.dueLoops
            }
            for id in loops { LoopRegistry.loop(id)?.notify(.wake) }
        }

        func join(_ id: UInt64) { state.withLock { $0.waitingUntil[id] = Self.notWaiting } }

        func leave(_ id: UInt64) { state.withLock { $0.waitingUntil[id] = nil } }

        /// Notes that a loop waits. True when time has moved to its deadline, by this call or before it: then it must not sleep.
        func beginWaiting(_ id: UInt64, until limit: Int64) -> Bool {
            let (isDue, others) = state.withLock { state -> (Bool, [UInt64]) in
                state.waitingUntil[id] = limit
                var others: [UInt64] = []
                let earliest = state.waitingUntil.values.min() ?? .max
                if autoAdvances && limit > state.now && earliest != Self.notWaiting && earliest != .max && earliest > state.now {
                    state.now = earliest
                    others = state.dueLoops.filter { $0 != id }
                }
                return (limit <= state.now, others)
            }
            for other in others { LoopRegistry.loop(other)?.notify(.wake) }
            return isDue
        }

        func endWaiting(_ id: UInt64) { state.withLock { $0.waitingUntil[id] = Self.notWaiting } }
    }

    /// Replaces this loop's time source. Owning thread, before anything is added.
    public func use(_ clock: ManualClock) {
        preconditionOnLoop("use(_:)")
        let isUnused = shared.withLock { shared in shared.timers.isEmpty && shared.sources.isEmpty }
        precondition(isUnused && owned.depth == 0, "a loop takes a manual clock before anything is added to it and before it runs")
        owned.manualClock?.leave(id)
        clock.join(id)
        owned.manualClock = clock
        manualClock.withLock { $0 = clock }
    }

    /// A wait in manual time: it asks the kernel, and sleeps only while neither the kernel nor the clock has anything.
    func wait(_ poller: Poller, until limit: Int64, on clock: ManualClock) -> Poller.Outcome {
        let outcome = poller.poll()
        if !poller.ready.isEmpty || outcome.mainQueueIsReady || outcome.servedForeign { return outcome }
        defer { clock.endWaiting(id) }
        if clock.beginWaiting(id, until: limit) { return Poller.Outcome() }
        return poller.wait(until: .max)
    }
}

extension RunLoop.ManualClock.State {
    /// The loops whose deadlines have come.
    fileprivate var dueLoops: [UInt64] { waitingUntil.filter { $0.value != Int64.min && $0.value <= now }.map(\.key) }
}
