// Files that were left behind in the kernel's set, on a base on which C libraries have events (semantics 4.17; decision 14):
//  - A file left behind before the first C library uses the base does not spin the wait: the loop replaces the base before any library
//    knows it.
//  - For a file left behind later, the library logs once which source's descriptor it was. The loop polls every 10 ms until the file has
//    left the kernel's set, serves everything, and the file calls no other source.
//
// Tests/FaultProbe/LeftBehind.swift tests the same for a process without descriptors for a new base.

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
@Suite struct LeftBehindFileTests {
    @Test func `a file left behind before a C library uses the base does not spin the wait`() throws {
        let (result, processorTime) = try onFreshThread { loop in
            let alive = loop.keepAlive()
            defer { alive.cancel() }
            let pipe = Pipe()
            try leaveFileBehind(of: pipe, number: 760, in: loop)
            loop.withEventBase { _ in }
            pipe.write("x")
            let before = threadTime()
            let result = loop.run(for: .milliseconds(300))
            return (result, threadTime() - before)
        }
        #expect(result == .timedOut)
        #expect(processorTime < 60_000_000, "\(processorTime) ns")
    }

    @Test func `on a base with a C library's events the library logs at once which source's descriptor was closed too early`() async {
        // The log handler is global to the process.
        await #expect(processExitsWith: .success) {
            let trace = Trace()
            RunLoop.setLibeventLogHandler { severity, message in
                trace.add("\(severity) \(message.contains("\"hasty\"")) \(message.contains("720"))")
                trace.add("\(message.contains(": its base has events of a C library and cannot be replaced."))")
            }
            try onFreshThread { loop in
                loop.withEventBase { _ in }
                let pipe = Pipe()
                try leaveFileBehind(of: pipe, number: 720, label: "hasty", in: loop)
                withExtendedLifetime(pipe) {}
            }
            #expect(trace.description == "warning true true true")
        }
    }

    @Test func `on a base with a C library's events a file left behind neither spins the wait nor causes long delays`() async {
        // In a process of its own: another test's child of fork would keep the pipe open.
        await #expect(processExitsWith: .success) {
            let (outcome, processorTime, restless, quiet) = try onFreshThread { loop in
                let trace = Trace()
                var guest: OpaquePointer?
                loop.withEventBase { guest = makeTimer($0, trace) }
                defer { event_free(guest) }
                var pipe: Pipe? = Pipe()
                let other = Pipe()
                loop.add(
                    try readSource(other) { _ in
                        trace.add("other:\(other.readAll())")
                        loop.stop()
                    })
                try leaveFileBehind(of: pipe!, number: 820, in: loop) { trace.add("called") }
                pipe!.write("x")
                let (time, switches) = (threadTime(), voluntarySwitches())
                var wait = timeval(tv_sec: 0, tv_usec: 50_000)
                event_add(guest, &wait)
                trace.add("\(loop.run(for: .milliseconds(300)))")
                let (used, restless) = (threadTime() - time, voluntarySwitches() - switches)
                other.write("y")
                trace.add("\(loop.run(for: patience))")
                let stopper = plainThread {
                    try waitUntilAsleep(loop)
                    loop.stop()
                }
                trace.add("\(loop.run(for: patience))")
                try stopper.join()
                // When the last duplicate is closed, the file leaves the kernel's set, and the loop sleeps again.
                pipe = nil
                _ = loop.run(for: .milliseconds(500))
                let after = voluntarySwitches()
                _ = loop.run(for: .milliseconds(300))
                return (trace.description, used, restless, voluntarySwitches() - after)
            }
            #expect(outcome == "guest timedOut other:y stopped stopped")
            // A wait that spins uses all of the 300 ms.
            #expect(processorTime < 60_000_000, "\(processorTime) ns")
            #expect(restless <= 60, "\(restless) sleeps in 300 ms")
            #expect(quiet <= 10, "\(quiet) sleeps in 300 ms")
        }
    }

    @Test(arguments: [RunLoop.DescriptorSource.Trigger.level, .edge, .oneShot])
    func `on a base with a C library's events a file left behind does not call the source that now has its number`(
        trigger: RunLoop.DescriptorSource.Trigger
    ) throws {
        let (outcome, processorTime) = try onFreshThread { loop in
            let trace = Trace()
            loop.withEventBase { _ in }
            let (old, new) = (Pipe(), Pipe())
            let number = fcntl(old.readEnd, F_DUPFD_CLOEXEC, 840)
            let first = try RunLoop.DescriptorSource(descriptor: number, events: .read) { _, _ in trace.add("old") }
            first.onInvalidation { trace.add("let go") }
            loop.add(first)
            _ = loop.run(for: .zero)
            precondition(dup2(new.readEnd, number) == number)
            let second = try RunLoop.DescriptorSource(descriptor: number, events: .read, trigger: trigger) { _, _ in
                trace.add("new:\(new.readAll())")
                loop.stop()
            }
            loop.add(second)
            old.write("x")
            let before = threadTime()
            trace.add("\(loop.run(for: .milliseconds(300)))")
            let used = threadTime() - before
            new.write("y")
            trace.add("\(loop.run(for: patience))")
            second.invalidate()
            close(number)
            return (trace.description, used)
        }
        #expect(outcome == "let go timedOut new:y stopped")
        #expect(processorTime < 60_000_000, "\(processorTime) ns")
    }

    @Test func `on a base with a C library's events the library logs once which source lost its number`() async {
        // The log handler is global to the process.
        await #expect(processExitsWith: .success) {
            let trace = Trace()
            RunLoop.setLibeventLogHandler { severity, message in
                trace.add("\(severity) \(message.contains("\"hasty\"")) \(message.contains("860"))")
            }
            try onFreshThread { loop in
                loop.withEventBase { _ in }
                let (old, new) = (Pipe(), Pipe())
                let number = fcntl(old.readEnd, F_DUPFD_CLOEXEC, 860)
                let first = try RunLoop.DescriptorSource(descriptor: number, events: .read, label: "hasty") { _, _ in }
                loop.add(first)
                _ = loop.run(for: .zero)
                precondition(dup2(new.readEnd, number) == number)
                let second = try RunLoop.DescriptorSource(descriptor: number, events: .read) { _, _ in }
                loop.add(second)
                old.write("x")
                _ = loop.run(for: .milliseconds(50))
                second.invalidate()
                close(number)
                _ = loop.run(for: .milliseconds(50))
            }
            #expect(trace.description == "warning true true")
        }
    }
}

/// A C library's timer, which writes "guest" when it fires.
private func makeTimer(_ base: OpaquePointer, _ trace: Trace) -> OpaquePointer? {
    event_new(
        base, -1, 0, { Unmanaged<Trace>.fromOpaque($2!).takeUnretainedValue().add("guest") }, Unmanaged.passUnretained(trace).toOpaque())
}

/// The number of times that the calling thread has slept.
private func voluntarySwitches() -> Int {
    var usage = rusage()
    getrusage(1, &usage)  // RUSAGE_THREAD, which Glibc's overlay does not export
    return usage.ru_nvcsw
}
#endif
