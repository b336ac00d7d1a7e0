// Rules proved here (ProcessSource.swift, processes.c), with descriptors for processes and without:
// - The source reports a child's exit code or signal once, on the loop's thread, whatever the loop was doing. Then the source is invalid
//   and the child is reaped.
// - The child may have ended before the source was made. The source reaps no other child. If it is invalidated first, it reaps none.
// - A process that is no child, or that other code has reaped, is `.badProcess`.
//
// Each test runs in a process of its own, because children and the refusal of descriptors belong to a whole process.

import CPlatform
import EventLoop
import EventLoopTestSupport
import Testing

#if canImport(Glibc)
import Glibc
#else
import Darwin
#endif

enum ChildWay: String, CaseIterable, Codable, Sendable {
    case descriptor, signal

    func choose() {
        cplatform_tests_refuse_child_descriptors(self == .signal)
        letThrough(SIGCHLD)
    }
}

private func watch(_ child: Int32, _ trace: Trace) throws -> RunLoop.ProcessSource {
    try RunLoop.ProcessSource(pid: child) { source, status in
        #expect(RunLoop.current.isCurrent && !source.isValid)
        switch status {
        case .exited(let code): trace.add("exited \(code)")
        case .signaled(let signal, let dumped): trace.add("killed \(signal)\(dumped ? " with a core" : "")")
        }
    }
}

@Suite(.bounded, .tags(.lifetimes)) struct ProcessSourceTests {
    @Test(arguments: ChildWay.allCases)
    func `the source reports once how a child ended, and reaps the child`(way: ChildWay) async {
        await #expect(processExitsWith: .success) { [way] in
            way.choose()
            try onFreshThread { loop in
                for (script, said) in [
                    ("exit 0", "exited 0"), ("exit 7", "exited 7"), ("kill -9 $$", "killed 9"), ("kill -15 $$", "killed 15"),
                ] {
                    let trace = Trace()
                    let child = spawn(script)
                    let source = try watch(child, trace)
                    source.onInvalidation { trace.add("ended") }
                    loop.add(source)
                    #expect(loop.run(for: patience) == .finished)
                    #expect(trace.description == said + " ended")
                    #expect(!source.isValid && source.failure == nil)
                    #expect(!exists(child))
                }
            }
        }
    }

    @Test(arguments: ChildWay.allCases)
    func `a child that has already ended is reported, and counts as a handled source`(way: ChildWay) async {
        await #expect(processExitsWith: .success) { [way] in
            way.choose()
            try onFreshThread { loop in
                let trace = Trace()
                let child = spawn("exit 5")
                try waitUntilEnded(child)
                let source = try watch(child, trace)
                let alive = loop.keepAlive()
                let other = RunLoop.Mode("other")
                let otherAlive = loop.keepAlive(forMode: other)
                loop.add(source)
                // The report is held while another mode runs.
                #expect(loop.run(mode: other, for: .zero) == .timedOut)
                #expect(trace.description == "")
                #expect(loop.run(for: patience, returnAfterSourceHandled: true) == .handledSource)
                #expect(trace.description == "exited 5")
                #expect(loop.run(for: .zero) == .timedOut)
                #expect(trace.description == "exited 5")
                alive.cancel()
                otherAlive.cancel()
            }
        }
    }

    @Test(arguments: ChildWay.allCases)
    func `other children are left alone`(way: ChildWay) async {
        await #expect(processExitsWith: .success) { [way] in
            way.choose()
            try onFreshThread { loop in
                let trace = Trace()
                let (mine, other) = (Child.untilKilled(), spawn("exit 2"))
                // The watched child lives. The other child has ended, and its SIGCHLD has arrived or is about to.
                try waitUntilEnded(other)
                loop.add(try watch(mine.pid, trace))
                #expect(loop.run(for: .zero) == .timedOut)
                mine.kill()
                #expect(loop.run(for: patience) == .finished)
                #expect(trace.description == "killed 9")
                #expect(waitForEnd(of: other) == 2 << 8)
            }
        }
    }

    @Test(arguments: ChildWay.allCases)
    func `each of a hundred children is reported once`(way: ChildWay) async {
        await #expect(processExitsWith: .success) { [way] in
            way.choose()
            try onFreshThread { loop in
                let seen = Box<[Int32: Int32]>([:])
                var expected: [Int32: Int32] = [:]
                for number in 0..<100 as Range<Int32> {
                    let child = spawn("exit \(number)")
                    expected[child] = number
                    loop.add(
                        try RunLoop.ProcessSource(pid: child) { source, status in
                            guard case .exited(let code) = status else { return }
                            seen.change { $0[source.pid] = ($0[source.pid] ?? 0) + code }
                        })
                }
                #expect(loop.run(for: patience) == .finished)
                #expect(seen.value == expected)
            }
        }
    }

    @Test(arguments: ChildWay.allCases)
    func `a source invalidated before the child's end leaves the child to other code`(way: ChildWay) async {
        await #expect(processExitsWith: .success) { [way] in
            way.choose()
            try onFreshThread { loop in
                let trace = Trace()
                let child = Child.untilKilled()
                let source = try watch(child.pid, trace)
                loop.add(source)
                _ = loop.run(for: .zero)
                source.invalidate()
                child.kill()
                #expect(loop.run(for: .zero) == .finished)
                #expect(waitForEnd(of: child.pid) == SIGKILL)
                #expect(trace.description == "")
            }
        }
    }

    @Test(arguments: ChildWay.allCases)
    func `a source in several loops reports once`(way: ChildWay) async {
        await #expect(processExitsWith: .success) { [way] in
            way.choose()
            for _ in 0..<20 {
                let trace = Trace()
                let threads = try (0..<3).map { try RunLoopThread(name: "loop \($0)") }
                let child = spawn("exit 9")
                let source = try RunLoop.ProcessSource(pid: child) { _, status in trace.add("\(status)") }
                let ended = Box(false)
                source.onInvalidation { ended.value = true }
                for thread in threads { thread.runLoop.add(source) }
                try waitUntil { ended.value }
                for thread in threads {
                    thread.stop()
                    #expect(await thread.join(timeout: patience))
                }
                #expect(trace.description == "exited(9)")
            }
        }
    }

    @Test(arguments: ChildWay.allCases)
    func `a process that is no child, or has been reaped, is refused`(way: ChildWay) async {
        await #expect(processExitsWith: .success) { [way] in
            way.choose()
            let buried = spawn("exit 0")
            waitForEnd(of: buried)
            for pid in [1, 0, -1, getpid(), Int32.max, buried] {
                #expect(throws: RunLoop.SourceError.badProcess(pid)) { try RunLoop.ProcessSource(pid: pid) { _, _ in } }
            }
        }
    }

    @Test(arguments: ChildWay.allCases)
    func `a source fails if other code reaps its child`(way: ChildWay) async {
        await #expect(processExitsWith: .success) { [way] in
            way.choose()
            try onFreshThread { loop in
                let trace = Trace()
                let child = Child.untilKilled()
                let source = try watch(child.pid, trace)
                loop.add(source)
                _ = loop.run(for: .zero)
                child.kill()
                #expect(waitForEnd(of: child.pid) == SIGKILL)
                #expect(loop.run(for: patience) == .finished)
                #expect(source.failure == .badProcess(child.pid) && !source.isValid)
                #expect(trace.description == "")
            }
        }
    }

    #if os(Linux)
    @Test func `a child that other code reaped is not confused with the next child of the same number`() async {
        await #expect(processExitsWith: .success) {
            let child = spawn("exit 1")
            let descriptor = cplatform_child_descriptor(child)
            // This kernel has no descriptors for processes.
            if descriptor < 0 { return }
            waitForEnd(of: child)
            // As if the process number had wrapped around: it now belongs to another child, which has ended or lives.
            let (ended, alive) = (spawn("exit 2"), Child.untilKilled())
            try waitUntilEnded(ended)
            for child in [ended, alive.pid] {
                var exit = cplatform_exit()
                #expect(cplatform_child_status(child, descriptor, true, &exit) == -1 && errno == ECHILD)
            }
            #expect(waitForEnd(of: ended) == 2 << 8)
            alive.kill()
            waitForEnd(of: alive.pid)
        }
    }

    @Test func `a loop sleeps while another process traces a child that has ended, and then reports the child`() async {
        await #expect(processExitsWith: .success) {
            let child = TracedChild()
            let descriptor = cplatform_child_descriptor(child.pid)
            // This kernel has no descriptors for processes, or lets nobody trace.
            if descriptor < 0 || !child.isTraced { return child.release() }
            kill(child.pid, SIGKILL)
            try waitUntilReadable(descriptor, "the child ends")
            let end = try inManualTime { loop, _, trace in
                loop.add(try watch(child.pid, trace))
                let passes = Box(0)
                // Without this bound, a loop that does not sleep would never come to its limit.
                loop.add(RunLoop.Observer(activities: .beforeTimers) { _, _ in if passes.increment() > 100 { loop.stop() } })
                trace.add("\(loop.run(until: .ms(50)))")
                child.release()
                trace.add("\(loop.run(until: .ms(100)))")
                return trace.description
            }
            #expect(end == "timedOut killed 9 finished")
        }
    }
    #endif

    @Test(arguments: ChildWay.allCases)
    func `a source that is never added, or is dropped, leaves no descriptor and no handler behind`(way: ChildWay) async {
        await #expect(processExitsWith: .success) { [way] in
            way.choose()
            try onFreshThread { loop in
                let child = Child.untilKilled()
                let before = lowestFreeDescriptor()
                for _ in 0..<100 { _ = try watch(child.pid, Trace()) }
                // The test process itself opens a descriptor now and then.
                #expect(lowestFreeDescriptor() < before + 20)
                #expect(installedHandler(of: SIGCHLD) == 0)
                child.kill()
                waitForEnd(of: child.pid)
            }
        }
    }
}

#if os(Linux)
/// A child of this process that another child of it traces.
private final class TracedChild: Sendable {
    // Swift imports no function with a variable number of arguments.
    private typealias Trace = @convention(c) (Int32, Int32, UnsafeMutableRawPointer?, UnsafeMutableRawPointer?) -> Int
    private typealias Control = @convention(c) (Int32, UInt, UInt, UInt, UInt) -> Int32

    let pid: Int32
    /// Whether the kernel allowed it.
    let isTraced: Bool
    private let tracer: Int32
    /// The tracer ends when this is closed.
    private let end: Int32

    init() {
        // Looked up before the forks.
        let control = unsafeBitCast(dlsym(nil, "prctl")!, to: Control.self)
        let trace = unsafeBitCast(dlsym(nil, "ptrace")!, to: Trace.self)
        var (answers, ends): ([Int32], [Int32]) = ([-1, -1], [-1, -1])
        precondition(closeOnExecPipe(&answers) && closeOnExecPipe(&ends), "pipe: errno \(errno)")
        var answer: UInt8 = 0
        let child = systemFork()
        if child == 0 {
            killLater()
            // prctl(2): PR_SET_PTRACER with PR_SET_PTRACER_ANY. Kernels without Yama do not know it.
            _ = control(0x5961_6D61, UInt.max, 0, 0, 0)
            write(answers[1], &answer, 1)
            while true { pause() }  // ends: it is killed
        }
        precondition(child > 0 && read(answers[0], &answer, 1) == 1, "the child runs: errno \(errno)")
        let tracer = systemFork()
        if tracer == 0 {
            killLater()
            close(ends[1])
            // ptrace(2): PTRACE_SEIZE does not stop the child.
            answer = trace(0x4206, child, nil, nil) == 0 ? 1 : 0
            write(answers[1], &answer, 1)
            _ = read(ends[0], &answer, 1)
            _exit(0)
        }
        precondition(tracer > 0 && read(answers[0], &answer, 1) == 1, "the tracer runs: errno \(errno)")
        for descriptor in [answers[0], answers[1], ends[0]] { close(descriptor) }
        (pid, self.tracer, end, isTraced) = (child, tracer, ends[1], answer == 1)
    }

    /// Returns when the child is not traced any more.
    func release() {
        close(end)
        kill(pid, SIGKILL)
        waitForEnd(of: tracer)
    }
}
#endif
