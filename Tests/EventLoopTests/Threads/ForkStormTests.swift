// Forks while every part of the library is busy on other threads (semantics 9.10).
//
// A child makes a loop of its own, starts threads, serves a port, watches signals and children, ends its use of every inherited object,
// exits, or executes another program. Each child has an alarm of its own and reports its steps, so that the failure of a child that hangs
// names the step.
//
// The short form is part of the suite. `make fork-storm` forks a thousand times (EVENTLOOP_FORKS).

#if os(Linux)

import EventLoopTestSupport
import Glibc
import Synchronization
import Testing

@testable import EventLoop
@testable import EventLoopMessagePorts

@Suite(.serialized, .tags(.threads)) struct ForkStormTests {
    @Test(.disabled(if: isUnderThreadSanitizer, "ThreadSanitizer's runtime has locks of its own, which a child inherits"))
    func `no child hangs, whatever the parent's threads were doing at the fork`() async {
        await #expect(processExitsWith: .success) {
            // Few: in one of many hundreds, a child inherits a lock of the Swift runtime or of a sanitizer (decision 24), and hangs.
            let forks = getenv("EVENTLOOP_FORKS").flatMap { Int(String(cString: $0)) } ?? 3 * ChildActivity.allCases.count
            // The Swift runtime takes locks of its own at the first use of a type, so the parent uses all types before it forks.
            for activity in ChildActivity.allCases where activity.isForParentToo { #expect(activity.perform(nil) { _ in } == 0) }
            let parent = try BusyProcess()
            var forked = 0
            for turn in 0..<forks {
                let activity = ChildActivity.allCases[turn % ChildActivity.allCases.count]
                let outcome = storm(activity, parent)
                #expect(outcome == "", "fork \(turn), \(activity): \(outcome)")
                if outcome != "" { break }
                forked += 1
            }
            try parent.end()
            // No thread of the parent hung either.
            #expect(parent.rounds.allSatisfy { $0.value > 0 }, "\(parent.rounds.map(\.value))")
            #expect(forked == forks)
        }
    }
}

/// Forks one child. Returns an empty string, or a description of the child's failure.
private func storm(_ activity: ChildActivity, _ parent: BusyProcess) -> String {
    var ends: [Int32] = [-1, -1]
    precondition(closeOnExecPipe(&ends), "pipe: errno \(errno)")
    let child = systemFork()
    precondition(child >= 0, "fork: errno \(errno)")
    if child == 0 {
        killLater(seconds: 120)
        let says = ends[1]
        let status = activity.perform(parent) { step in _ = write(says, step.utf8Start, step.utf8CodeUnitCount) }
        _exit(status)
    }
    close(ends[1])
    defer { close(ends[0]) }
    let end = waitForChild(child, errors: ends[0])
    if end.status == 0 { return "" }
    return (end.stoodStill ? "it stood still" : "status \(end.status)") + " after: \(end.errors)"
}

enum ChildActivity: CaseIterable {
    case exit, execute, ownLoop, threads, letGo, port, signals

    /// Whether the parent can perform the activity too.
    var isForParentToo: Bool {
        switch self {
        case .exit, .execute, .letGo: false
        case .ownLoop, .threads, .port, .signals: true
        }
    }

    /// Returns the exit code.
    func perform(_ parent: BusyProcess?, _ says: @escaping @Sendable (StaticString) -> Void) -> Int32 {
        do {
            switch self {
            case .exit: return 0
            case .execute:
                says("execv ")
                var arguments: [UnsafeMutablePointer<CChar>?] = [strdup("true"), nil]
                execv("/bin/true", &arguments)
                return 1
            case .ownLoop: return try runOwnLoop(says) ? 0 : 2
            case .threads: return try useThreads(says) ? 0 : 3
            case .letGo:
                parent?.letGo(says)
                return try runOwnLoop(says) ? 0 : 4
            case .port: return try usePort(says) ? 0 : 5
            case .signals: return try watchSignals(says) ? 0 : 6
            }
        } catch {
            return 100
        }
    }

    private func runOwnLoop(_ says: @escaping @Sendable (StaticString) -> Void) throws -> Bool {
        says("loop ")
        return try onFreshThread { loop in
            let (pipe, trace) = (Pipe(), Trace())
            says("source ")
            loop.add(
                try readSource(pipe) { source in
                    trace.add(pipe.readAll())
                    source.invalidate()
                    loop.add(RunLoop.Timer(after: .milliseconds(1)) { _ in loop.stop() })
                })
            loop.perform { pipe.write("ab") }
            says("run ")
            let result = loop.run(for: patience)
            says("end ")
            return result == .stopped && trace.description == "ab"
        }
    }

    private func useThreads(_ says: @escaping @Sendable (StaticString) -> Void) throws -> Bool {
        says("start ")
        let thread = try RunLoopThread(name: "child's")
        says("perform ")
        let answer = try plainThread { try thread.runLoop.performAndWait { 42 } }.join()
        says("stop ")
        thread.stop()
        says("join ")
        thread.join()
        says("job ")
        try performJobOfEndedLoop()
        return answer == 42
    }

    private func usePort(_ says: @escaping @Sendable (StaticString) -> Void) throws -> Bool {
        says("take ")
        let served = try ServedPort { _, _, data in data + data }
        says("connect ")
        let remote = try RunLoop.RemoteMessagePort(name: served.name)
        says("ask ")
        let answer = try remote.ask(1, "a")
        says("invalidate ")
        remote.invalidate()
        says("withdraw ")
        try served.end()
        return answer == "aa"
    }

    private func watchSignals(_ says: @escaping @Sendable (StaticString) -> Void) throws -> Bool {
        says("signal ")
        return try onFreshThread { loop in
            let trace = Trace()
            let source = try RunLoop.SignalSource(signal: SIGUSR2) { source, _ in
                trace.add("signal")
                source.invalidate()
            }
            loop.add(source)
            // Tests run on threads of Dispatch, which block all signals. The threads of a forked child inherit that.
            var all = sigset_t()
            sigfillset(&all)
            pthread_sigmask(SIG_UNBLOCK, &all, nil)
            kill(getpid(), SIGUSR2)
            says("child ")
            let child = systemFork()
            if child == 0 { _exit(7) }
            let end = try RunLoop.ProcessSource(pid: child) { _, status in trace.add("\(status)") }
            loop.add(end)
            says("run ")
            while source.isValid || end.isValid { _ = loop.run(for: patience, returnAfterSourceHandled: true) }
            says("end ")
            return trace.description.contains("signal") && trace.description.contains("exited(7)")
        }
    }
}

/// Threads that keep every part of the library busy until `end`.
final class BusyProcess: Sendable {
    private let isOver = Box(false)
    private let threads = Box<[JoinableThread<Void>]>([])
    /// How many rounds each thread has completed.
    let rounds: [Box<Int>]
    private let server: RunLoopThread
    private let served: ServedPort
    private let remote: RunLoop.RemoteMessagePort
    private let custom = RunLoop.CustomSource(perform: {})
    private let mailbox = RunLoop.Port(capacity: 64) { _, _ in }
    private let timer = RunLoop.Timer(every: .milliseconds(1)) { _ in }
    private let observer = RunLoop.Observer(activities: .all) { _, _ in }
    private let alive = Box<RunLoop.KeepAlive?>(nil)
    private let signals: RunLoop.SignalSource

    init() throws {
        server = try RunLoopThread(name: "busy")
        served = try ServedPort { _, _, data in data }
        remote = try RunLoop.RemoteMessagePort(name: served.name)
        signals = try RunLoop.SignalSource(signal: SIGUSR1) { _, _ in }
        let loop = server.runLoop
        for source in [custom, mailbox, signals] { loop.add(source) }
        loop.add(timer)
        loop.add(observer)
        alive.value = loop.keepAlive()
        rounds = (0..<9).map { _ in Box(0) }
        let bodies: [@Sendable () throws -> Void] = [
            // Loops that begin and end.
            {
                try onFreshThread { loop in
                    loop.add(RunLoop.Timer(after: .zero) { _ in loop.stop() })
                    _ = loop.run(for: .milliseconds(1))
                }
            },
            { try performJobOfEndedLoop() },
            // Timers and sources of another thread's loop.
            {
                let timer = RunLoop.Timer(after: .milliseconds(1)) { _ in }
                loop.add(timer)
                timer.nextFire = .now.advanced(by: .seconds(10))
                timer.invalidate()
                let alive = loop.keepAlive()
                alive.cancel()
            },
            { [custom, mailbox] in
                custom.signal()
                loop.wakeUp()
                try? mailbox.send(RunLoop.PortMessage(id: 1))
                _ = try loop.performAndWait { 1 }
            },
            {
                let pipe = Pipe()
                let source = try RunLoop.DescriptorSource(descriptor: pipe.readEnd, events: .read) { _, _ in }
                let isOver = EventLoop.Latch()
                source.onInvalidation {
                    withExtendedLifetime(pipe) {}
                    isOver.open()
                }
                loop.add(source)
                pipe.write()
                source.invalidate()
                _ = isOver.wait(until: .now.advanced(by: patience))
            },
            // Named ports.
            { [remote] in _ = try remote.ask(1, "a") },
            { [served] in
                let remote = try RunLoop.RemoteMessagePort(name: served.name)
                _ = try remote.ask(1, "a")
                let local = try RunLoop.LocalMessagePort(name: freshName()) { _, _, _ in nil }
                local.invalidate()
            },
            // Signals and children.
            {
                let source = try RunLoop.SignalSource(signal: SIGUSR2) { _, _ in }
                let isOver = EventLoop.Latch()
                source.onInvalidation { isOver.open() }
                loop.add(source)
                kill(getpid(), SIGUSR1)
                source.invalidate()
                _ = isOver.wait(until: .now.advanced(by: patience))
            },
            {
                let isEnded = EventLoop.Latch()
                loop.add(try RunLoop.ProcessSource(pid: spawnChild("/bin/true", [])) { _, _ in isEnded.open() })
                _ = isEnded.wait(until: .now.advanced(by: patience))
            },
        ]
        for (index, body) in bodies.enumerated() {
            let (isOver, round) = (isOver, rounds[index])
            let thread = plainThread {
                while !isOver.value {
                    try body()
                    round.increment()
                }
            }
            threads.change { $0.append(thread) }
        }
        // Each thread completes a few rounds, so that none uses a type for the first time from here on.
        try waitUntil { rounds.allSatisfy { $0.value > 2 } }
    }

    func end() throws {
        isOver.value = true
        for thread in threads.value { try thread.join() }
        remote.invalidate()
        try served.end()
        server.stop()
        server.join()
    }

    /// In a child: ends its use of every inherited object.
    func letGo(_ says: (StaticString) -> Void) {
        says("wakeUp ")
        server.runLoop.wakeUp()
        server.runLoop.stop(sticky: true)
        says("signal ")
        custom.signal()
        says("send ")
        try? mailbox.send(RunLoop.PortMessage(id: 1))
        says("sources ")
        server.runLoop.remove(custom)
        for source in [custom, mailbox, signals, served.port] { source.invalidate() }
        says("timer ")
        timer.invalidate()
        says("observer ")
        observer.invalidate()
        says("keepAlive ")
        alive.value = nil
        says("remote ")
        remote.invalidate()
        says("thread ")
        server.stop()
        server.join()
    }
}

#endif
