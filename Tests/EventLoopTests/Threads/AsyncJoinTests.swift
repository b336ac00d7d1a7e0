// Rules proved here (semantics 9.20, 9.24): tasks wait for the end of threads without blocking a thread.
// - In an async context `join` and `shutdown` are the forms that suspend, in a synchronous one those that block.
// - Any number of tasks may wait. While they do, other tasks run.
// - A wait ends with the thread, its timeout or its task's cancellation. The thread is unaffected by the last two.
// - A task on the thread's own loop may wait for the thread.

import EventLoopTestSupport
import Testing

@testable import EventLoop

/// A thread in whose handler the test can wait.
private struct StuckThread {
    let thread: RunLoopThread
    let gate = EventLoopTestSupport.Gate()

    init(_ name: String = "stuck") throws {
        thread = try RunLoopThread(name: name)
        let entered = EventLoopTestSupport.Gate()
        thread.runLoop.perform { [gate] in
            entered.open()
            gate.wait()
        }
        entered.wait()
        thread.stop()
    }

    func end() async {
        gate.open()
        #expect(await thread.join(timeout: patience))
    }
}

@Suite(.bounded, .tags(.threads)) struct AsyncJoinTests {
    @Test func `join is the form that suspends in a task, and the form that blocks elsewhere`() async throws {
        let thread = try RunLoopThread(name: "both")
        thread.stop()
        await thread.join()
        // A closure that is not async.
        let block: @Sendable () -> Bool = { thread.join() && thread.join(timeout: .zero) }
        #expect(block())
        #expect(await thread.join(timeout: .zero))
        #expect(!thread.runLoop.isValid)
    }

    @Test func `a thousand tasks wait for one thread, and other tasks run meanwhile`() async throws {
        let stuck = try StuckThread()
        let thread = stuck.thread
        let waiting = (0..<1_000).map { _ in Task { await thread.join() } }
        // Each of these needs a thread of the pool. If the waits blocked threads, none would be left.
        try await suspendUntil("all tasks wait") { thread.threadEnd.waitingTasks == 1_000 }
        for _ in 0..<100 { await Task.detached {}.value }
        stuck.gate.open()
        for task in waiting { #expect(await task.value) }
        #expect(thread.threadEnd.waitingTasks == 0)
    }

    @Test func `a wait with a timeout ends without the thread, and leaves nothing behind`() async throws {
        let stuck = try StuckThread()
        for timeout in [Duration.zero, .seconds(-1), .milliseconds(1)] {
            let before = RunLoop.Instant.now
            #expect(await !stuck.thread.join(timeout: timeout))
            #expect(RunLoop.Instant.now >= before + timeout)
        }
        #expect(stuck.thread.threadEnd.waitingTasks == 0 && stuck.thread.runLoop.isValid)
        await stuck.end()
    }

    @Test func `a timeout of centuries does not end the wait`() async throws {
        let thread = try RunLoopThread(name: "long")
        async let hasEnded = thread.join(timeout: .seconds(Int64.max))
        thread.stop()
        #expect(await hasEnded)
    }

    @Test func `a cancelled wait ends at once, and the thread continues`() async throws {
        try await withLoopThread { thread in
            let wait = Task { await thread.join(timeout: .seconds(3600)) }
            try await suspendUntil("the task waits") { thread.threadEnd.waitingTasks == 1 }
            wait.cancel()
            #expect(await !wait.value)
            #expect(thread.threadEnd.waitingTasks == 0)
            #expect(try await thread.runLoop.performAsync { 42 } == 42)
        }
    }

    @Test func `a cancelled task learns that a thread has ended, but does not wait for it`() async throws {
        let thread = try RunLoopThread(name: "early")
        let gate = EventLoopTestSupport.Gate()
        let early = Task {
            try? await gate.waitInTask()
            return await thread.join()
        }
        early.cancel()
        gate.open()
        #expect(await !early.value)
        thread.stop()
        await thread.join()
        let late = Task {
            await suspendUntilCancelled()
            return await thread.join()
        }
        late.cancel()
        #expect(await late.value)
    }

    @Test func `a task on the thread's own loop waits for the thread, and resumes after its end`() async throws {
        let thread = try RunLoopThread(name: "own")
        let ledger = Ledger(on: thread.runLoop)
        let joined = Box(false)
        await ledger.spawn { ledger in
            ledger.assertIsolated()
            joined.value = await thread.join()
            ledger.append("joined")
        }
        try await suspendUntil("the task waits") { thread.threadEnd.waitingTasks == 1 }
        thread.stop()
        #expect(await thread.join())
        try await suspendUntil("the task has resumed") { joined.value }
        try await suspendUntil("its actor works") { await ledger.entries == ["joined"] }
    }

    @Test func `tasks and threads wait for the same thread`() async throws {
        let stuck = try StuckThread()
        let thread = stuck.thread
        let threads = (0..<4).map { _ in plainThread { thread.join(timeout: patience) } }
        let tasks = (0..<4).map { _ in Task { await thread.join(timeout: patience) } }
        stuck.gate.open()
        for task in tasks { #expect(await task.value) }
        for thread in threads { #expect(try thread.join()) }
    }

    @Test func `cancellations, timeouts and the end compete, and every task resumes once`() async throws {
        for round in 0..<200 / roundsDivisor {
            let thread = try RunLoopThread(name: "race")
            let tasks = (0..<8).map { index in
                Task { await thread.join(timeout: index % 2 == 0 ? .microseconds(index * 50) : patience) }
            }
            if round % 2 == 0 { tasks[1].cancel() }
            thread.stop()
            tasks[3].cancel()
            #expect(await tasks[7].value)
            for task in tasks { _ = await task.value }
            #expect(thread.threadEnd.waitingTasks == 0)
        }
    }
}

@Suite(.bounded, .tags(.threads)) struct AsyncShutdownTests {
    @Test func `shutdown suspends until every thread has ended, and can be repeated`() async throws {
        let performed = Box(0)
        let group = try RunLoopThreadGroup(count: 3)
        for _ in 0..<100 { group.next().perform { performed.increment() } }
        #expect(await group.shutdown())
        #expect(group.runLoops.allSatisfy { !$0.isValid } && performed.value == 100)
        await group.shutdown(drainingFor: .zero)
        #expect(await group.shutdown(timeout: .zero).isEmpty)
    }

    @Test func `shutdown with a limit for the draining does not wait for holds longer`() async throws {
        let group = try RunLoopThreadGroup(count: 2, drainLimit: .seconds(3600), setup: { _ in }, teardown: { _, _ in })
        let holds = group.runLoops.map { $0.holdThread() }
        #expect(await group.shutdown(drainingFor: .zero))
        #expect(group.runLoops.allSatisfy { !$0.isValid })
        for hold in holds { hold.release() }
    }

    @Test func `shutdown with a timeout returns the threads that are stuck`() async throws {
        let (entered, gate) = (EventLoopTestSupport.Gate(), EventLoopTestSupport.Gate())
        let group = try RunLoopThreadGroup(count: 3)
        group.runLoops[1].perform {
            entered.open()
            gate.wait()
        }
        try await entered.waitInTask()
        var left = await group.shutdown(timeout: .milliseconds(100))
        // On a busy machine, the other threads may need longer to end.
        while left.count > 1 { left = await group.shutdown(timeout: .milliseconds(100)) }
        #expect(left.map { $0.runLoop === group.runLoops[1] } == [true])
        gate.open()
        #expect(await group.shutdown(timeout: patience).isEmpty)
    }

    @Test func `shutdown reports a stuck thread until its handler returns`() async throws {
        let (entered, gate) = (EventLoopTestSupport.Gate(), EventLoopTestSupport.Gate())
        let group = try RunLoopThreadGroup(count: 2, name: "stuck")
        group.runLoops[1].perform {
            entered.open()
            gate.wait()
        }
        try await entered.waitInTask()
        let reports = Box(0)
        await group.shutdown(reportingEvery: .milliseconds(1)) { text in
            let isOurs = text == "run loop thread \"stuck-1\" was asked to stop and is still in a handler\n"
            if isOurs && reports.increment() == 3 { gate.open() }
        }
        #expect(reports.value >= 3)
    }

    @Test func `a cancelled shutdown has stopped the threads, and returns at once`() async throws {
        let (entered, gate) = (EventLoopTestSupport.Gate(), EventLoopTestSupport.Gate())
        let group = try RunLoopThreadGroup(count: 2)
        group.runLoops[0].perform {
            entered.open()
            gate.wait()
        }
        try await entered.waitInTask()
        let shutdown = Task {
            await suspendUntilCancelled()
            return await group.shutdown()
        }
        shutdown.cancel()
        #expect(await !shutdown.value)
        // The other thread ends on its own, and this one as soon as it can.
        gate.open()
        for thread in group.threads { #expect(await thread.join(timeout: patience)) }
    }

    @Test func `a task on a member's loop may shut the group down`() async throws {
        let group = try RunLoopThreadGroup(count: 2)
        let ledger = Ledger(on: group.runLoops[0])
        let isDone = Box(false)
        await ledger.spawn { _ in isDone.value = await group.shutdown() }
        try await suspendUntil("the group has ended") { isDone.value }
        #expect(group.runLoops.allSatisfy { !$0.isValid })
    }
}
