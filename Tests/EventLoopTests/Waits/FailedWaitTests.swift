// Waits that the kernel refuses, and files that the kernel reports under a number that no source watches (semantics 4.17, 4.18; decision
// 14):
//  - If other code closes a loop's epoll descriptor, the program ends with a message that names the errno.
//  - A descriptor that is closed before its source is invalidated, while a duplicate of it is open, does not spin the wait: the loop
//    makes a new base, logs which source it was, and serves the others.
//  - A descriptor that is closed before its source is invalidated, without a duplicate, costs one sweep and nothing else.
//  - Such a descriptor does not make an expired deadline end another wait.
//  - A nested run does not wait if sources of the batch around it have yet to be failed.
//  - With select, one closed descriptor fails one source.

import CLibevent
import EventLoop
import EventLoopTestSupport
import Testing

#if canImport(Glibc)
import Glibc
#else
import Darwin
#endif

#if os(Linux)
@Suite struct FailedWaitTests {
    /// The read end of a pipe. It is the only descriptor of the pipe that is still open.
    private static func onlyDescriptor() -> Int32 {
        var ends: [Int32] = [-1, -1]
        precondition(pipe(&ends) == 0)
        close(ends[1])
        return ends[0]
    }

    /// Sleeps once, so that the mode makes its base.
    private static func sleepOnce(_ loop: RunLoop) {
        loop.add(RunLoop.Timer(after: .milliseconds(1)) { _ in loop.stop() })
        _ = loop.run(for: patience)
    }

    // MARK: Waits that the kernel refuses

    /// The open epoll descriptors of the process.
    private static func epollSets() -> [Int32] {
        filesIn("/proc/self/fd").compactMap { name in
            var target = [CChar](repeating: 0, count: 256)
            guard readlink("/proc/self/fd/\(name)", &target, 255) > 0 else { return nil }
            let text = String(decoding: target.prefix { $0 != 0 }.map(UInt8.init(bitPattern:)), as: UTF8.self)
            return text.contains("eventpoll") ? Int32(name) : nil
        }
    }

    @Test func `a program whose loop's epoll descriptor was closed ends with a message that names the errno`() async throws {
        let result = await #expect(processExitsWith: .failure, observing: [\.standardErrorContent]) {
            try onFreshThread { loop in
                let alive = loop.keepAlive()
                let before = Set(FailedWaitTests.epollSets())
                FailedWaitTests.sleepOnce(loop)
                for set in FailedWaitTests.epollSets() where !before.contains(set) { close(set) }
                _ = loop.run(for: .seconds(5))
                alive.cancel()
            }
        }
        let errors = String(decoding: try #require(result).standardErrorContent, as: UTF8.self)
        #expect(errors.contains("errno 9") && errors.contains("epoll"), "\(errors)")
    }

    @Test func `a program whose loop's epoll descriptor became another file ends with a message that names the errno`() async throws {
        let result = await #expect(processExitsWith: .failure, observing: [\.standardErrorContent]) {
            try onFreshThread { loop in
                let alive = loop.keepAlive()
                let pipe = Pipe()
                let before = Set(FailedWaitTests.epollSets())
                FailedWaitTests.sleepOnce(loop)
                for set in FailedWaitTests.epollSets() where !before.contains(set) { dup2(pipe.readEnd, set) }
                _ = loop.run(for: .seconds(5))
                alive.cancel()
            }
        }
        let errors = String(decoding: try #require(result).standardErrorContent, as: UTF8.self)
        #expect(errors.contains("errno 22"), "\(errors)")
    }

    @Test func `with select a closed descriptor fails its source, and the other sources are served`() async {
        await #expect(processExitsWith: .success) {
            setenv("EVENT_NOEPOLL", "1", 1)
            setenv("EVENT_NOPOLL", "1", 1)
            let outcome = try onFreshThread { loop in
                let trace = Trace()
                let (closed, other) = (Pipe(), Pipe())
                let number = fcntl(closed.readEnd, F_DUPFD_CLOEXEC, 700)
                let source = try RunLoop.DescriptorSource(descriptor: number, events: .read) { _, _ in trace.add("closed") }
                source.onInvalidation { trace.add("let go") }
                loop.add(source)
                loop.add(
                    try readSource(other) { _ in
                        trace.add("other:\(other.readAll())")
                        loop.stop()
                    })
                _ = loop.run(for: .zero)
                close(number)
                _ = loop.run(for: .zero)
                other.write("x")
                trace.add("\(loop.run(for: patience))")
                return "\(trace), \(source.failure == .badDescriptor(number))"
            }
            #expect(outcome == "let go other:x stopped, true")
        }
    }

    // MARK: Files left behind

    @Test(arguments: [RunLoop.DescriptorSource.Trigger.level, .oneShot])
    func `a descriptor closed before its source is invalidated, with a duplicate open, does not spin the wait`(
        trigger: RunLoop.DescriptorSource.Trigger
    ) throws {
        let (outcome, processorTime) = try onFreshThread { loop in
            let trace = Trace()
            let (pipe, other) = (Pipe(), Pipe())
            // A high number that no other test's files get.
            let number = fcntl(pipe.readEnd, F_DUPFD_CLOEXEC, 720)
            let source = try RunLoop.DescriptorSource(descriptor: number, events: .read, trigger: trigger, label: "hasty") { _, _ in
                trace.add("called")
            }
            source.onInvalidation { trace.add("let go") }
            loop.add(source)
            loop.add(
                try readSource(other) { _ in
                    trace.add("other:\(other.readAll())")
                    loop.stop()
                })
            _ = loop.run(for: .zero)
            close(number)
            source.invalidate()
            // The kernel reports the file under the closed number, because `pipe.readEnd` keeps the file open.
            pipe.write("x")
            let before = threadTime()
            trace.add("\(loop.run(for: .milliseconds(300)))")
            let used = threadTime() - before
            other.write("y")
            trace.add("\(loop.run(for: patience))")
            return ("\(trace), \(source.failure == .badDescriptor(number))", used)
        }
        #expect(outcome == "let go timedOut other:y stopped, true")
        // A wait that spins uses all of the 300 ms.
        #expect(processorTime < 60_000_000, "\(processorTime) ns")
    }

    @Test func `the library logs which source's descriptor was closed too early`() async {
        // The log handler is global to the process.
        await #expect(processExitsWith: .success) {
            let trace = Trace()
            RunLoop.setLibeventLogHandler { severity, message in
                trace.add("\(severity) \(message.contains("\"hasty\"")) \(message.contains("FailedWaitTests")) \(message.contains("720"))")
                trace.add("\(message.contains("; the event base was replaced."))")
            }
            try onFreshThread { loop in
                let alive = loop.keepAlive()
                let pipe = Pipe()
                try leaveFileBehind(of: pipe, number: 720, label: "hasty", in: loop)
                pipe.write("x")
                _ = loop.run(for: .seconds(1))
                alive.cancel()
            }
            #expect(trace.description == "warning true true true true")
        }
    }

    @Test func `a file left behind that becomes ready during the sleep does not spin the wait`() throws {
        let (result, processorTime) = try onFreshThread { loop in
            let alive = loop.keepAlive()
            defer { alive.cancel() }
            let pipe = Pipe()
            try leaveFileBehind(of: pipe, number: 740, in: loop)
            let isOver = Box(false)
            let other = plainThread {
                try waitUntil("the loop sleeps, or its run is over") { loop.isWaiting || isOver.value }
                pipe.write("x")
            }
            let before = threadTime()
            let result = loop.run(for: .milliseconds(300))
            let used = threadTime() - before
            isOver.value = true
            try other.join()
            return (result, used)
        }
        #expect(result == .timedOut)
        #expect(processorTime < 60_000_000, "\(processorTime) ns")
    }

    @Test func `a descriptor closed too early does not make an expired deadline end another wait`() async {
        // In a process of its own: a child that another test starts holds duplicates of all descriptors until it executes its program.
        await #expect(processExitsWith: .success) {
            let waits = try onFreshThread { loop in
                let alive = loop.keepAlive()
                defer { alive.cancel() }
                let number = FailedWaitTests.onlyDescriptor()
                let source = try RunLoop.DescriptorSource(descriptor: number, events: .read, trigger: .edge) { _, _ in }
                loop.add(source)
                _ = loop.run(for: .zero)
                // From here on the timer descriptor has expired, and nothing reads it.
                FailedWaitTests.sleepOnce(loop)
                close(number)
                source.invalidate()
                let before = loop.statistics.waits
                let other = plainThread {
                    try waitUntilAsleep(loop)
                    loop.stop()
                }
                loop.run()
                let waits = loop.statistics.waits - before
                try other.join()
                return waits
            }
            #expect(waits <= 3, "\(waits) waits")
        }
    }

    @Test func `descriptors closed too early without a duplicate repeat no edge and do not affect other sources`() async {
        // In a process of its own: a child that another test starts holds duplicates of all descriptors until it executes its program.
        await #expect(processExitsWith: .success) {
            let (edges, calls) = try onFreshThread { loop in
                let (edges, calls) = (Box(0), Box(0))
                let (pipe, other) = (Pipe(), Pipe())
                pipe.write()
                loop.add(try readSource(pipe, trigger: .edge) { _ in edges.increment() })
                loop.add(
                    try readSource(other) { _ in
                        other.readAll()
                        calls.increment()
                    })
                for _ in 0..<50 {
                    let number = FailedWaitTests.onlyDescriptor()
                    let source = try RunLoop.DescriptorSource(descriptor: number, events: .read) { _, _ in }
                    loop.add(source)
                    _ = loop.run(for: .zero)
                    close(number)
                    source.invalidate()
                    other.write()
                    _ = loop.run(for: .zero)
                }
                return (edges.value, calls.value)
            }
            #expect(edges == 1)
            #expect(calls == 50)
        }
    }

    // MARK: Sources to be failed

    @Test(arguments: [false, true])
    func `a nested run between the discovery of a reused number and its source's failure does not wait`(hosts: Bool) throws {
        let outcome = try onFreshThread { loop in
            let trace = Trace()
            if hosts { loop.withEventBase { _ in } }
            let (old, new, other) = (Pipe(), Pipe(), Pipe())
            let number = fcntl(old.readEnd, F_DUPFD_CLOEXEC, 800)
            let source = try RunLoop.DescriptorSource(descriptor: number, events: .read) { _, _ in trace.add("called") }
            source.onInvalidation {
                trace.add("let go")
                loop.stop()
            }
            loop.add(source)
            loop.add(
                try readSource(other) { _ in
                    trace.add("other:\(other.readAll())")
                    old.readAll()
                    trace.add("nested:\(loop.run(for: patience))")
                    loop.stop()
                })
            _ = loop.run(for: .zero)
            precondition(dup2(new.readEnd, number) == number)
            // The order matters: the kernel reports first the file that became ready first.
            old.write("x")
            other.write("y")
            trace.add("\(loop.run(for: patience))")
            source.invalidate()
            close(number)
            return trace.description
        }
        #expect(outcome == "other:y let go nested:stopped stopped")
    }
}

/// The processor time of the calling thread, in nanoseconds.
func threadTime() -> Int {
    var time = timespec()
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time)
    return time.tv_sec * 1_000_000_000 + time.tv_nsec
}
#endif
