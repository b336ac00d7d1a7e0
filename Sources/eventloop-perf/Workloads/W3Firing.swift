// W3b: the processor time of many timers that fire, and W3d: how late one timer is.

import CPerfPeers
import CoreFoundation
import Dispatch
import EventLoop

enum W3Firing {
    /// W3b: the average distance of two fires; 10,000 in a second.
    static let nanosecondsApart = 100_000

    static var cases: [Case] {
        [
            Case(
                "W3b.fires", "processor time a timer that fires, 10,000 a second, tolerance 1 ms", metric: .processorTime,
                amount: .fixed(full: 10_000, quick: 2_500), goals: [Goal("libevent", ratio: 1.0)], gated: [.allocations],
                contenders: [
                    Contender("eventloop") { fires($0, tolerance: .milliseconds(1)) },
                    Contender("eventloop-exact") { fires($0, tolerance: .zero) },
                    Contender("libevent") { timers in
                        measuredInC(ops: timers) { peer_libevent_fires(timers, Int64(timers * nanosecondsApart), $0) }
                    },
                    Contender("dispatch", measure: dispatchFires),
                    Contender("cfrunloop", measure: coreFoundationFires),
                ]),
            Case(
                "W3d.lateness", "lateness of a timer of 1 to 20 ms, median", metric: .value, amount: .fixed(full: 100, quick: 20),
                goals: [Goal("timerfd", ratio: 1.15)],
                contenders: [
                    Contender("eventloop", measure: lateness),
                    Contender("timerfd") { timers in
                        withMedian(of: timers) { peer_timerfd_lateness(timers, $0) }
                    },
                    Contender("cfrunloop", measure: coreFoundationLateness),
                ]),
        ]
    }

    // MARK: W3b

    static func delay(_ random: inout UInt64, _ timers: Int) -> Int64 {
        1_000_000 + Int64(perf_random(&random) % UInt64(timers * nanosecondsApart))
    }

    static func fires(_ timers: Int, tolerance: Duration) -> Measurement {
        measured(ops: timers) { meter in
            let loop = RunLoop.current
            let countdown = OnLoop(perf_countdown_make(timers))
            defer { perf_countdown_free(countdown.pointer) }
            var random: UInt64 = 1
            let start = RunLoop.Instant.now.nanoseconds
            for _ in 0..<timers {
                let date = RunLoop.Instant(nanoseconds: start + delay(&random, timers))
                loop.add(
                    RunLoop.Timer(fireAt: date, tolerance: tolerance) { _ in
                        if perf_countdown_hit(countdown.pointer) { loop.stop() }
                    })
            }
            meter.begin()
            loop.run()
            meter.end()
        }
    }

    /// The leeway is Dispatch's tolerance.
    static func dispatchFires(_ timers: Int) -> Measurement {
        measured(ops: timers) { meter in
            let countdown = OnLoop(perf_countdown_make(timers))
            defer { perf_countdown_free(countdown.pointer) }
            let queue = DispatchQueue(label: "fires")
            let done = DispatchSemaphore(value: 0)
            var random: UInt64 = 1
            let start = DispatchTime.now()
            let sources = (0..<timers).map { _ in
                let source = DispatchSource.makeTimerSource(queue: queue)
                source.schedule(deadline: start + .nanoseconds(Int(delay(&random, timers))), leeway: .milliseconds(1))
                source.setEventHandler { if perf_countdown_hit(countdown.pointer) { done.signal() } }
                return source
            }
            for source in sources { source.activate() }
            meter.begin()
            done.wait()
            meter.end()
            for source in sources { source.cancel() }
            queue.sync {}
        }
    }

    static func coreFoundationFires(_ timers: Int) -> Measurement {
        measured(ops: timers) { meter in
            let loop = CF.Loop()
            let countdown = OnLoop(perf_countdown_make(timers))
            defer { perf_countdown_free(countdown.pointer) }
            var random: UInt64 = 1
            let start = CFAbsoluteTimeGetCurrent()
            for _ in 0..<timers {
                let timer = CFRunLoopTimerCreateWithHandler(nil, start + Double(delay(&random, timers)) / 1e9, 0, 0, 0) { _ in
                    if perf_countdown_hit(countdown.pointer) { loop.stop() }
                }!
                CFRunLoopTimerSetTolerance(timer, 0.001)
                CFRunLoopAddTimer(loop.loop, timer, kCFRunLoopDefaultMode)
            }
            meter.begin()
            CFRunLoopRun()
            meter.end()
        }
    }

    // MARK: W3d

    /// One timer after the other, each alone on the loop.
    static func withMedian(of timers: Int, _ body: @escaping @Sendable (UnsafeMutablePointer<Int64>) -> Void) -> Measurement {
        let lateness = OnLoop(UnsafeMutablePointer<Int64>.allocate(capacity: timers))
        defer { lateness.pointer.deallocate() }
        var result = measured(ops: timers) { meter in
            meter.begin()
            body(lateness.pointer)
            meter.end()
        }
        let figures = UnsafeBufferPointer(start: lateness.pointer, count: timers).map(Double.init)
        result.value = Spread(figures)?.median
        return result
    }

    static func lateness(_ timers: Int) -> Measurement {
        withMedian(of: timers) { lateness in
            let loop = RunLoop.current
            let results = OnLoop(lateness)
            var random: UInt64 = 1
            for index in 0..<timers {
                let due = perf_wall_ns() + perf_short_delay(&random)
                let timer = RunLoop.Timer(fireAt: RunLoop.Instant(nanoseconds: due)) { _ in
                    results.pointer[index] = perf_wall_ns() - due
                    loop.stop()
                }
                loop.add(timer)
                loop.run()
                precondition(results.pointer[index] >= 0, "a timer fired early")
            }
        }
    }

    static func coreFoundationLateness(_ timers: Int) -> Measurement {
        withMedian(of: timers) { lateness in
            let loop = CF.Loop()
            let results = OnLoop(lateness)
            var random: UInt64 = 1
            for index in 0..<timers {
                let delay = perf_short_delay(&random)
                let due = perf_wall_ns() + delay
                let timer = CFRunLoopTimerCreateWithHandler(nil, CFAbsoluteTimeGetCurrent() + Double(delay) / 1e9, 0, 0, 0) { _ in
                    results.pointer[index] = perf_wall_ns() - due
                    loop.stop()
                }!
                CFRunLoopAddTimer(loop.loop, timer, kCFRunLoopDefaultMode)
                CFRunLoopRun()
            }
        }
    }
}
