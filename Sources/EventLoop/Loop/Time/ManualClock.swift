// Time that moves only when the program advances it.

import Synchronization

extension RunLoop {
    /// Time that moves only when the program advances it, for tests: a loop that uses it never waits for real time.
    ///
    /// Descriptors, wake-ups and performs work as always. Several loops may share one. Thread-safe.
    public final class ManualClock: Sendable {
        fileprivate struct State {
            var now: Int64
            /// The loops that use the clock, until they end.
            var users: [User] = []
            /// Counts how often a loop came from its work to wait: that work may have made descriptors of other loops ready, which wait as
            /// far as the clock can tell and have not woken yet.
            var turn: UInt64 = 0
        }
        fileprivate struct User {
            let loop: RunLoop
            /// The deadline that it waits for; nil while it does not wait.
            var limit: Int64?
            /// The turn since which it has asked the kernel, and found nothing.
            var asked: UInt64 = 0
            /// The turn in which it was asked to ask again.
            var told: UInt64 = 0
        }

        /// The next step of a loop that has asked the kernel.
        enum Verdict {
            /// Its deadline has come.
            case due
            case sleep
            /// Another loop has worked meanwhile.
            case askAgain(turn: UInt64)
        }

        private let state: ForkAwareMutex<State>
        private let autoAdvances: Bool

        /// With `autoAdvance`, a loop that has nothing ready jumps to its next deadline instead of sleeping; loops that share the clock
        /// jump together, to the earliest of their deadlines, when all of them wait.
        public init(start: Instant = Instant(nanoseconds: 0), autoAdvance: Bool = false) {
            state = ForkAwareMutex(State(now: start.nanoseconds))
            autoAdvances = autoAdvance
        }

        /// The time to which the clock was advanced.
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
            let (gone, steps) = state.withLock { state -> ([User], Steps) in
                let gone = state.users.filter { $0.loop === loop }
                state.users.removeAll { $0.loop === loop }
                state.turn += 1
                return (gone, advanceIfAllWait(&state))
            }
            withExtendedLifetime(gone) {}  // not released under the lock
            carryOut(steps)
        }

        /// Jumps to the earliest deadline when every loop waits and has asked the kernel since the last of them worked; has those asked that
        /// have not. Otherwise what one loop writes to another's descriptor would be read later than it was written.
        private func advanceIfAllWait(_ state: inout State) -> Steps {
            guard autoAdvances, let earliest = state.commonDeadline, earliest > state.now else { return Steps() }
            let toAsk = state.takeThoseToAsk()
            if !toAsk.isEmpty || state.users.contains(where: { $0.asked != state.turn }) { return Steps(ask: toAsk) }
            state.now = earliest
            return Steps(wake: state.dueLoops)
        }

        /// The consequences of a change, to be carried out outside the lock.
        private struct Steps {
            var wake: [RunLoop] = []
            var ask: [RunLoop] = []
        }

        private func carryOut(_ steps: Steps) {
            for loop in steps.wake { loop.notify(.wake) }
            // Not a wake-up: the loop asks the kernel and goes back to its wait, and nobody notices.
            for loop in steps.ask { loop.waker.channel.wake() }
        }

        /// A loop comes from its work to wait. The turn that begins with it: what the loop asks the kernel from here on is asked since then.
        func comeToWait() -> UInt64 {
            state.withLock { state in
                state.turn += 1
                return state.turn
            }
        }

        var turn: UInt64 { state.withLock { $0.turn } }

        /// Records that a loop waits, and has found nothing since `turn`. With autoAdvance this may advance the time to its deadline.
        func beginWaiting(_ loop: RunLoop, until limit: Int64, since turn: UInt64) -> Verdict {
            let (verdict, steps) = state.withLock { state -> (Verdict, Steps) in
                state.setLimit(of: loop, limit, asked: turn)
                if limit <= state.now { return (.due, Steps()) }
                if autoAdvances && turn != state.turn && state.commonDeadline != nil { return (.askAgain(turn: state.turn), Steps()) }
                var steps = advanceIfAllWait(&state)
                steps.wake.removeAll { $0 === loop }
                return (limit <= state.now ? .due : .sleep, steps)
            }
            carryOut(steps)
            return verdict
        }

        func endWaiting(_ loop: RunLoop) { state.withLock { $0.setLimit(of: loop, nil) } }
    }

    /// Replaces this loop's time source. Owning thread, before anything is added.
    public func use(_ clock: ManualClock) {
        preconditionOnLoop("use(_:)")
        let isUnused = shared.withLock { shared in shared.timers.isEmpty && shared.sources.isEmpty }
        precondition(isUnused && runs.depth == 0, "a loop takes a manual clock before anything is added to it and before it runs")
        time.manualClock?.leave(self)
        clock.join(self)
        time.use(clock)
    }

    /// A wait in manual time: it asks the kernel, and sleeps only while neither the kernel nor the clock has anything.
    func wait(_ poller: Poller, until limit: Int64, on clock: ManualClock) -> Poller.WaitResult {
        defer { clock.endWaiting(self) }
        var turn = clock.comeToWait()
        while true {  // ends: with an event, a wake-up or the deadline; a turn without any is for another loop that would advance the clock
            let outcome = poller.poll()
            if isWaitOver(outcome, poller) { return outcome }
            switch clock.beginWaiting(self, until: limit, since: turn) {
            case .due: return Poller.WaitResult()
            case .askAgain(let newer): turn = newer
            case .sleep:
                let outcome = poller.wait(until: .max)
                if isWaitOver(outcome, poller) { return outcome }
                turn = clock.turn
            }
        }
    }

    /// Whether a wait brought something. The poll may have taken the edge of a wake-up that came since the loop said that it sleeps; the word
    /// still says so.
    private func isWaitOver(_ outcome: Poller.WaitResult, _ poller: Poller) -> Bool {
        !poller.ready.isEmpty || !outcome.isEmpty
            || waker.isWoken
    }
}

extension RunLoop.ManualClock.State {
    fileprivate mutating func setLimit(of loop: RunLoop, _ limit: Int64?, asked: UInt64? = nil) {
        for index in users.indices where users[index].loop === loop {
            users[index].limit = limit
            if let asked { users[index].asked = asked }
        }
    }

    /// The loops that have not asked the kernel in this turn, and have not been asked to.
    fileprivate mutating func takeThoseToAsk() -> [RunLoop] {
        var loops: [RunLoop] = []
        for index in users.indices where users[index].asked != turn && users[index].told != turn {
            users[index].told = turn
            loops.append(users[index].loop)
        }
        return loops
    }

    /// The loops whose deadlines have come.
    fileprivate var dueLoops: [RunLoop] { users.filter { $0.limit.map { $0 <= now } ?? false }.map(\.loop) }

    /// The earliest deadline, when every loop waits and none has been woken; nil otherwise, and when none has a deadline.
    fileprivate var commonDeadline: Int64? {
        var earliest = Int64.max
        for user in users {
            guard let limit = user.limit, user.loop.waker.isUndisturbed else {
                return nil
            }
            earliest = min(earliest, limit)
        }
        return earliest == .max ? nil : earliest
    }
}
