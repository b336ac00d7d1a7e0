// Rules proved here for the tools with which tests wait (Waiting.swift, FreshThread.swift, Child.swift):
// - A wait ends at its bound, and its error says what it waited for and where.
// - A wait leaves the processor to other threads.
// - A child of a test lives until the test kills it. Releasing the object that holds the child kills and reaps the child.

import EventLoop
import EventLoopTestSupport
import Testing

#if canImport(Glibc)
import Glibc
#else
import Darwin
#endif

@Suite(.bounded) struct WaitingTests {
    @Test func `a thread's wait that cannot end fails at its bound; its error says what it waited for and where`() {
        let error = #expect(throws: WaitedTooLong.self) {
            try waitUntil("the cows come home", within: .milliseconds(5)) { false }
        }
        #expect(error?.description.contains("the cows come home (EventLoopTests/WaitingTests.swift:") == true, "\(error as Any)")
    }

    @Test func `a task's wait that cannot end fails at its bound, and a cancelled wait fails immediately`() async throws {
        let error = await #expect(throws: WaitedTooLong.self) {
            try await suspendUntil("the cows come home", within: .milliseconds(5)) { false }
        }
        #expect(error?.description.contains("the cows come home") == true)
        let task = Task { try await suspendUntil("nothing") { false } }
        task.cancel()
        await #expect(throws: CancellationError.self) { try await task.value }
    }

    @Test func `joining a thread that does not end fails and names the thread, which can be joined after it has ended`() throws {
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

    @Test func `releasing a child kills and reaps it`() {
        let pid = { Child.untilKilled().pid }()
        #expect(kill(pid, 0) == -1 && errno == ESRCH)
    }
}

private func hasEnded(_ pid: Int32) -> Bool {
    var info = siginfo_t()
    return waitid(P_PID, id_t(pid), &info, WEXITED | WNOWAIT | WNOHANG) == 0 && info.si_signo == SIGCHLD
}

/// The processor time of the calling thread.
private func processorTime() -> Duration {
    var time = timespec()
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time)
    return .seconds(time.tv_sec) + .nanoseconds(time.tv_nsec)
}
