// Lifecycle of a manual clock: held by each loop that uses it or has used it, until the `RunLoop` object ends. So no reader needs a lock.

import Synchronization

/// A loop's time: the monotonic clock, or a manual one. The owner sets it, any thread reads it.
struct LoopTime: ~Copyable, @unchecked Sendable {
    // SAFETY: an atomic, and what it points to is Sendable and held until the loop ends.

    /// The manual clock, which `LoopOwned.clocks` holds; nil while the loop goes by the monotonic clock.
    private let newest = Atomic<UnsafeRawPointer?>(nil)
    @inline(__always) var manualClock: RunLoop.ManualClock? { newest.load(ordering: .acquiring).map(Self.clock) }
    @inline(__always) var now: RunLoop.Instant { manualClock?.now ?? .now }

    @inline(never) private static func clock(_ pointer: UnsafeRawPointer) -> RunLoop.ManualClock {
        Borrowed<RunLoop.ManualClock>(at: pointer, keptBy: .loop).object
    }

    /// From now on the loop goes by this clock. Owning thread only.
    borrowing func use(_ clock: RunLoop.ManualClock) {
        newest.store(UnsafeRawPointer(Borrowed(clock, keptBy: .loop).address), ordering: .releasing)
    }
}

/// A source that goes by the wall clock. While it is in a loop with a manual clock, that clock calls it.
protocol WallClockObserver: AnyObject, Sendable {
    /// The clock has moved, and was set by this many nanoseconds; zero if time has only passed. Any thread, outside the clock's lock.
    func wallClockMoved(settingItBy jump: Int64)
}

extension RunLoop {
    /// Time that moves only when the program advances it, for tests: a loop that uses it never waits for real time.
    ///
    /// Descriptors, wake-ups and performs work as always. Several loops may share one. Thread-safe.
    public final class ManualClock: Sendable {
        fileprivate struct State {
            var now: Int64
            /// What the wall time is ahead of `now`.
            var wallOffset: Int64
            /// Those who go by the wall time, each with the number of modes of the clock's loops that it is in.
            var observers: [(observer: any WallClockObserver, count: Int)] = []
            /// The loops that use the clock, until they end.
            var users: [User] = []
            /// Counts how often a loop came from its work to wait: that work may have made descriptors of loops ready that have not woken yet.
            var turn: UInt64 = 0
            var presentObservers: [any WallClockObserver] { observers.filter { $0.count > 0 }.map(\.observer) }

            mutating func setLimit(of loop: RunLoop, _ limit: Int64?, asked: UInt64? = nil) {
                for index in users.indices where users[index].loop === loop {
                    users[index].limit = limit
                    if let asked { users[index].asked = asked }
                }
            }

            /// The loops that have not asked the kernel in this turn, and have not been asked to.
            mutating func takeThoseToAsk() -> [RunLoop] {
                var loops: [RunLoop] = []
                for index in users.indices where users[index].asked != turn && users[index].requested != turn {
                    users[index].requested = turn
                    loops.append(users[index].loop)
                }
                return loops
            }

            mutating func advance(to instant: Int64) -> Steps {
                now = instant
                let due = users.filter { $0.limit.map { $0 <= instant } ?? false }
                return Steps(wake: due.map(\.loop), observers: presentObservers)
            }

            /// The earliest deadline, when every loop waits and none has been woken; nil otherwise, and when none has a deadline.
            var commonDeadline: Int64? {
                var earliest = Int64.max
                for user in users {
                    guard let limit = user.limit, user.loop.waker.isUndisturbed else { return nil }
                    earliest = min(earliest, limit)
                }
                return earliest == .max ? nil : earliest
            }
        }
        fileprivate struct User {
            let loop: RunLoop
            /// The deadline that it waits for; nil while it does not wait.
            var limit: Int64?
            /// The turn since which it has asked the kernel, and found nothing.
            var asked: UInt64 = 0
            /// The turn in which it was last asked to poll again.
            var requested: UInt64 = 0
        }

        /// The next step of a loop that has asked the kernel.
        enum Verdict {
            /// Its deadline has come. A source of the wall time may be ready now.
            case due(isWallTimeObserved: Bool)
            case sleep
            /// Another loop has worked meanwhile.
            case askAgain(turn: UInt64)
        }

        private let state: LoopLock<State>
        private let autoAdvances: Bool

        /// With `autoAdvance`, a loop that has nothing ready jumps to its next deadline instead of sleeping; loops that share the clock jump
        /// together, to the earliest of their deadlines, when all of them wait.
        public init(start: Instant = Instant(nanoseconds: 0), autoAdvance: Bool = false) {
            let firstWallTime: Int64 = 978_307_200_000_000_000  // 2001-01-01T00:00:00Z
            state = LoopLock(State(now: start.nanoseconds, wallOffset: firstWallTime.subtractingSaturated(start.nanoseconds)))
            autoAdvances = autoAdvance
        }

        /// The time to which the clock was advanced.
        public var now: Instant { Instant(nanoseconds: state.withLock { $0.now }) }

        /// Moves the time and wakes the loops that wait for what has come. A negative duration is a precondition failure.
        public func advance(by duration: Swift.Duration) {
            precondition(duration >= .zero, "a clock does not go backwards")
            carryOut(state.withLock { $0.advance(to: $0.now.addingSaturated(duration.saturatedNanoseconds)) })
        }

        /// The wall time of the loops that use this clock. It moves with `now`, and starts at 2001-01-01T00:00:00Z. Setting it is a jump, as
        /// if an administrator had set the machine's clock: it moves no `now`. Saturates. Thread-safe.
        public var wallTime: WallTime {
            get { WallTime(nanosecondsSince1970: state.withLock { $0.now.addingSaturated($0.wallOffset) }) }
            set {
                let new = newValue.nanosecondsSince1970
                let (jump, observers) = state.withLock { state -> (Int64, [any WallClockObserver]) in
                    let old = state.now.addingSaturated(state.wallOffset)
                    state.wallOffset = new.subtractingSaturated(state.now)
                    return (new.subtractingSaturated(old), state.presentObservers)
                }
                if jump == 0 { return }
                for observer in observers { observer.wallClockMoved(settingItBy: jump) }
            }
        }

        /// When the wall time comes if nobody sets it before.
        func instant(of date: WallTime) -> Instant {
            Instant(nanoseconds: state.withLock { date.nanosecondsSince1970.subtractingSaturated($0.wallOffset) })
        }

        /// An observer was added to a mode of a loop that uses this clock, or (-1) removed from it.
        func count(_ observer: any WallClockObserver, _ difference: Int) {
            state.withLock { state in
                guard let index = state.observers.firstIndex(where: { $0.observer === observer }) else {
                    return state.observers.append((observer, difference))
                }
                state.observers[index].count += difference
                if state.observers[index].count == 0 { state.observers.remove(at: index) }  // the caller holds it
            }
        }

        func join(_ loop: RunLoop) { state.withLock { $0.users.append(User(loop: loop)) } }

        func leave(_ loop: RunLoop) {
            let steps = state.withLock { state in
                state.users.removeAll { $0.loop === loop }  // the caller holds it
                state.turn += 1
                return advanceIfAllWait(&state)
            }
            carryOut(steps)
        }

        /// Jumps to the earliest deadline when every loop waits and has asked the kernel since one worked; has those asked that have not (rule 14.4).
        private func advanceIfAllWait(_ state: inout State) -> Steps {
            guard autoAdvances, let earliest = state.commonDeadline, earliest > state.now else { return Steps() }
            if state.users.contains(where: { $0.asked != state.turn }) { return Steps(ask: state.takeThoseToAsk()) }
            return state.advance(to: earliest)
        }

        /// The consequences of a change, to be carried out outside the lock.
        fileprivate struct Steps {
            var wake: [RunLoop] = []
            var ask: [RunLoop] = []
            /// Of the wall time, which has moved.
            var observers: [any WallClockObserver] = []
        }

        private func carryOut(_ steps: Steps) {
            for observer in steps.observers { observer.wallClockMoved(settingItBy: 0) }
            for loop in steps.wake { loop.notify(.wake) }
            // Not a wake-up: the loop asks the kernel and goes back to its wait, and nobody notices.
            for loop in steps.ask { loop.waker.channel.wake() }
        }

        /// A loop stops working and begins to wait. Begins a turn, and returns it: each poll of the kernel that follows counts for this turn.
        func comeToWait() -> UInt64 {
            // In one step: a turn that another loop begins next is not this loop's.
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
                if limit <= state.now { return (.due(isWallTimeObserved: false), Steps()) }
                if autoAdvances && turn != state.turn && state.commonDeadline != nil { return (.askAgain(turn: state.turn), Steps()) }
                var steps = advanceIfAllWait(&state)
                steps.wake.removeAll { $0 === loop }
                return (limit <= state.now ? .due(isWallTimeObserved: !steps.observers.isEmpty) : .sleep, steps)
            }
            carryOut(steps)
            return verdict
        }

        func endWaiting(_ loop: RunLoop) { state.withLock { $0.setLimit(of: loop, nil) } }
    }

    /// What the loop's wall clock says: the system's, or that of its `ManualClock`. Thread-safe.
    public var wallTime: WallTime { time.manualClock?.wallTime ?? .now }

    /// Replaces this loop's time source. Owning thread, before anything is added.
    public func use(_ clock: ManualClock) {
        preconditionOnLoop("use(_:)")
        let isUnused = shared.withLock { shared in shared.timers.isEmpty && shared.sources.isEmpty }
        precondition(isUnused && runs.depth == 0, "a loop takes a manual clock before anything is added to it and before it runs")
        time.manualClock?.leave(self)
        clock.join(self)
        owned.clocks.append(clock)
        time.use(clock)
    }

    /// A wait in manual time: it asks the kernel, and sleeps only while neither the kernel nor the clock has anything.
    func wait(_ poller: Poller, until limit: Int64, on clock: ManualClock) -> Poller.WaitResult {
        defer { clock.endWaiting(self) }
        var turn = clock.comeToWait()
        // Ends: with an event, a wake-up or the deadline; an iteration without any is for another loop that would advance the clock.
        while true {
            let outcome = poller.poll()
            if isWaitOver(outcome, poller) { return outcome }
            switch clock.beginWaiting(self, until: limit, since: turn) {
            case .due(let isWallTimeObserved): return isWallTimeObserved ? poller.poll() : Poller.WaitResult()
            case .askAgain(let newer): turn = newer
            case .sleep:
                let outcome = poller.wait(until: .max)
                if isWaitOver(outcome, poller) { return outcome }
                turn = clock.turn
            }
        }
    }

    /// Whether a wait brought something. The poll may have taken the edge of a wake-up since the loop said that it sleeps; the word still says so.
    private func isWaitOver(_ outcome: Poller.WaitResult, _ poller: Poller) -> Bool {
        !poller.ready.isEmpty || !outcome.isEmpty || waker.isWoken
    }
}
