// W3a with dates that rise, as those of timeouts with one duration do: all timers are added, get a later date, and are cancelled, each time in the
// order of their dates. One operation is one timer. A pass of the loop after each of the three is part of the time.

import CPerfPeers
import EventLoop

enum W3OrderedTimers {
    private enum Change: String, CaseIterable {
        case add, rearm, cancel

        var inC: perf_ordered {
            switch self {
            case .add: PERF_ORDERED_ADD
            case .rearm: PERF_ORDERED_REARM
            case .cancel: PERF_ORDERED_CANCEL
            }
        }

        var title: String {
            switch self {
            case .add: "add 100,000 timers in the order of their dates"
            case .rearm: "give each a later date, in that order"
            case .cancel: "cancel each, in that order"
            }
        }
    }

    private static let timers = 100_000
    private static let step: Int64 = 10_000

    static var cases: [Case] {
        Change.allCases.map { change in
            Case(
                "W3a.ordered-\(change).t100k", change.title, amount: .upTo(1_000_000),
                goals: [Goal("libevent", ratio: change == .cancel ? 0.6 : 1.0)], isHeavy: true,
                contenders: [
                    Contender("eventloop") { eventLoop(change, rounds(of: $0)) },
                    Contender("libevent") { ops in
                        let rounds = rounds(of: ops)
                        return measuredInC(ops: ops) { peer_libevent_ordered_timers(change.inC, timers, rounds, $0) }.rounded(to: timers)
                    },
                ])
        }
    }

    private static func rounds(of ops: Int) -> Int { max(1, (ops + timers - 1) / timers) }

    private static func eventLoop(_ timed: Change, _ rounds: Int) -> Measurement {
        measured(ops: rounds * timers) { meter in
            let loop = RunLoop.current
            let idle = IdleSource(on: loop)
            let ignored = Meter.ignored()
            defer { ignored.sample.deallocate() }
            let start = RunLoop.Instant.now.nanoseconds
            let all = (0..<timers).map { _ in RunLoop.Timer.onDemand { _ in } }
            for _ in 0..<rounds {
                for (index, timer) in all.enumerated() { timer.nextFire = date(start, 1_000, index) }
                for change in Change.allCases {
                    let used = change == timed ? meter : ignored
                    used.begin()
                    // Borrowed, as in W3Timers.
                    all.withUnsafeBufferPointer { all in
                        for index in 0..<timers {
                            Unmanaged.passUnretained(all[index]).borrowed { timer in
                                switch change {
                                case .add: loop.add(timer)
                                case .rearm: timer.nextFire = date(start, 2_000, index)
                                case .cancel: loop.remove(timer)
                                }
                            }
                        }
                    }
                    _ = loop.run(until: .distantPast)
                    used.end()
                }
            }
            for timer in all { timer.invalidate() }
            idle.close()
        }
    }

    @inline(__always) private static func date(_ start: Int64, _ seconds: Int64, _ index: Int) -> RunLoop.Instant {
        RunLoop.Instant(nanoseconds: start + seconds * 1_000_000_000 + Int64(index) * step)
    }
}
