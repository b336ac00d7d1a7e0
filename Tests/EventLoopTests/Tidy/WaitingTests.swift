// Rules proved here, of the tools by which tests wait (Waiting.swift, FreshThread.swift, Child.swift):
// - A wait ends at its bound, and says what it waited for and where.
// - A wait leaves the processor to others.
// - A child of a test lives until the test kills it, and is killed and reaped with the object that holds it.

import EventLoop
import EventLoopTestSupport
import Testing

#if canImport(Glibc)
import Glibc
#else
import Darwin
#endif

@Suite(.bounded) struct WaitingTests {
    @Test func `a thread's wait that cannot end fails at its bound, and says what it waited for and where`() {
        let error = #expect(throws: WaitedTooLong.self) {
            try waitUntil("the cows come home", within: .milliseconds(5)) { false }
        }
        #expect(error?.description.contains("the cows come home (EventLoopTests/WaitingTests.swift:") == true, "\(error as Any)")
    }

    @Test func `a task's wait that cannot end fails at its bound, and a cancelled one at once`() async throws {
        let error = await #expect(throws: WaitedTooLong.self) {
            try await suspendUntil("the cows come home", within: .milliseconds(5)) { false }
        }
        #expect(error?.description.contains("the cows come home") == true)
        let task = Task { try await suspendUntil("nothing") { false } }
        task.cancel()
        await #expect(throws: CancellationError.self) { try await task.value }
    }

    @Test func `joining a thread that does not end fails and says which thread; it can be joined when it has ended`() throws {
        let gate = Gate()
        let thread = plainThread { gate.wait() }
        let error = #expect(throws: WaitedTooLong.self) { try thread.join(within: .zero) }
        #expect(error?.description.contains("WaitingTests.swift:36; its body has not returned") == true, "\(error as Any)")
        gate.open()
        try thread.join()
    }

    @Test func `a wait for a descriptor fails at its bound`() {
        let pipe = Pipe()
        #expect(throws: WaitedTooLong.self) { try waitUntilReadable(pipe.readEnd, "a byte", within: .milliseconds(5)) }
        pipe.write()
        #expect(throws: Never.self) { try waitUntilReadable(pipe.readEnd, "a byte") }
    }

    @Test func `a wait uses little of the processor`() {
        let before = processorTime()
        #expect(throws: WaitedTooLong.self) { try waitUntil("nothing", within: .milliseconds(300)) { false } }
        #expect(processorTime() - before < .milliseconds(100))
    }

    @Test func `a child lives until it is killed`() {
        let child = Child.untilKilled()
        #expect(throws: WaitedTooLong.self) { try waitUntil("its end", within: .milliseconds(50)) { hasEnded(child.pid) } }
        child.kill()
        #expect(waitForEnd(of: child.pid) == SIGKILL)
        #expect(waitForEnd(of: child.pid) == nil)
    }

    @Test func `a child is killed and reaped when it is released`() {
        let pid = { Child.untilKilled().pid }()
        #expect(kill(pid, 0) == -1 && errno == ESRCH)
    }
}

private func hasEnded(_ pid: Int32) -> Bool {
    var info = siginfo_t()
    return waitid(P_PID, id_t(pid), &info, WEXITED | WNOWAIT | WNOHANG) == 0 && info.si_signo == SIGCHLD
}

/// Of the calling thread.
private func processorTime() -> Duration {
    var time = timespec()
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time)
    return .seconds(time.tv_sec) + .nanoseconds(time.tv_nsec)
}
