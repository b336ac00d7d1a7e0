// W3b, fires that nothing waits for: timers that are all due. One operation is one fire, whose handler sets the timer's next date, which is
// in the past again and later than that of any other timer. So the clock decides nothing, and the fires can be counted.

import CPerfPeers
import EventLoop

enum W3Due {
    static var cases: [Case] {
        [
            Case(
                "W3b.due.t1k", "fire one of 1,000 timers, all due, and set its next date", goals: [Goal("libevent", ratio: 1.0)],
                gated: [.allocations, .systemCalls],
                contenders: [
                    Contender("eventloop") { eventLoop(1_000, $0) },
                    Contender("libevent") { libevent(1_000, $0) },
                ])
        ]
    }

    /// A pass fires all timers, so fires come in batches of as many.
    static func eventLoop(_ timers: Int, _ ops: Int) -> Measurement {
        let batches = batches(timers, ops)
        return measured(ops: batches * timers) { meter in
            let loop = RunLoop.current
            let countdown = OnLoop(perf_countdown_make(timers * Self.warmup(timers)))
            defer { perf_countdown_free(countdown.pointer) }
            let date = OnLoop(UnsafeMutablePointer<Int64>.allocate(capacity: 1))
            defer { date.pointer.deallocate() }
            date.pointer.initialize(to: RunLoop.Instant.now.nanoseconds - 1_000_000_000_000)
            let all = (0..<timers).map { _ in
                let timer = RunLoop.Timer.onDemand { timer in
                    date.pointer.pointee += 1
                    timer.nextFire = RunLoop.Instant(nanoseconds: date.pointer.pointee)
                    if perf_countdown_hit(countdown.pointer) { loop.stop() }
                }
                loop.add(timer)
                date.pointer.pointee += 1
                timer.nextFire = RunLoop.Instant(nanoseconds: date.pointer.pointee)
                return timer
            }
            loop.run()
            countdown.pointer.pointee.remaining = batches * timers
            meter.begin()
            loop.run()
            meter.end()
            for timer in all { timer.invalidate() }
        }
    }

    static func libevent(_ timers: Int, _ ops: Int) -> Measurement {
        let batches = batches(timers, ops)
        return measuredInC(ops: batches * timers) { peer_libevent_due(timers, timers * warmup(timers), batches * timers, $0) }
    }

    private static func batches(_ timers: Int, _ ops: Int) -> Int { max(1, (ops + timers - 1) / timers) }

    /// In batches.
    private static func warmup(_ timers: Int) -> Int { timers > 10_000 ? 1 : 5 }
}
