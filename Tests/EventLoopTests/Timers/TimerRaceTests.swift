// Timers that several threads and two loops change at the same time: the owner's way without the queue of changes, against everybody's.
//
// Every thread makes a fixed number of changes, so both ends are driven and the test ends by itself.

import EventLoop
import EventLoopTestSupport
import Testing

/// Counts how many handlers live. Each timer's handler holds one.
private final class HandlerToken: Sendable {
    private let alive: Box<Int>
    init(_ alive: Box<Int>) {
        self.alive = alive
        alive.increment()
    }
    deinit { alive.change { $0 -= 1 } }
}

/// Timers that everybody changes.
private final class TimerPool: Sendable {
    let alive = Box(0)
    let fires = Box(0)
    private let timers = Locked<[RunLoop.Timer]>([])

    init(_ count: Int) { timers.withLock { $0 = (0..<count).map { _ in makeTimer() } } }

    private func makeTimer() -> RunLoop.Timer {
        let (token, fires) = (HandlerToken(alive), fires)
        let handler: @Sendable (RunLoop.Timer) -> Void = { _ in
            withExtendedLifetime(token) {}
            fires.increment()
        }
        switch fires.value % 3 {
        case 0: return RunLoop.Timer(fireAt: .now, handler: handler)
        case 1: return RunLoop.Timer(fireAt: .now, interval: .milliseconds(1), handler: handler)
        default: return RunLoop.Timer.onDemand(handler: handler)
        }
    }

    func change(_ loops: [RunLoop], _ random: inout SplitMix64) {
        let index = random.below(timers.withLock { $0.count })
        let timer = timers.withLock { $0[index] }
        let loop = random.pick(loops)
        let mode: RunLoop.Mode = random.pick([.default, .default, .default, "other", .common])
        switch random.below(16) {
        case 0..<5: loop.add(timer, forMode: mode)
        case 5..<9: loop.remove(timer, forMode: mode)
        case 9..<12: timer.nextFire = .now.advanced(by: .microseconds(random.below(400) - 200))
        case 12: timer.nextFire = .distantFuture
        case 13: timer.tolerance = .microseconds(random.below(3) * 100)
        case 14: _ = (loop.nextTimerFire(forMode: mode), loop.contains(timer, forMode: mode), timer.nextFire, timer.fire())
        default: timer.invalidate()
        }
        if !timer.isValid {
            let new = makeTimer()
            let old = timers.withLock { timers in
                defer { timers[index] = new }
                return timers[index]
            }
            old.invalidate()
        }
    }

    func end() {
        let last = timers.withLock { timers in
            defer { timers = [] }
            return timers
        }
        for timer in last { timer.invalidate() }
    }
}

@Suite(.tags(.lifetimes)) struct TimerRaceTests {
    @Test(arguments: [1, 8])
    func `timers that owners and other threads change at once end once each, and leave nothing in the loops:`(_ count: Int) throws {
        let pool = TimerPool(count)
        let changes = 6_000
        let loops = Box<[RunLoop]>([])
        let haveLoops = Gate()
        let haveChanged = [Gate(), Gate()]
        let owners = (0..<2).map { number in
            joinableThread { loop in
                if loops.change({
                    $0.append(loop); return $0.count
                }) == 2 {
                    haveLoops.open()
                }
                haveLoops.wait()
                var random = SplitMix64(seed: UInt64(number))
                let all = loops.value
                for round in 0..<changes {
                    pool.change(all, &random)
                    if round % 7 == 0 { _ = loop.run(mode: random.pick([.default, "other"]), until: .distantPast) }
                }
                haveChanged[number].open()
                // Carries out what the other threads change.
                loop.addIdleSource()
                let result = loop.run(for: patience)
                let left = [RunLoop.Mode.default, "other", .common].compactMap { loop.nextTimerFire(forMode: $0) }
                return "\(result), \(left.count) left, \(loop.run(mode: "other", until: .distantPast))"
            }
        }
        haveLoops.wait()
        let all = loops.value
        let others = (0..<2).map { number in
            plainThread {
                var random = SplitMix64(seed: UInt64(100 + number))
                for _ in 0..<changes { pool.change(all, &random) }
            }
        }
        for other in others { try other.join() }
        for gate in haveChanged { gate.wait() }
        pool.end()
        for loop in all { loop.perform(inModes: [.default]) { loop.stop() } }
        let ends = try owners.map { try $0.join() }
        #expect(ends == ["stopped, 0 left, finished", "stopped, 0 left, finished"])
        #expect(pool.alive.value == 0)
        #expect(pool.fires.value > 0)
    }
}
