// Rules proved here (goal W9; RunLoop+Executor.swift):
// - A task that prefers a loop stays on the loop's thread: its body, functions without an actor, actors without an executor, code after a
//   sleep, and child tasks.
// - A call from such a task into an actor on the loop takes at most two jobs, and the loop does not sleep in between.

import EventLoop
import EventLoopTestSupport
import Testing

private actor Plain {
    func threadID() -> UInt { currentThreadID() }
}

@concurrent private func nobodysThreadID() async -> UInt { currentThreadID() }

/// Calls the actor and uses the results, so that the task has to return to its own executor after each call.
@concurrent private func addUp(_ ledger: Ledger, calls: Int) async -> Int {
    var sum = 0
    for number in 0..<calls { sum += await ledger.echo(number) }
    return sum
}

extension Ledger {
    fileprivate func echo(_ number: Int) -> Int { loop.isCurrent ? number : .min }
}

@Suite(.bounded, .tags(.threads)) struct `Tasks that prefer a loop` {
    @Test func `code without an executor of its own runs on the loop's thread`() async throws {
        try await withLoopThread { thread in
            let own = try await thread.runLoop.performAsync { currentThreadID() }
            let plain = Plain()
            let seen = await Task(executorPreference: thread.runLoop) {
                var seen = [currentThreadID(), await nobodysThreadID(), await plain.threadID()]
                try? await Task.sleep(for: .milliseconds(1))
                seen.append(currentThreadID())
                try? await thread.runLoop.clock.sleep(for: .milliseconds(1))
                seen.append(currentThreadID())
                async let child = nobodysThreadID()
                seen.append(await child)
                return seen
            }.value
            #expect(seen == Array(repeating: own, count: 6))
        }
    }

    @Test func `a part of a task can prefer a loop`() async throws {
        try await withLoopThread { thread in
            let own = try await thread.runLoop.performAsync { currentThreadID() }
            let inside = await withTaskExecutorPreference(thread.runLoop) { await nobodysThreadID() }
            #expect(inside == own)
            #expect(await nobodysThreadID() != own)
        }
    }

    @Test func `a preference for one loop does not move an actor from another loop`() async throws {
        try await withLoopThread { first in
            try await withLoopThread { second in
                let ledger = Ledger(on: second.runLoop)
                let isOnItsLoop = await Task(executorPreference: first.runLoop) {
                    var isOnItsLoop = true
                    for _ in 0..<200 {
                        isOnItsLoop = await ledger.isOnLoop() && isOnItsLoop
                        isOnItsLoop = first.runLoop.isCurrent && isOnItsLoop
                    }
                    return isOnItsLoop
                }.value
                #expect(isOnItsLoop)
            }
        }
    }

    @Test func `a call into an actor of the loop takes at most two jobs, and the loop does not sleep in between`() async throws {
        try await withLoopThread { thread in
            let loop = thread.runLoop
            let ledger = Ledger(on: loop)
            let calls = 10_000
            let before = loop.statistics
            let sum = await Task(executorPreference: loop) { await addUp(ledger, calls: calls) }.value
            let after = loop.statistics
            #expect(sum == calls * (calls - 1) / 2)
            #expect(after.jobsPerformed - before.jobsPerformed <= UInt64(2 * calls + 10))
            #expect(after.waits - before.waits <= 3)
            #expect(after.wakeUps - before.wakeUps <= 3)
        }
    }

    @Test func `calls inside an actor take no job`() async throws {
        try await withLoopThread { thread in
            let loop = thread.runLoop
            let ledger = Ledger(on: loop)
            _ = await ledger.isOnLoop()
            let before = loop.statistics.jobsPerformed
            // A task without a preference hops to the actor once; the awaits inside the actor do not hop.
            await ledger.callItself(times: 1_000)
            #expect(loop.statistics.jobsPerformed - before <= 2)
        }
    }
}

extension Ledger {
    fileprivate func callItself(times: Int) async {
        for _ in 0..<times { await again() }
    }

    private func again() async { strayCalls += loop.isCurrent ? 0 : 1 }
}
