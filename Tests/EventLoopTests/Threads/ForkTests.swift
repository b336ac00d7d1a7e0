// fork without exec (semantics 1.20, 9.10):
//  - In the child, the first use of an inherited loop is a precondition failure whose message says to fork before the first use. The child
//    never shares the parent's epoll set silently.
//  - A new thread's loop works in the child, and so do the jobs of a loop that has ended.
//  - wakeUp and stop do nothing in the child, and do not reach the parent.
//  - A handler that forks and returns in the child dies there, before the child waits in the parent's set.
//
// Each test forks in a process of its own, in which no thread of another test holds a lock.

import EventLoop
import EventLoopTestSupport
import Testing

#if canImport(Glibc)
import Glibc
#else
import Darwin
#endif

@Suite(.bounded, .serialized, .tags(.memory)) struct ForkTests {
    @Test(arguments: ForkedUse.allCases)
    func `using an inherited loop ends the child with a message to fork before the first use`(use: ForkedUse) async {
        await #expect(processExitsWith: .success) { [use] in
            let end = try onFreshThread { loop in
                loop.add(RunLoop.Timer(fireAt: .distantFuture) { _ in })
                _ = loop.run(for: .zero)
                return inForkedChild {
                    use.apply(to: loop)
                    return 0
                }
            }
            #expect(end.signal != 0 && !end.stoodStill, "\(use): exit status \(end.status)")
            #expect(end.errors.contains("fork"), "\(use): \(end.errors)")
        }
    }

    @Test func `a new thread's loop works in the child, beside the inherited one`() async {
        await #expect(processExitsWith: .success) {
            let end = try onFreshThread { loop in
                let alive = loop.keepAlive()
                defer { alive.cancel() }
                _ = loop.run(for: .zero)
                return inForkedChild {
                    let trace = try? onFreshThread { childLoop in
                        let trace = Trace()
                        let pipe = Pipe()
                        // The reader makes the timer: on a slow machine, an earlier timer could be due before the write to the pipe.
                        childLoop.add(
                            try readSource(pipe) { _ in
                                trace.add("read:\(pipe.readAll())")
                                childLoop.add(
                                    RunLoop.Timer(after: .milliseconds(5)) { _ in
                                        trace.add("timer")
                                        childLoop.stop()
                                    })
                            })
                        childLoop.perform { pipe.write("ab") }
                        trace.add("\(childLoop.run(for: patience))")
                        return trace.description
                    }
                    return trace == "read:ab timer stopped" ? 0 : 1
                }
            }
            #expect(end.status == 0, "\(end)")
        }
    }

    @Test func `a RunLoopThread works in the child`() async {
        await #expect(processExitsWith: .success) {
            let end = try onFreshThread { loop in
                _ = loop.run(for: .zero)
                return inForkedChild {
                    guard let thread = try? RunLoopThread(name: "child") else { return 1 }
                    let answer = try? thread.runLoop.performAndWait { 42 }
                    thread.stop()
                    return thread.join(timeout: patience) && answer == 42 ? 0 : 2
                }
            }
            #expect(end.status == 0, "\(end)")
        }
    }

    @Test func `jobs of a loop that has ended run in the child as they do in the parent`() async {
        await #expect(processExitsWith: .success) {
            // Here the process has started the thread for such jobs before the fork.
            try performJobOfEndedLoop()
            let end = inForkedChild {
                do { try performJobOfEndedLoop() } catch { return 1 }
                return 0
            }
            #expect(end.status == 0, "\(end)")
        }
    }

    @Test func `a child that returns from the handler that forked it traps, and does not wait in the parent's epoll set`() async {
        await #expect(processExitsWith: .success) {
            try expectTrapInChildOfHandler { loop, fork in
                loop.perform { fork() }
                _ = loop.run(for: .zero)
            }
        }
    }

    @Test func `a child that returns from a handler of a hosted loop traps before it prepares the host's sleep`() async {
        await #expect(processExitsWith: .success) {
            try expectTrapInChildOfHandler { loop, fork in
                let pipe = Pipe()
                // Served after the kernel was asked, so that nothing else in the step would notice.
                loop.add(try readSource(pipe) { _ in fork() })
                pipe.write("a")
                _ = try loop.hosted().step()
            }
        }
    }

    @Test func `questions about an inherited loop find nothing in it`() async {
        await #expect(processExitsWith: .success) {
            let end = try onFreshThread { loop in
                let timer = RunLoop.Timer(fireAt: .distantFuture) { _ in }
                let source = RunLoop.CustomSource {}
                loop.add(timer)
                loop.add(source)
                // The runtime has met the types of a description before the fork.
                _ = String(reflecting: loop)
                return inForkedChild {
                    if loop.contains(timer) || loop.contains(source) { return 1 }
                    if loop.nextTimerFire() != nil || !loop.commonModes.isEmpty { return 2 }
                    return String(reflecting: loop).contains("of the parent process") ? 0 : 3
                }
            }
            #expect(end.status == 0, "\(end)")
        }
    }

    @Test func `wakeUp and stop do nothing in the child, and do not reach the parent's sleeping loop`() async {
        await #expect(processExitsWith: .success) {
            let trace = Trace()
            let started = Box<RunLoop?>(nil)
            let sleeper = joinableThread { loop in
                trace.observe(loop)
                let alive = loop.keepAlive()
                defer { alive.cancel() }
                started.value = loop
                return loop.run(for: patience)
            }
            try waitUntil { started.value?.isWaiting == true }
            let loop = started.value!
            let end = inForkedChild {
                loop.wakeUp()
                loop.stop()
                loop.stop(sticky: true)
                return 0
            }
            #expect(end.status == 0, "\(end)")
            // The child has ended, so it can affect this loop no more.
            for _ in 0..<100 { sched_yield() }
            try waitUntilAsleep(loop)
            // The loop has not left its wait: the child caused not even an edge on the wake-up descriptor, which both processes share.
            #expect(loop.statistics.waits == 1)
            loop.perform {
                trace.add("perform")
                loop.stop()
            }
            trace.add("-> \(try sleeper.join())")
            #expect(trace.description == "E T S W A T S perform X -> stopped")
        }
    }

    @Test func `the parent's loop keeps working after a fork`() async {
        await #expect(processExitsWith: .success) {
            let trace = try onFreshThread { loop in
                let trace = Trace()
                let pipe = Pipe()
                loop.add(
                    try readSource(pipe) { _ in
                        trace.add("read:\(pipe.readAll())")
                        loop.stop()
                    })
                _ = loop.run(for: .zero)
                let end = inForkedChild { 0 }
                trace.add("child \(end.status)")
                pipe.write("ab")
                trace.add("\(loop.run(for: patience))")
                return trace.description
            }
            #expect(trace == "child 0 read:ab stopped")
        }
    }
}

/// `run` has a loop call a handler that calls `fork`. In the child of that, the loop traps before `run` returns.
@Sendable private func expectTrapInChildOfHandler(
    _ run: @escaping @Sendable (RunLoop, _ fork: @escaping @Sendable () -> Void) throws -> Void
) throws {
    let end = try onFreshThread { _ in
        // The process that forks this child is itself a child, so that the test can read its standard error.
        inForkedChild {
            let child = Box<Int32>(0)
            let status = try? onFreshThread { loop -> Int32 in
                try run(loop) { child.value = systemFork() }
                if child.value == 0 { _exit(42) }
                var status: Int32 = 0
                while waitpid(child.value, &status, 0) < 0 && errno == EINTR {}
                return status
            }
            guard let status else { return 1 }
            return status & 0x7f != 0 ? 0 : 2
        }
    }
    #expect(end.status == 0, "\(end)")
    #expect(end.errors.contains("fork"), "\(end.errors)")
}

/// Runs a job of a loop whose thread has ended, on the thread that runs such jobs.
@Sendable func performJobOfEndedLoop() throws {
    let thread = try RunLoopThread(name: "ended")
    thread.stop()
    thread.join()
    let isDone = Box(false)
    _ = Task(executorPreference: thread.runLoop) { isDone.value = true }
    try waitUntil { isDone.value }
}

enum ForkedUse: String, CaseIterable, Codable, Sendable {
    case current, run, addTimer, addObserver, addSource, perform, performAndWait, performBlock, withEventBase

    func apply(to loop: RunLoop) {
        switch self {
        case .current: _ = RunLoop.current
        case .run: _ = loop.run(for: .zero)
        case .addTimer: loop.add(RunLoop.Timer(fireAt: .distantFuture) { _ in })
        case .addObserver: loop.add(RunLoop.Observer(activities: .all) { _, _ in })
        case .addSource: loop.add(RunLoop.CustomSource(perform: {}))
        case .perform: loop.perform {}
        case .performAndWait: try? loop.performAndWait {}
        case .performBlock: loop.performBlock {}
        case .withEventBase: loop.withEventBase { _ in }
        }
    }
}
