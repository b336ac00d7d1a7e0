// Time that moves only when a test moves it (API: ManualClock; semantics 14.1 to 14.3, 14.5; decision 9):
//  - `advance` moves the time, fires the timers that become due on every loop that uses the clock, and wakes such a loop from another
//    thread.
//  - With autoAdvance, a loop that has nothing ready jumps to its next deadline (a timer's date or the run's limit) instead of sleeping.
//  - Limits and delays follow the clock; the timeouts of blocked callers (performAndWait, join) are in real time.
//  - The same program always gives the same trace.

import EventLoop
import EventLoopTestSupport
import Testing

@Suite(.bounded) struct ManualClockTests {
    @Test func `a clock starts at the given instant and moves by the given duration`() {
        let clock = RunLoop.ManualClock(start: .ms(7))
        #expect(clock.now == .ms(7))
        clock.advance(by: .nanoseconds(3))
        clock.advance(by: .zero)
        #expect(clock.now.nanoseconds == 7_000_003)
        #expect(RunLoop.ManualClock().now.nanoseconds == 0)
    }

    @Test func `a clock stops at distantFuture`() {
        let clock = RunLoop.ManualClock(start: RunLoop.Instant(nanoseconds: .max - 5))
        clock.advance(by: .seconds(1))
        #expect(clock.now == .distantFuture)
    }

    enum UseTooLate: String, CaseIterable, Sendable, Codable {
        case onAnotherThread, withTimer, withSource, inRun
    }

    @Test(arguments: UseTooLate.allCases)
    func `a loop refuses a clock on another thread, after its first item, and during a run`(_ late: UseTooLate) async throws {
        let result = await #expect(processExitsWith: .failure, observing: [\.standardErrorContent]) { [late] in
            try onFreshThread { loop in
                let clock = RunLoop.ManualClock()
                switch late {
                case .onAnotherThread: try plainThread { loop.use(clock) }.join()
                case .withTimer:
                    loop.add(RunLoop.Timer(fireAt: .distantFuture) { _ in })
                    loop.use(clock)
                case .withSource:
                    loop.add(RunLoop.CustomSource {})
                    loop.use(clock)
                case .inRun:
                    loop.performBlock { loop.use(clock) }
                    _ = loop.run(for: .zero)
                }
            }
        }
        let sentence = late == .onAnotherThread ? "use(_:)" : "before anything is added to it and before it runs"
        #expect(String(decoding: try #require(result).standardErrorContent, as: UTF8.self).contains(sentence))
    }

    @Test func `advancing the clock makes timers due, and the next run fires them`() throws {
        let trace = try onFreshThread { loop in
            let clock = RunLoop.ManualClock()
            loop.use(clock)
            let trace = Trace()
            for date in [30, 10, 20] { loop.add(RunLoop.Timer(fireAt: .ms(Int64(date))) { _ in trace.add("\(date)@\(clock.ms)") }) }
            for _ in 0..<3 {
                clock.advance(by: .milliseconds(12))
                _ = loop.run(for: .zero)
                trace.add(";")
            }
            return trace.description
        }
        #expect(trace == "10@12 ; 20@24 ; 30@36 ;")
    }

    @Test func `a clock that another thread advances wakes the sleeping loop when a timer is due`() throws {
        let trace = try onFreshThread { loop in
            let clock = RunLoop.ManualClock()
            loop.use(clock)
            let trace = Trace()
            let fired = Box(0)
            loop.add(
                RunLoop.Timer(fireAt: .ms(10), interval: .milliseconds(10)) { _ in
                    trace.add("tick@\(clock.ms)")
                    fired.increment()
                })
            let other = plainThread {
                defer { loop.stop(sticky: true) }
                for count in 1...3 {
                    try waitUntilAsleep(loop)
                    clock.advance(by: .milliseconds(4))  // not due yet
                    try waitUntilAsleep(loop)
                    clock.advance(by: .milliseconds(6))
                    try waitUntil { fired.value == count }
                }
            }
            _ = loop.run(until: .ms(1_000_000))
            try other.join()
            return trace.description
        }
        #expect(trace == "tick@10 tick@20 tick@30")
    }

    @Test func `a clock that another thread advances past the limit ends the run`() throws {
        let result = try onFreshThread { loop in
            let clock = RunLoop.ManualClock()
            loop.use(clock)
            let alive = loop.keepAlive()
            defer { alive.cancel() }
            let other = plainThread {
                try waitUntilAsleep(loop)
                clock.advance(by: .seconds(3600))
            }
            let result = loop.run(for: .seconds(3600))
            try other.join()
            return result
        }
        #expect(result == .timedOut)
    }

    @Test func `a clock without autoAdvance does not move by itself`() throws {
        let (result, now) = try onFreshThread { loop in
            let clock = RunLoop.ManualClock()
            loop.use(clock)
            loop.add(RunLoop.Timer(fireAt: .ms(1)) { _ in })
            let other = plainThread {
                try waitUntilAsleep(loop)
                loop.stop()
            }
            let result = loop.run(for: .milliseconds(2))
            try other.join()
            return (result, clock.now)
        }
        #expect(result == .stopped)
        #expect(now == .ms(0))
    }

    // MARK: autoAdvance

    @Test func `with autoAdvance a loop jumps to the next timer, then to the limit`() throws {
        let trace = try inManualTime { loop, clock, trace in
            trace.observe(loop) { activity in
                if activity == .afterWaiting { trace.add("@\(clock.ms)") }
            }
            let alive = loop.keepAlive()
            defer { alive.cancel() }
            loop.add(RunLoop.Timer(fireAt: .ms(3_600_000)) { _ in trace.add("hour") })
            trace.add("-> \(loop.run(for: .seconds(86_400)))")
            return trace.description
        }
        #expect(trace == "E T S W A @3600000 hour T S W A @86400000 X -> timedOut")
    }

    @Test func `with autoAdvance a loop serves ready items before it jumps`() throws {
        let trace = try inManualTime { loop, clock, trace in
            let pipe = Pipe()
            pipe.write()
            let calls = Box(0)
            loop.add(
                try readSource(pipe) { _ in
                    trace.add("read@\(clock.ms)")
                    if calls.increment() == 3 { pipe.readAll() }
                })
            loop.add(RunLoop.Timer(fireAt: .ms(10)) { _ in trace.add("timer@\(clock.ms)") })
            _ = loop.run(until: .ms(50))
            return trace.description
        }
        #expect(trace == "read@0 read@0 read@0 timer@10")
    }

    @Test func `with autoAdvance delayed performs, timers and the loop's clock follow simulated time`() throws {
        let trace = try inManualTime { loop, clock, trace in
            loop.perform(after: .seconds(60)) { trace.add("delayed@\(clock.ms)") }
            RunLoop.Timer.scheduled(after: .seconds(30)) { _ in trace.add("timer@\(clock.ms)") }
            trace.add("-> \(loop.run(for: .seconds(90))) \(loop.clock.now == clock.now)")
            return trace.description
        }
        #expect(trace == "timer@30000 delayed@60000 -> finished true")
    }

    @Test func `with autoAdvance and no deadline a loop waits for real events`() throws {
        let trace = try inManualTime { loop, clock, trace in
            let pipe = Pipe()
            loop.add(
                try readSource(pipe) { _ in
                    trace.add("read:\(pipe.readAll())@\(clock.ms)")
                    loop.stop()
                })
            let other = plainThread {
                try waitUntilAsleep(loop)
                pipe.write("ab")
            }
            trace.add("-> \(loop.run(until: .distantFuture))")
            try other.join()
            return trace.description
        }
        #expect(trace == "read:ab@0 -> stopped")
    }

    @Test func `the timeout of performAndWait is in real time, whatever the loop's clock`() throws {
        let (entered, gate) = (Gate(), Gate())
        let thread = try RunLoopThread(name: "manual", setup: { loop in loop.use(RunLoop.ManualClock()) })
        defer {
            thread.stop()
            #expect(thread.join(timeout: patience))
        }
        thread.runLoop.perform {
            entered.open()
            gate.wait()
        }
        entered.wait()
        let start = ContinuousClock.now
        #expect(throws: PerformTimedOut.self) { try thread.runLoop.performAndWait(timeout: .milliseconds(10)) {} }
        #expect(start.duration(to: .now) >= .milliseconds(10))
        gate.open()
    }

    // MARK: Determinism

    @Test func `the same program gives the same trace a hundred times`() throws {
        func program() throws -> String {
            try inManualTime { loop, clock, trace in
                trace.observe(loop)
                let pipes = (0..<3).map { _ in Pipe() }
                for (index, pipe) in pipes.enumerated() {
                    loop.add(
                        try readSource(pipe, priority: index == 0 ? .high : .low) { _ in
                            trace.add("p\(index):\(pipe.readAll())@\(clock.ms)")
                        })
                }
                let source = RunLoop.CustomSource(perform: { trace.add("c@\(clock.ms)") })
                loop.add(source)
                for (index, interval) in [7, 11, 13].enumerated() {
                    loop.add(
                        RunLoop.Timer(fireAt: .ms(Int64(interval)), interval: .milliseconds(interval)) { _ in
                            trace.add("t\(index)@\(clock.ms)")
                            pipes[index].write("\(index)")
                            if clock.ms % 2 == 0 { source.signal() }
                            if clock.ms % 3 == 0 { loop.perform { trace.add("f@\(clock.ms)") } }
                        })
                }
                trace.add("-> \(loop.run(until: .ms(200)))")
                return trace.description
            }
        }
        let first = try program()
        #expect(first.contains("t2@195") && first.contains("p0:0@7") && first.hasSuffix("-> timedOut"))
        for round in 1..<100 { #expect(try program() == first, "round \(round)") }
    }

    /// The model is a sorted list of timers: the earliest date fires first, and equal dates fire in insertion order. The callout of one
    /// timer may move or invalidate another timer.
    @Test(arguments: 1...20 as ClosedRange<UInt64>)
    func `timers that move and invalidate one another fire in the order of the model`(seed: UInt64) throws {
        struct Move { let other: Int, by: Int64? }
        let count = 40
        var random = SplitMix64(seed: seed)
        let dates = (0..<count).map { Int64(random.next() % 1000) * 1000 + Int64($0) }  // no two dates are ever equal: see the moves
        let moves = (0..<count * 4).map { _ in
            Move(other: Int(random.next() % UInt64(count)), by: random.next() % 4 == 0 ? nil : Int64(random.next() % 500 + 1) * 1000)
        }

        // The model: a linear search of a list.
        var model: [Int: Int64] = Dictionary(uniqueKeysWithValues: dates.enumerated().map { ($0, $1) })
        var expected: [String] = []
        while let (timer, date) = model.min(by: { $0.value < $1.value }), expected.count < moves.count {
            let move = moves[expected.count]
            expected.append("\(timer)@\(date)")
            // The last three digits of a date are the timer's number.
            model[timer] = timer % 3 == 0 ? nil : date + 250_000
            if move.other != timer, model[move.other] != nil {
                model[move.other] = move.by.map { (date / 1000) * 1000 + $0 + Int64(move.other) }
            }
        }

        let fired = try inManualTime { [expected] loop, clock, _ in
            let trace = Box<[String]>([])
            let timers = Box<[RunLoop.Timer]>([])
            for (index, date) in dates.enumerated() {
                let timer = RunLoop.Timer(
                    fireAt: RunLoop.Instant(nanoseconds: date), interval: index % 3 == 0 ? nil : .nanoseconds(250_000)
                ) { _ in
                    let now = clock.now.nanoseconds
                    let step = trace.change { list in
                        list.append("\(index)@\(now)")
                        return list.count - 1
                    }
                    let move = moves[step]
                    let other = timers.value[move.other]
                    if move.other != index, other.isValid {
                        if let by = move.by {
                            other.nextFire = RunLoop.Instant(nanoseconds: (now / 1000) * 1000 + by + Int64(move.other))
                        } else {
                            other.invalidate()
                        }
                    }
                    if step == expected.count - 1 { loop.stop() }
                }
                timers.change { $0.append(timer) }
                loop.add(timer)
            }
            _ = loop.run(until: .distantFuture)
            for timer in timers.value { timer.invalidate() }
            timers.value = []
            return trace.value
        }
        #expect(fired.count >= 40)
        #expect(fired == expected)
    }
}
