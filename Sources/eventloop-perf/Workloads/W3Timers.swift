// W3a, W3c and W3e: changes of one of many timers, none of which fires. One operation is one change. A pass of the loop after each batch is
// part of the time, so that nothing can be deferred.
//
// The deadlines are computed from a time that is read once, as libevent computes them from its cached time.

import CPerfPeers
import EventLoop

enum W3Timers {
    enum Change: Sendable {
        case rearm, cancel, make, makeAndAdd, release, addAndRemove, push, askNext

        var cTiming: perf_timing {
            switch self {
            case .rearm: PERF_REARM
            case .cancel: PERF_CANCEL
            case .make: PERF_MAKE
            case .makeAndAdd: PERF_MAKE_ADD
            case .release: PERF_RELEASE
            case .addAndRemove: PERF_ADD_REMOVE
            case .push, .askNext: PERF_PUSH
            }
        }
    }

    /// The timers made or cancelled between two readings of the clock.
    static let batch = 500

    static var cases: [Case] {
        var cases: [Case] = []
        for timers in [1_000, 100_000, 1_000_000] {
            let ratio = timers == 1_000_000 ? 0.15 : 0.30
            cases.append(make("W3a.rearm", "give one of %t timers another date", .rearm, timers, goals: [Goal("libevent", ratio: ratio)]))
            cases.append(
                make("W3a.cancel", "cancel one of %t timers, to be armed again", .cancel, timers, goals: [Goal("libevent", ratio: ratio)]))
        }
        for timers in [1_000, 100_000] {
            cases.append(make("W3a.make", "make, add, cancel and release, beside %t", .make, timers, goals: [Goal("libevent", ratio: 1.2)]))
        }
        cases.append(make("W3a.make-add", "of that, make and add", .makeAndAdd, 100_000, goals: [Goal("foundation", ratio: 0.10)]))
        cases.append(make("W3a.release", "of that, cancel and release", .release, 100_000, goals: [Goal("foundation", ratio: 0.002)]))
        for timers in [1_000, 100_000] {
            cases.append(
                make(
                    "W3a.add-remove", "add and remove an existing timer, beside %t", .addAndRemove, timers,
                    goals: [Goal("libevent", ratio: 1.2)])
            )
        }
        cases += [nextFire(10), nextFire(100_000)]
        for timers in [1_000, 10_000, 100_000] {
            cases.append(
                make(
                    "W3c.push", "push one of %t deadlines later by a microsecond", .push, timers,
                    goals: [Goal("libevent", ratio: 0.30), Goal("libev", ratio: 2.0)]))
        }
        return cases
    }

    /// W3e: when is the next timer due? A timer gets another date before each call.
    private static func nextFire(_ timers: Int) -> Case {
        Case(
            "W3e.next.t\(timers == 10 ? "10" : "100k")", "set a date, and ask for the next fire of \(Format.grouped(Int64(timers))) timers",
            amount: .upTo(1_000_000), goals: [], isHeavy: timers > 10_000, gated: timers == 10 ? [.allocations, .systemCalls] : [],
            contenders: [Contender("eventloop") { eventLoop(.askNext, timers, $0) }])
    }

    private static func make(_ id: String, _ title: String, _ change: Change, _ timers: Int, goals: [Goal]) -> Case {
        let size = timers == 1_000_000 ? "1m" : "\(timers / 1_000)k"
        let parts = title.split(separator: "%t", maxSplits: 1, omittingEmptySubsequences: false)
        let hasFoundation = timers <= 100_000
        return Case(
            "\(id).t\(size)", parts.joined(separator: Format.grouped(Int64(timers))), amount: .upTo(2_000_000), goals: goals,
            isHeavy: timers > 10_000, gated: timers == 1_000 ? [.allocations, .systemCalls] : [],
            contenders: [
                Contender("eventloop") { eventLoop(change, timers, $0) },
                Contender("libevent") { ops in measuredInC(ops: ops) { peer_libevent_timers(change.cTiming, timers, ops, $0) } },
            ] + (hasFoundation ? W3FoundationTimers.contenders(change, timers) : []))
    }

    static func eventLoop(_ change: Change, _ timers: Int, _ ops: Int) -> Measurement {
        measured(ops: ops) { meter in
            let loop = RunLoop.current
            let idle = IdleSource(on: loop)
            var random: UInt64 = 1
            let start = RunLoop.Instant.now.nanoseconds
            func later() -> RunLoop.Instant { RunLoop.Instant(nanoseconds: start + perf_random_delay(&random)) }
            var all: [RunLoop.Timer] = []
            all.reserveCapacity(timers)
            for _ in 0..<timers {
                let timer = RunLoop.Timer.onDemand { _ in }
                loop.add(timer)
                timer.nextFire = later()
                all.append(timer)
            }
            pass(loop)
            switch change {
            case .rearm:
                meter.begin()
                // Borrowed: an array that returns a timer retains it, which is not the library's cost.
                all.withUnsafeBufferPointer { all in
                    // A variable of its own, because accesses to a variable that closures share are checked at run time.
                    var random = perf_random(&random)
                    for _ in 0..<ops {
                        let timer = Unmanaged.passUnretained(all[Int(perf_random(&random) % UInt64(timers))])
                        let date = RunLoop.Instant(nanoseconds: start + perf_random_delay(&random))
                        timer.borrowed { $0.nextFire = date }
                    }
                }
                pass(loop)
                meter.end()
            case .cancel:
                let batch = min(timers / 2, 5_000)
                for _ in stride(from: 0, to: ops, by: batch) {
                    let some = Int(perf_random(&random) % UInt64(timers - batch))..<timers
                    meter.begin()
                    all.withUnsafeBufferPointer { all in
                        for index in some.prefix(batch) {
                            Unmanaged.passUnretained(all[index]).borrowed { $0.nextFire = .distantFuture }
                        }
                    }
                    pass(loop)
                    meter.end()
                    for timer in all[some].prefix(batch) { timer.nextFire = later() }
                    pass(loop)
                }
            case .push:
                var deadline = start + 1_000_000_000_000
                let timer = all[0]
                meter.begin()
                for _ in 0..<ops {
                    deadline += 1_000
                    timer.nextFire = RunLoop.Instant(nanoseconds: deadline)
                }
                pass(loop)
                meter.end()
            case .addAndRemove:
                // Each keeps its date: 500 timers are added and removed in turn.
                let some = (0..<batch).map { _ in RunLoop.Timer(fireAt: later()) { _ in } }
                meter.begin()
                some.withUnsafeBufferPointer { some in
                    var index = 0
                    for _ in 0..<ops {
                        Unmanaged.passUnretained(some[index]).borrowed { timer in
                            loop.add(timer)
                            loop.remove(timer)
                        }
                        index = index + 1 == batch ? 0 : index + 1
                    }
                }
                pass(loop)
                meter.end()
            case .askNext:
                meter.begin()
                all.withUnsafeBufferPointer { all in
                    var random = perf_random(&random)
                    for _ in 0..<ops {
                        let timer = Unmanaged.passUnretained(all[Int(perf_random(&random) % UInt64(timers))])
                        let date = RunLoop.Instant(nanoseconds: start + perf_random_delay(&random))
                        timer.borrowed { $0.nextFire = date }
                        precondition(loop.nextTimerFire() != nil)
                    }
                }
                meter.end()
            case .make, .makeAndAdd, .release:
                let ignored = Meter.ignored()
                defer { ignored.sample.deallocate() }
                let adding = change == .release ? ignored : meter
                let releasing = change == .makeAndAdd ? ignored : meter
                var made: [RunLoop.Timer] = []
                made.reserveCapacity(batch)
                for _ in stride(from: 0, to: ops, by: batch) {
                    adding.begin()
                    for _ in 0..<batch {
                        let timer = RunLoop.Timer(fireAt: later()) { _ in }
                        loop.add(timer)
                        made.append(timer)
                    }
                    adding.end()
                    releasing.begin()
                    made.withUnsafeBufferPointer { made in
                        for index in made.indices { Unmanaged.passUnretained(made[index]).borrowed { $0.invalidate() } }
                    }
                    made.removeAll(keepingCapacity: true)
                    pass(loop)
                    releasing.end()
                }
            }
            for timer in all { timer.invalidate() }
            idle.close()
        }.rounded(to: change == .cancel ? min(timers / 2, 5_000) : change.isBatched ? batch : 1)
    }

    private static func pass(_ loop: RunLoop) { _ = loop.run(until: .distantPast) }
}

extension W3Timers.Change {
    var isBatched: Bool { self == .make || self == .makeAndAdd || self == .release }
}

extension Measurement {
    /// Operations come in whole batches, so the number done is the requested number, rounded up.
    func rounded(to batch: Int) -> Measurement {
        var result = self
        result.ops = (ops + batch - 1) / batch * batch
        return result
    }
}
