// W3a and W3c on Foundation: CFRunLoopTimer for changes of a timer, Timer for new timers. Both keep a sorted array.

import CPerfPeers
import CoreFoundation
import Foundation

enum W3FoundationTimers {
    static func contenders(_ change: W3Timers.Change, _ timers: Int) -> [Contender] {
        switch change {
        // A CFRunLoopTimer that was cancelled, or left its last mode, cannot be used again, and a date in the distant future is a change of
        // date like any other.
        case .cancel, .addAndRemove, .askNext: []
        case .rearm, .push:
            [Contender("cfrunloop", maximum: timers > 1_000 ? 1_000 : 20_000) { coreFoundation(change, timers, $0) }]
        case .make, .makeAndAdd, .release:
            [Contender("foundation", maximum: timers > 1_000 ? 500 : 20_000) { foundation(change, timers, $0) }]
        }
    }

    private static func coreFoundation(_ change: W3Timers.Change, _ timers: Int, _ ops: Int) -> Measurement {
        measured(ops: ops) { meter in
            let loop = CF.Loop()
            var random: UInt64 = 1
            let start = CFAbsoluteTimeGetCurrent()
            func later() -> CFAbsoluteTime { start + Double(perf_random_delay(&random)) / 1e9 }
            let all = (0..<timers).map { _ -> CFRunLoopTimer in
                // One-shot timers could not be moved; the interval is longer than the measurement.
                let timer = CFRunLoopTimerCreateWithHandler(nil, later(), 1e6, 0, 0) { _ in }!
                CFRunLoopAddTimer(loop.loop, timer, kCFRunLoopDefaultMode)
                return timer
            }
            var deadline = start + 1_000
            meter.begin()
            for _ in 0..<ops {
                if change == .push {
                    deadline += 1e-6
                    CFRunLoopTimerSetNextFireDate(all[0], deadline)
                } else {
                    CFRunLoopTimerSetNextFireDate(all[Int(perf_random(&random) % UInt64(timers))], later())
                }
            }
            CFRunLoopRunInMode(kCFRunLoopDefaultMode, 0, false)
            meter.end()
        }
    }

    private static func foundation(_ change: W3Timers.Change, _ timers: Int, _ ops: Int) -> Measurement {
        measured(ops: ops) { meter in
            let loop = Foundation.RunLoop.current
            var random: UInt64 = 1
            let start = Date()
            func make() -> Foundation.Timer {
                let date = start.addingTimeInterval(Double(perf_random_delay(&random)) / 1e9)
                let timer = Foundation.Timer(fire: date, interval: 0, repeats: false) { _ in }
                loop.add(timer, forMode: .default)
                return timer
            }
            let all = (0..<timers).map { _ in make() }
            let ignored = Meter.ignored()
            defer { ignored.sample.deallocate() }
            let adding = change == .release ? ignored : meter
            let releasing = change == .makeAndAdd ? ignored : meter
            var made: [Foundation.Timer] = []
            for _ in stride(from: 0, to: ops, by: W3Timers.batch) {
                adding.begin()
                for _ in 0..<W3Timers.batch { made.append(make()) }
                adding.end()
                releasing.begin()
                for timer in made { timer.invalidate() }
                made.removeAll(keepingCapacity: true)
                CFRunLoopRunInMode(kCFRunLoopDefaultMode, 0, false)
                releasing.end()
            }
            withExtendedLifetime(all) {}
        }.rounded(to: W3Timers.batch)
    }
}
