// A loop with nothing to do: how often does it wake? One operation is a run of one second, which ends with its limit: one wake-up.

import CPerfPeers
import EventLoop

enum Idle {
    static var cases: [Case] {
        [
            Case(
                "idle.second", "processor time of a second with nothing to do", metric: .processorTime, amount: .fixed(full: 1, quick: 1),
                isHeavy: true, gated: [.allocations, .systemCalls, .wakeUps],
                contenders: [Contender("eventloop", measure: eventLoop)])
        ]
    }

    static func eventLoop(_ ops: Int) -> Measurement {
        measured(ops: ops) { meter in
            let loop = RunLoop.current
            let modes: [RunLoop.Mode] = ["perf-1", "perf-2", "perf-3"]
            for mode in modes { loop.addCommonMode(mode) }
            let sources = (0..<100).map { _ in IdleSource(on: loop, forModes: [.common]) }
            let timers = (0..<100).map { _ in RunLoop.Timer(every: .seconds(1_000)) { _ in } }
            for timer in timers { loop.add(timer, forMode: .common) }
            for mode in modes { _ = loop.run(mode: mode, until: .distantPast) }
            _ = loop.run(until: .distantPast)
            meter.begin()
            for _ in 0..<ops { _ = loop.run(for: .seconds(1)) }
            meter.end()
            for timer in timers { timer.invalidate() }
            for source in sources { source.close() }
        }
    }
}
