// A clock that several loops share (semantics 14.4) advances by itself only when all of them wait. It then advances to the earliest
// deadline of all.
//  - Their timers therefore fire in date order across the loops.
//  - Time does not advance while one of the loops works or has been woken.
//  - A loop that has ended does not hold back time.

import EventLoop
import EventLoopTestSupport
import Testing

#if canImport(Glibc)
import Glibc
#else
import Darwin
#endif

@Suite struct SharedManualClockTests {
    /// Runs each of `programs` on its own thread until `limit`. All loops use one clock. No loop runs before all are set up.
    private static func share(
        until limit: Int64, _ programs: [@Sendable (RunLoop, RunLoop.ManualClock, Box<[RunLoop]>) -> Void]
    ) throws -> [RunLoop.RunResult] {
        let clock = RunLoop.ManualClock(autoAdvance: true)
        let ready = Box(0)
        let loops = Box<[RunLoop]>([])
        let threads = programs.map { program in
            joinableThread { loop in
                loop.use(clock)
                let alive = loop.keepAlive()
                defer { alive.cancel() }
                program(loop, clock, loops)
                ready.increment()
                try waitUntil { ready.value == programs.count }
                return loop.run(until: .ms(limit))
            }
        }
        return try threads.map { try $0.join() }
    }

    @Test func `the timers of loops that share a clock fire in the order of their dates`() throws {
        for _ in 0..<20 {
            let trace = Trace()
            let programs = [[10, 40, 70], [20, 50], [30, 60, 80]].enumerated().map { index, dates in
                { @Sendable (loop: RunLoop, clock: RunLoop.ManualClock, _: Box<[RunLoop]>) in
                    for date in dates {
                        loop.add(RunLoop.Timer(fireAt: .ms(Int64(date))) { _ in trace.add("\(index):\(date)@\(clock.ms)") })
                    }
                }
            }
            let results = try Self.share(until: 100, programs)
            #expect(trace.description == "0:10@10 1:20@20 2:30@30 0:40@40 1:50@50 2:60@60 0:70@70 2:80@80")
            #expect(results == [.timedOut, .timedOut, .timedOut])
        }
    }

    @Test func `time does not advance for the other loops while one loop works`() throws {
        let trace = Trace()
        let results = try Self.share(
            until: 100,
            [
                { loop, clock, _ in
                    loop.add(
                        RunLoop.Timer(fireAt: .ms(10)) { _ in
                            for _ in 0..<1_000 { sched_yield() }
                            trace.add("worked@\(clock.ms)")
                        })
                },
                { loop, clock, _ in
                    loop.add(
                        RunLoop.Timer(fireAt: .ms(11), interval: .milliseconds(1)) { timer in
                            trace.add("tick@\(clock.ms)")
                            if clock.ms == 12 { timer.invalidate() }
                        })
                },
            ])
        #expect(trace.description == "worked@10 tick@11 tick@12")
        #expect(results == [.timedOut, .timedOut])
    }

    @Test func `a perform that one loop queues on another runs at the same time`() throws {
        let trace = Trace()
        let hops = Box(0)
        @Sendable func hop(_ clock: RunLoop.ManualClock, _ loops: [RunLoop], _ index: Int) {
            loops[index].perform {
                trace.add("\(index == 0 ? "ping" : "pong")@\(clock.ms)")
                if hops.increment() < 6 { hop(clock, loops, 1 - index) }
            }
        }
        let results = try Self.share(
            until: 100,
            [
                { loop, clock, loops in
                    loops.change { $0.append(loop) }
                    loop.add(
                        RunLoop.Timer(fireAt: .ms(10)) { _ in
                            let first = loops.value.firstIndex { $0 === loop }!
                            trace.add("start@\(clock.ms)")
                            hop(clock, first == 0 ? loops.value.reversed() : loops.value, 0)
                        })
                    // This timer would fire between the hops if time did not wait for them.
                    loop.add(RunLoop.Timer(fireAt: .ms(11)) { _ in trace.add("later@\(clock.ms)") })
                },
                { loop, _, loops in loops.change { $0.append(loop) } },
            ])
        #expect(trace.description == "start@10 ping@10 pong@10 ping@10 pong@10 ping@10 pong@10 later@11")
        #expect(results == [.timedOut, .timedOut])
    }

    @Test func `a loop whose thread has ended does not hold back time`() throws {
        let clock = RunLoop.ManualClock(autoAdvance: true)
        let trace = Trace()
        try onFreshThread { loop in loop.use(clock) }
        let kept = try onFreshThread { loop in
            loop.use(clock)
            return loop
        }
        try onFreshThread { loop in
            loop.use(clock)
            loop.add(RunLoop.Timer(fireAt: .ms(10)) { _ in trace.add("fire@\(clock.ms)") })
            trace.add("\(loop.run(until: .ms(50)))")
        }
        #expect(trace.description == "fire@10 finished")
        #expect(!kept.isValid)
    }

    @Test func `advance fires the timers of every loop that shares the clock`() throws {
        let clock = RunLoop.ManualClock()
        let trace = Trace()
        let threads = try (0..<3).map { index in
            try RunLoopThread(
                name: "sharing",
                setup: { loop in
                    loop.use(clock)
                    loop.add(RunLoop.Timer(fireAt: .ms(10)) { _ in trace.add("\(index)@\(clock.ms)") })
                })
        }
        for thread in threads { try waitUntilAsleep(thread.runLoop) }
        clock.advance(by: .milliseconds(10))
        try waitUntil { trace.list.count == 3 }
        for thread in threads {
            thread.stop()
            #expect(thread.join(timeout: patience))
        }
        #expect(trace.list.sorted() == ["0@10", "1@10", "2@10"])
    }
}
