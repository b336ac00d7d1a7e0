// Counters since the creation of the loop (API: RunLoop.Statistics): passes, waits, wake-ups, handled sources, fired timers, performed
// blocks, and the time spent waiting and working. They follow the terms of the semantics: a pass begins with beforeTimers, a wait is the
// time between beforeWaiting and afterWaiting, and 1.5 defines handled sources.

import EventLoop
import EventLoopTestSupport
import Testing

@Suite struct StatisticsTests {
    @Test func `a loop that has never run has counted nothing`() throws {
        let statistics = try onFreshThread { loop in loop.statistics }
        #expect([statistics.passes, statistics.waits, statistics.wakeUps] == [0, 0, 0])
        #expect([statistics.sourcesHandled, statistics.timersFired, statistics.blocksPerformed] == [0, 0, 0])
        #expect([statistics.timeWaiting, statistics.timeWorking, statistics.longestPass] == [.zero, .zero, .zero])
    }

    @Test func `a known program gives known counts`() throws {
        let (trace, statistics) = try inManualTime { loop, clock, trace in
            trace.observe(loop)
            let source = RunLoop.CustomSource(perform: { trace.add("custom") })
            loop.add(source)
            let pipe = Pipe()
            loop.add(try readSource(pipe) { _ in trace.add("port:\(pipe.readAll())") })
            loop.add(
                RunLoop.Timer(fireAt: .ms(10), interval: .milliseconds(10)) { timer in
                    trace.add("timer@\(clock.ms)")
                    if clock.ms == 20 {
                        timer.invalidate()
                        source.signal()
                        pipe.write("ab")
                    }
                })
            loop.performBlock { trace.add("block") }
            loop.performBlock { trace.add("block") }
            trace.add("-> \(loop.run(until: .ms(50)))")
            return (trace, loop.statistics)
        }
        #expect(
            trace.description == """
                E T S block block W A timer@10 T S W A timer@20 T S custom port:ab T S W A X -> timedOut
                """)
        #expect(statistics.passes == 4)
        #expect(statistics.waits == 3)
        #expect(statistics.wakeUps == 0)
        #expect(statistics.sourcesHandled == 2)
        #expect(statistics.timersFired == 2)
        #expect(statistics.blocksPerformed == 2)
    }

    @Test func `performs count as sources, and delayed performs count as timers`() throws {
        let statistics = try inManualTime { loop, _, _ in
            loop.perform {}
            loop.perform {}
            loop.perform(after: .milliseconds(5)) {}
            _ = loop.run(until: .ms(50))
            return loop.statistics
        }
        #expect(statistics.sourcesHandled == 2)
        #expect(statistics.timersFired == 1)
        #expect(statistics.blocksPerformed == 0)
    }

    @Test func `a pass that polls does not count as a wait`() throws {
        let statistics = try inManualTime { loop, _, _ in
            let alive = loop.keepAlive()
            defer { alive.cancel() }
            for _ in 0..<5 { _ = loop.run(for: .zero) }
            return loop.statistics
        }
        #expect(statistics.passes == 5)
        #expect(statistics.waits == 0)
    }

    @Test func `the passes and sources of nested runs count`() throws {
        let statistics = try inManualTime { loop, _, _ in
            loop.perform {
                loop.perform(inModes: ["nested"]) {}
                _ = loop.run(mode: "nested", for: .zero)
            }
            _ = loop.run(for: .zero)
            return loop.statistics
        }
        #expect(statistics.passes == 2)
        #expect(statistics.sourcesHandled == 2)
    }

    @Test func `each wake-up of a sleeping loop counts`() throws {
        let statistics = try onFreshThread { loop in
            let alive = loop.keepAlive()
            defer { alive.cancel() }
            let passes = Box(0)
            loop.add(RunLoop.Observer(activities: .beforeTimers) { _, _ in passes.increment() })
            let other = plainThread {
                for count in 1...3 {
                    try waitUntil { passes.value == count && loop.isWaiting }
                    loop.wakeUp()
                }
                try waitUntil { passes.value == 4 && loop.isWaiting }
                loop.stop()
            }
            _ = loop.run(for: patience)
            try other.join()
            return loop.statistics
        }
        #expect(statistics.passes == 4)
        // If a wake-up or the stop comes after the loop reports that it waits and before it sleeps, the loop continues without a sleep.
        #expect((1...4).contains(statistics.wakeUps) && statistics.wakeUps <= statistics.waits && statistics.waits <= 4)
    }

    @Test func `time counts as waiting or as working`() throws {
        func statisticsOfTimer(after milliseconds: Int) throws -> RunLoop.Statistics {
            try onFreshThread { loop in
                loop.add(
                    RunLoop.Timer(after: .milliseconds(milliseconds)) { _ in
                        let start = ContinuousClock.now
                        while start.duration(to: .now) < .milliseconds(10) {}  // ends because real time passes
                    })
                _ = loop.run(for: patience)
                return loop.statistics
            }
        }
        var statistics = try statisticsOfTimer(after: 20)
        // On a busy machine the loop may go to sleep late. Then the test retries with a later date.
        for milliseconds in [200, 2_000, 20_000] where statistics.timeWaiting < .milliseconds(15) {
            statistics = try statisticsOfTimer(after: milliseconds)
        }
        #expect(statistics.timersFired == 1)
        #expect(statistics.timeWaiting >= .milliseconds(15))
        #expect(statistics.timeWorking >= .milliseconds(10))
        #expect(statistics.longestPass >= .milliseconds(10))
    }

    @Test func `the work of a loop that does not sleep counts while it works`() throws {
        let statistics = try onFreshThread { loop in
            let (rounds, seen) = (Box(0), Box<RunLoop.Statistics?>(nil))
            loop.addSource(signaled: true) { source in
                if rounds.increment() == 3 {
                    seen.value = try? plainThread { loop.statistics }.join()
                    return loop.stop()
                }
                source.signal()
                let start = ContinuousClock.now
                while start.duration(to: .now) < .milliseconds(5) {}  // ends because real time passes
            }
            #expect(loop.run(for: patience) == .stopped)
            return seen.value
        }
        // The kernel was polled after each of the first two rounds.
        let seen = try #require(statistics)
        #expect(seen.timeWaiting == .zero)
        #expect(seen.timeWorking >= .milliseconds(9))
        #expect(seen.longestPass >= .milliseconds(9))
        #expect(seen.responseDelays.count == 2 && seen.responseDelays.mean >= .milliseconds(4))
    }

    @Test func `statistics can be read from another thread while the loop runs`() throws {
        let thread = try RunLoopThread(name: "counted")
        defer {
            thread.stop()
            #expect(thread.join(timeout: patience))
        }
        let before = thread.runLoop.statistics.sourcesHandled
        for _ in 0..<100 { try thread.runLoop.performAndWait {} }
        try thread.runLoop.performAndWait {}
        try waitUntilAsleep(thread.runLoop)
        #expect(thread.runLoop.statistics.sourcesHandled == before + 101)
    }
}
