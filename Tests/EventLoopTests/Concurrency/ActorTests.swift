// Rules proved here (semantics 15.1, 15.2, 15.4, 15.6, 15.7; RunLoop+Executor.swift):
// - An actor on a loop runs on the loop's thread. No call is lost, and the calls of each sender keep their order.
// - Jobs run in the common modes, in queue order, at the points of a pass where blocks run. A job that another job queues waits for the
//   next point.
// - A queued job wakes the loop and keeps the common modes from being empty; it is not a handled source.
// - `assumeIsolated` succeeds in plain handlers of the loop, and traps on another thread.

import EventLoop
import EventLoopTestSupport
import Testing

@Suite(.bounded, .tags(.threads)) struct `Actors on a loop` {
    @Test func `a hundred thousand calls from eight tasks run on the loop's thread, in each sender's order, without a loss`() async throws {
        try await withLoopThread { thread in
            let (senders, calls) = (8, 12_500 / roundsDivisor)
            let ledger = Ledger(on: thread.runLoop, senders: senders)
            await withTaskGroup { group in
                for sender in 0..<senders {
                    group.addTask { for number in 0..<calls { await ledger.add(number, from: sender) } }
                }
            }
            let numbers = await ledger.numbers
            #expect(numbers.allSatisfy { $0 == Array(0..<calls) })
            #expect(await ledger.strayCalls == 0)
            #expect(thread.runLoop.statistics.sourcesHandled == 0)
            #expect(thread.runLoop.statistics.jobsPerformed >= UInt64(senders * calls))
        }
    }

    @Test func `two actors on one loop never run at the same time, and both run on its thread`() async throws {
        try await withLoopThread { thread in
            let (one, other) = (Ledger(on: thread.runLoop), Ledger(on: thread.runLoop))
            let inside = Box(0)
            let overlaps = Box(0)
            @Sendable func enter() {
                if inside.increment() != 1 { overlaps.increment() }
                breathe()
                inside.change { $0 -= 1 }
            }
            await withTaskGroup { group in
                for ledger in [one, other] {
                    for _ in 0..<4 {
                        group.addTask { for _ in 0..<500 / roundsDivisor { await ledger.run { _ in enter() } } }
                    }
                }
            }
            #expect(overlaps.value == 0)
            #expect(await one.isOnLoop())
            #expect(await one.threadID() == other.threadID())
        }
    }

    @Test func `actors on two loops call each other, each on its own thread`() async throws {
        try await withLoopThread { first in
            try await withLoopThread { second in
                let (ping, pong) = (Ledger(on: first.runLoop), Ledger(on: second.runLoop))
                for _ in 0..<500 {
                    await ping.add("x")
                    await pong.add("x")
                }
                #expect(await ping.entries.count == 500)
                #expect(await pong.entries.count == 500)
                #expect(await ping.strayCalls + pong.strayCalls == 0)
            }
        }
    }

    @Test func `a job runs before the blocks of its point, and a job that it queues waits for the next point`() async throws {
        let trace = Trace()
        let turns = try onFreshThread { loop in
            trace.observe(loop)
            let ledger = Ledger(on: loop)
            for number in 1...2 {
                ledger.assumeIsolated {
                    $0.spawn { ledger in
                        trace.add("job\(number)")
                        ledger.spawn { _ in trace.add("next\(number)") }
                    }
                }
            }
            loop.performBlock { trace.add("block") }
            let result = loop.run(for: patience)
            return (result, loop.statistics.jobsPerformed, loop.statistics.sourcesHandled)
        }
        #expect(trace.description == "E T S job1 job2 block W A next1 next2 X")
        #expect(turns == (.finished, 4, 0))
    }

    @Test func `a queued job keeps the common modes from being empty, but not other modes`() throws {
        let trace = Trace()
        try onFreshThread { loop in
            let alive = loop.keepAlive(forMode: "private")
            Task(executorPreference: loop) { trace.add("job in \(loop.currentMode!)") }
            trace.add("private \(loop.run(mode: "private", for: .zero))")
            trace.add("default \(loop.run(for: .seconds(300)))")
            trace.add("default \(loop.run(for: .seconds(300)))")
            alive.cancel()
        }
        #expect(trace.list == ["private timedOut", "job in default", "default finished", "default finished"])
    }

    @Test func `jobs run in a mode that became common while they were queued`() throws {
        let trace = Trace()
        try onFreshThread { loop in
            let alive = loop.keepAlive(forMode: "late")
            Task(executorPreference: loop) { trace.add("job in \(loop.currentMode!)") }
            _ = loop.run(mode: "late", for: .zero)
            loop.addCommonMode("late")
            _ = loop.run(mode: "late", for: .zero)
            alive.cancel()
        }
        #expect(trace.list == ["job in late"])
    }

    @Test func `a job wakes a sleeping loop, and does not end a run that returns after a source`() async throws {
        try await withLoopThread { thread in
            let ledger = Ledger(on: thread.runLoop)
            for _ in 1...100 / roundsDivisor {
                try waitUntilAsleep(thread.runLoop)
                #expect(await ledger.isOnLoop())
            }
        }

        let result = try onFreshThread { loop in
            Task(executorPreference: loop) {}
            return loop.run(for: .seconds(300), returnAfterSourceHandled: true)
        }
        #expect(result == .finished)
    }

    @Test func `a flood of jobs does not starve a timer, a descriptor or a stop`() throws {
        let trace = Trace()
        let pipe = Pipe()
        try onFreshThread { loop in
            let isOver = Box(false)
            Task(executorPreference: loop) { while !isOver.value { await Task.yield() } }  // load, which ends with the run
            loop.add(
                try RunLoop.DescriptorSource(descriptor: pipe.readEnd, events: .read) { source, _ in
                    pipe.readAll()
                    trace.add("port")
                    source.invalidate()
                    loop.add(
                        RunLoop.Timer(after: .milliseconds(1)) { _ in
                            trace.add("timer")
                            loop.stop()
                        })
                })
            pipe.write()
            trace.add("\(loop.run(for: patience))")
            isOver.value = true
            trace.add("\(loop.run(for: patience))")
        }
        #expect(trace.description == "port timer stopped finished")
    }

    @Test func `assumeIsolated succeeds in every plain handler of the loop`() throws {
        let pipe = Pipe()
        let entries = try onFreshThread { loop in
            let ledger = Ledger(on: loop)
            @Sendable func note(_ place: String) { ledger.assumeIsolated { $0.append(place) } }
            loop.add(RunLoop.Observer(activities: .entry) { _, _ in note("observer") })
            loop.performBlock { note("block") }
            loop.perform { note("perform") }
            let source = RunLoop.CustomSource { note("source") }
            loop.add(source)
            source.signal()
            pipe.write()
            loop.add(
                try RunLoop.DescriptorSource(descriptor: pipe.readEnd, events: .read) { port, _ in
                    note("port")
                    port.invalidate()
                    loop.add(
                        RunLoop.Timer(after: .zero) { _ in
                            note("timer")
                            loop.stop()
                        })
                })
            _ = loop.run(for: patience)
            return ledger.assumeIsolated { $0.entriesNow }
        }
        #expect(entries == ["observer", "block", "perform", "source", "port", "timer"])
    }

    @Test func `assumeIsolated traps on another thread, with a message`() async throws {
        let result = try #require(
            await #expect(processExitsWith: .failure, observing: [\.standardErrorContent]) {
                let thread = try RunLoopThread(name: "owner")
                func assume(_ ledger: Ledger) { ledger.assumeIsolated { $0.append("stray") } }
                assume(Ledger(on: thread.runLoop))
            })
        let said = String(decoding: result.standardErrorContent, as: UTF8.self)
        #expect(said.contains("Ledger"), "\(said)")
    }

    @Test func `checkIsolated and isIsolatingCurrentContext check the current thread`() throws {
        let loop = try onFreshThread { loop in
            loop.checkIsolated()
            #expect(loop.isIsolatingCurrentContext() == true)
            return loop
        }
        #expect(loop.isIsolatingCurrentContext() == false)
    }

    @Test func `debugDescription shows the number of queued jobs`() throws {
        let description = try onFreshThread { loop in
            for _ in 1...3 { Task(executorPreference: loop) {} }
            defer { _ = loop.run(for: .zero) }
            return loop.debugDescription
        }
        #expect(description.contains("queued jobs of actors and tasks: 3"), "\(description)")
    }
}

extension Ledger {
    var entriesNow: [String] { entries }
}
