// Rules proved here (semantics 15.3, 15.5):
// - While a job is on the stack, nested runs run none of the loop's jobs, in any mode; they serve everything else.
// - After the job has returned, the loop runs the jobs that waited, and none is lost.
// - A nested run in a plain handler runs jobs.

import EventLoop
import EventLoopTestSupport
import Testing

extension RunLoop {
    /// Calls `run` for an actor that runs its loop inside one of its own jobs: the compiler does not allow `run` in an async function.
    fileprivate func nest(_ mode: Mode = .default, for timeout: Duration) -> RunResult { run(mode: mode, for: timeout) }
}

@Suite(.bounded, .tags(.threads)) struct `Jobs and nested runs` {
    @Test func `no job runs inside another of the same loop`() async throws {
        try await withLoopThread { thread in
            let loop = thread.runLoop
            let (one, other) = (Ledger(on: loop), Ledger(on: loop))
            let trace = Trace()
            let (entered, enter) = AsyncStream.makeStream(of: Void.self)
            let first = Task {
                await one.run { _ in
                    trace.add("begin")
                    enter.finish()
                    // The nested run serves timers, but not the other job.
                    loop.add(
                        RunLoop.Timer(after: .milliseconds(2)) { _ in
                            trace.add("timer")
                            loop.stop()
                        })
                    trace.add("\(loop.nest(for: patience))")
                    trace.add("end")
                }
            }
            for await _ in entered {}
            await other.run { _ in trace.add("other") }
            await first.value
            #expect(trace.list == ["begin", "timer", "stopped", "end", "other"])
        }
    }

    @Test func `jobs that are queued during nested runs of any mode run afterwards, in order`() async throws {
        for mode in ["default", "private"] as [RunLoop.Mode] {
            try await withLoopThread { thread in
                let loop = thread.runLoop
                let ledger = Ledger(on: loop, senders: 1)
                await ledger.run { isolated in
                    let alive = loop.keepAlive(forMode: mode)
                    for round in 0..<5 {
                        for number in 0..<10 {
                            Task(executorPreference: loop) { await ledger.add(round * 10 + number, from: 0) }
                        }
                        #expect(loop.nest(mode, for: .zero) == .timedOut)
                        #expect(isolated.numbers[0].isEmpty)
                    }
                    alive.cancel()
                }
                // One more job after them.
                try await Task(executorPreference: loop) { try await Task.sleep(for: .zero) }.value
                try await suspendUntil("50 numbers arrive") { await ledger.numbers[0].count >= 50 }
                #expect(await ledger.numbers[0] == Array(0..<50))
            }
        }
    }

    @Test func `a nested run inside a job does not spin or sleep past its limit while jobs wait`() async throws {
        try await withLoopThread { thread in
            let loop = thread.runLoop
            let ledger = Ledger(on: loop)
            let (result, passes) = await ledger.run { _ in
                for _ in 0..<10 { Task(executorPreference: loop) {} }
                let before = loop.statistics.passes
                let result = loop.nest(for: .milliseconds(20))
                return (result, loop.statistics.passes - before)
            }
            #expect(result == .timedOut)
            #expect(passes < 10)
        }
    }

    @Test func `a nested run in a plain handler runs jobs`() async throws {
        try await withLoopThread { thread in
            let loop = thread.runLoop
            let ledger = Ledger(on: loop)
            let result = try await onThread(of: loop) {
                Task {
                    await ledger.add("job")
                    loop.stop()
                }
                return loop.run(for: patience)
            }
            #expect(result == .stopped)
            #expect(await ledger.entries == ["job"])
        }
    }

    @Test func `if a job stops the loop, the rest of its batch still runs`() throws {
        let trace = Trace()
        try onFreshThread { loop in
            for number in 1...3 {
                Task(executorPreference: loop) {
                    trace.add("\(number)")
                    loop.stop()
                }
            }
            trace.add("\(loop.run(for: patience))")
        }
        #expect(trace.description == "1 2 3 stopped")
    }
}
