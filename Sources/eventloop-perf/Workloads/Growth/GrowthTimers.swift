// Timers with dates that do not come, except where some are made due.

import CPerfPeers
import EventLoop

enum GrowthTimers {
    static func make(_ size: Int) -> GrowthRig {
        let loop = RunLoop.current
        let idle = IdleSource(on: loop)
        let start = RunLoop.Instant.now.nanoseconds
        let random = OnLoop(UnsafeMutablePointer<UInt64>.allocate(capacity: 1))
        random.pointer.initialize(to: 1)
        @Sendable func later() -> RunLoop.Instant { RunLoop.Instant(nanoseconds: start + perf_random_delay(random.pointer)) }
        var all: [RunLoop.Timer] = []
        all.reserveCapacity(size)
        for _ in 0..<size {
            let timer = RunLoop.Timer.onDemand { $0.nextFire = later() }
            loop.add(timer)
            timer.nextFire = later()
            all.append(timer)
        }
        pass(loop)
        return GrowthRig { [all] cost, ops in
            switch cost {
            case PERF_GROWTH_ADD: return comeAndGo(loop, size, ops, later).adding
            case PERF_GROWTH_CANCEL: return comeAndGo(loop, size, ops, later).cancelling
            case PERF_GROWTH_REARM:
                return timed {
                    all.withUnsafeBufferPointer { all in
                        for _ in 0..<ops {
                            let timer = Unmanaged.passUnretained(all[Int(perf_random(random.pointer) % UInt64(size))])
                            timer.borrowed { $0.nextFire = later() }
                        }
                    }
                    pass(loop)
                }
            case PERF_GROWTH_FIRE:
                let batch = perf_growth_batch(size)
                let past = RunLoop.Instant(nanoseconds: start)
                var firing: Int64 = 0
                for _ in stride(from: 0, to: ops, by: batch) {
                    let from = Int(perf_random(random.pointer) % UInt64(size - batch + 1))
                    for timer in all[from..<from + batch] { timer.nextFire = past }
                    firing += timed { pass(loop) }
                }
                return firing
            default:
                return timed { for _ in 0..<ops { _ = loop.nextTimerFire() } }
            }
        } end: {
            for timer in all { timer.invalidate() }
            random.pointer.deallocate()
            idle.close()
        }
    }

    private static func comeAndGo(
        _ loop: RunLoop, _ size: Int, _ ops: Int, _ later: () -> RunLoop.Instant
    ) -> (adding: Int64, cancelling: Int64) {
        let batch = perf_growth_batch(size)
        var (adding, cancelling): (Int64, Int64) = (0, 0)
        var some: [RunLoop.Timer] = []
        some.reserveCapacity(batch)
        for _ in stride(from: 0, to: ops, by: batch) {
            adding += timed {
                for _ in 0..<batch {
                    let timer = RunLoop.Timer(fireAt: later()) { _ in }
                    loop.add(timer)
                    some.append(timer)
                }
            }
            cancelling += timed {
                for timer in some { timer.invalidate() }
                some.removeAll(keepingCapacity: true)
                pass(loop)
            }
        }
        return (adding, cancelling)
    }

    private static func pass(_ loop: RunLoop) { _ = loop.run(until: .distantPast) }
}

/// The nanoseconds that `body` takes.
func timed(_ body: () -> Void) -> Int64 {
    let start = perf_wall_ns()
    body()
    return perf_wall_ns() - start
}
