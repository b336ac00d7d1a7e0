// Rules proved here (RunLoop+ExitStatus.swift): a task receives its child's exit status. Cancelling the task leaves the child alone.

import EventLoop
import EventLoopTestSupport
import Testing

#if canImport(Glibc)
import Glibc
#else
import Darwin
#endif

@Suite(.bounded, .tags(.lifetimes)) struct `Exit statuses for tasks` {
    @Test func `a task waits for its child`() async throws {
        try await withLoopThread { thread in
            let status = try await thread.runLoop.exitStatus(of: spawn("exit 4"))
            #expect(status == .exited(4))
            let child = Child.untilKilled()
            let sleeper = child.pid
            async let killed = thread.runLoop.exitStatus(of: sleeper)
            child.kill(SIGTERM)
            #expect(try await killed == .signaled(signal: SIGTERM, coreDumped: false))
            await #expect(throws: RunLoop.SourceError.badProcess(sleeper)) { try await thread.runLoop.exitStatus(of: sleeper) }
        }
    }

    @Test func `many tasks wait, each for its own child`() async throws {
        try await withLoopThread { thread in
            let statuses = try await withThrowingTaskGroup(of: (Int32, RunLoop.ExitStatus).self) { group in
                for number in 0..<30 as Range<Int32> {
                    let child = spawn("exit \(number)")
                    group.addTask { (number, try await thread.runLoop.exitStatus(of: child)) }
                }
                return try await group.reduce(into: []) { $0.append($1) }
            }
            #expect(statuses.count == 30 && statuses.allSatisfy { $0.1 == .exited($0.0) })
        }
    }

    @Test func `the wait ends if the task is cancelled or its loop ends, and the child lives on`() async throws {
        let child = Child.untilKilled()
        let thread = try RunLoopThread(name: "short")
        let loop = thread.runLoop
        let cancelled = Task { try await loop.exitStatus(of: child.pid) }
        try await suspendUntil("a task waits for the child") { loop.debugDescription.contains("a task waits") }
        cancelled.cancel()
        await #expect(throws: CancellationError.self) { try await cancelled.value }
        let left = Task { try await loop.exitStatus(of: child.pid) }
        try await suspendUntil("a task waits for the child") { loop.debugDescription.contains("a task waits") }
        thread.stop()
        #expect(thread.join(timeout: patience))
        await #expect(throws: RunLoopEnded.self) { try await left.value }
        await #expect(throws: RunLoopEnded.self) { try await loop.exitStatus(of: child.pid) }
        child.kill()
        #expect(waitForEnd(of: child.pid) == SIGKILL)
    }
}
