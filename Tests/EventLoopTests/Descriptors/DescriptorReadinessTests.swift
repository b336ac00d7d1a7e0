// Descriptor sources in general (semantics 4, and step 5 of a pass):
// 4.1  The kernel signals. A pass serves every descriptor that was found ready; a run that returns after a source serves exactly
//      one, and the others stay ready.
// 1.7  (#1) A descriptor that is ready at step 5 is served without beforeWaiting and afterWaiting.
// 1.5  A served descriptor counts as a handled source.
// 4.2  The loop never reads the descriptor; sources are level-triggered unless asked otherwise; several may watch one descriptor.
// 4.3  Adding from another thread reaches a sleeping loop. Removed before it is served, a source is not called, and the kernel keeps the event.
// 2.8  Readiness of other modes is held.

import EventLoop
import EventLoopTestSupport
import Testing

#if canImport(Glibc)
import Glibc
#else
import Darwin
#endif

/// A source that watches the read end of `pipe` and keeps the pipe open for as long as it has a handler.
func readSource(
    _ pipe: Pipe, trigger: RunLoop.DescriptorSource.Trigger = .level, priority: RunLoop.Priority = .default,
    _ handler: @escaping @Sendable (RunLoop.DescriptorSource) -> Void
) throws -> RunLoop.DescriptorSource {
    try RunLoop.DescriptorSource(descriptor: pipe.readEnd, events: .read, trigger: trigger, priority: priority) { source, _ in
        withExtendedLifetime(pipe) { handler(source) }
    }
}

@Suite struct DescriptorReadinessTests {
    // MARK: Step 5

    @Test func `a descriptor that is ready at step 5 is served without the waiting notifications`() throws {
        let trace = try onSimulatedTime { loop, _ in
            let trace = Trace()
            trace.observe(loop)
            let pipe = Pipe()
            loop.add(try readSource(pipe) { _ in trace.add("read:\(pipe.readAll())") })
            pipe.write("ab")
            trace.add("-> \(loop.run(until: .ms(50)))")
            return trace.description
        }
        #expect(trace == "E T S read:ab T S W A X -> timedOut")
    }

    @Test func `a descriptor that becomes ready during the wait is served after afterWaiting`() throws {
        let trace = try onSimulatedTime { loop, _ in
            let trace = Trace()
            let pipe = Pipe()
            // Written in beforeWaiting: after step 5 has looked, before the loop sleeps.
            let written = Box(false)
            trace.observe(loop) { activity in
                guard activity == .beforeWaiting, !written.value else { return }
                written.value = true
                pipe.write("ab")
            }
            loop.add(try readSource(pipe) { _ in trace.add("read:\(pipe.readAll())") })
            trace.add("-> \(loop.run(until: .ms(50)))")
            return trace.description
        }
        #expect(trace == "E T S W A read:ab T S W A X -> timedOut")
    }

    @Test func `a descriptor that another thread makes ready ends the wait`() throws {
        let trace = try onFreshThread { loop in
            let trace = Trace()
            trace.observe(loop)
            let pipe = Pipe()
            loop.add(
                try readSource(pipe) { _ in
                    trace.add("read:\(pipe.readAll())")
                    loop.stop()
                })
            let other = plainThread {
                try waitUntilAsleep(loop)
                pipe.write("ab")
            }
            trace.add("-> \(loop.run(for: patience))")
            try other.join()
            return trace.description
        }
        #expect(trace == "E T S W A read:ab X -> stopped")
    }

    @Test func `in a run with a limit of zero a ready descriptor is served and no other is waited for`() throws {
        let trace = try onSimulatedTime { loop, _ in
            let trace = Trace()
            trace.observe(loop)
            let (ready, quiet) = (Pipe(), Pipe())
            loop.add(try readSource(ready) { _ in trace.add("read:\(ready.readAll())") })
            loop.add(try readSource(quiet) { _ in trace.add("?") })
            ready.write("ab")
            trace.add("-> \(loop.run(for: .zero))")
            trace.add("-> \(loop.run(for: .zero))")
            return trace.description
        }
        #expect(trace == "E T S read:ab X -> timedOut E T S X -> timedOut")
    }

    @Test func `a descriptor source keeps its mode from being empty`() throws {
        let results = try onSimulatedTime { loop, _ in
            let pipe = Pipe()
            let source = try readSource(pipe) { _ in }
            loop.add(source)
            let with = loop.run(until: .ms(10))
            loop.remove(source)
            return [with, loop.run(until: .ms(20))]
        }
        #expect(results == [.timedOut, .finished])
    }

    @Test func `the handler is told what is ready, on the loop's thread, while the loop is not waiting`() throws {
        let trace = try onSimulatedTime { loop, _ in
            let trace = Trace()
            let pair = SocketPair()
            let source = try RunLoop.DescriptorSource(descriptor: pair.near, events: [.read, .write]) { source, events in
                trace.add("\(describe(events)) of \(source.descriptor == pair.near) current \(loop.isCurrent) waiting \(loop.isWaiting);")
                drain(pair.near)
                loop.stop()
            }
            loop.add(source)
            _ = loop.run(until: .ms(50))
            pair.sendFromFar("x")
            _ = loop.run(until: .ms(100))
            return trace.description
        }
        #expect(trace == "write of true current true waiting false; read+write of true current true waiting false;")
    }

    // MARK: 4.1 and 1.5

    @Test func `a pass serves every descriptor that was found ready`() throws {
        let passes = try onSimulatedTime { loop, _ in
            let trace = Trace()
            trace.observe(loop)
            let pipes = (0..<5).map { _ in Pipe() }
            for pipe in pipes { loop.add(try readSource(pipe) { _ in trace.add("read:\(pipe.readAll())") }) }
            for pipe in pipes { pipe.write() }
            trace.add("-> \(loop.run(until: .ms(50)))")
            return trace.description
        }
        #expect(passes == "E T S read:x read:x read:x read:x read:x T S W A X -> timedOut")
    }

    @Test func `a run that returns after a source serves exactly one descriptor, and the others stay ready`() throws {
        let trace = try onSimulatedTime { loop, _ in
            let trace = Trace()
            trace.observe(loop)
            let served = Box<Set<Int>>([])
            for number in 0..<3 {
                let pipe = Pipe()
                pipe.write()
                loop.add(
                    try readSource(pipe) { _ in
                        pipe.readAll()
                        served.change { _ = $0.insert(number) }
                        trace.add("read")
                    })
            }
            for _ in 0..<4 {
                trace.add("-> \(loop.run(for: .milliseconds(10), returnAfterSourceHandled: true)) \(served.value.count);")
            }
            return trace.description
        }
        #expect(
            trace == """
                E T S read X -> handledSource 1; E T S read X -> handledSource 2; E T S read X -> handledSource 3; \
                E T S W A X -> timedOut 3;
                """)
    }

    // MARK: 4.2

    @Test func `the loop reads nothing from the descriptor`() throws {
        let trace = try onSimulatedTime { loop, _ in
            let trace = Trace()
            let pipe = Pipe()
            loop.add(
                try readSource(pipe) { _ in
                    trace.add(pipe.readAll())
                    loop.stop()
                })
            pipe.write("12345678 and the rest")
            _ = loop.run(until: .ms(50))
            return trace.description
        }
        #expect(trace == "12345678 and the rest")
    }

    @Test func `data left unread calls the handler again in the next pass`() throws {
        let trace = try onSimulatedTime { loop, _ in
            let trace = Trace()
            trace.observe(loop)
            let pipe = Pipe()
            let calls = Box(0)
            loop.add(
                try readSource(pipe) { _ in
                    trace.add("call")
                    if calls.increment() == 3 { pipe.readAll() }
                })
            pipe.write()
            trace.add("-> \(loop.run(until: .ms(50)))")
            return trace.description
        }
        #expect(trace == "E T S call T S call T S call T S W A X -> timedOut")
    }

    // MARK: 4.3

    @Test func `a ready descriptor that another thread adds reaches a sleeping loop`() throws {
        let outcome = try onFreshThread { loop in
            let trace = Trace()
            let alive = loop.keepAlive()
            defer { alive.cancel() }
            let pipe = Pipe()
            pipe.write("ab")
            let source = try readSource(pipe) { _ in
                trace.add("read:\(pipe.readAll())")
                loop.stop()
            }
            let other = plainThread {
                try waitUntilAsleep(loop)
                return loop.add(source)
            }
            trace.add("-> \(loop.run(for: patience))")
            return "\(try other.join()) \(trace)"
        }
        #expect(outcome == "true read:ab -> stopped")
    }

    @Test func `a descriptor added by another thread and ready only later is heard by the loop that slept meanwhile`() throws {
        let trace = try onFreshThread { loop in
            let trace = Trace()
            let alive = loop.keepAlive()
            defer { alive.cancel() }
            let pipe = Pipe()
            let source = try readSource(pipe) { _ in
                trace.add("read:\(pipe.readAll())")
                loop.stop()
            }
            let other = plainThread {
                try waitUntilAsleep(loop)
                loop.add(source)
                try waitUntilAsleep(loop)
                pipe.write("ab")
            }
            trace.add("-> \(loop.run(for: patience))")
            try other.join()
            return trace.description
        }
        #expect(trace == "read:ab -> stopped")
    }

    @Test func `the last descriptor removed by another thread ends the run of a sleeping loop`() throws {
        let result = try onFreshThread { loop in
            let pipe = Pipe()
            let source = try readSource(pipe) { _ in }
            loop.add(source)
            let other = plainThread {
                try waitUntilAsleep(loop)
                loop.remove(source)
            }
            let result = loop.run(for: patience)
            try other.join()
            return result
        }
        #expect(result == .finished)
    }

    /// Two sources are ready in one pass; whichever is served first does something to the other. Then the other is added (again).
    private func firstServed(
        does change: @escaping @Sendable (RunLoop, RunLoop.DescriptorSource) -> Void
    ) throws -> (trace: String, valid: Bool) {
        try onSimulatedTime { loop, _ in
            let trace = Trace()
            let (one, two) = (Pipe(), Pipe())
            let sources = Box<[RunLoop.DescriptorSource]>([])
            @Sendable func serve(_ source: RunLoop.DescriptorSource, _ pipe: Pipe) {
                pipe.readAll()
                trace.add("served")
                guard
                    let other = sources.change({ list in
                        defer { list = [] }
                        return list.first { $0 !== source }
                    })
                else { return }
                change(loop, other)
                sources.value = [other]
            }
            let first = try readSource(one) { serve($0, one) }
            let second = try readSource(two) { serve($0, two) }
            sources.value = [first, second]
            for source in [first, second] { loop.add(source) }
            for pipe in [one, two] { pipe.write() }
            trace.add("\(loop.run(until: .ms(50)));")
            let other = sources.value[0]
            sources.value = []
            loop.add(other)
            trace.add("\(loop.run(until: .ms(100)))")
            return (trace.description, other.isValid)
        }
    }

    @Test func `a ready source that an earlier one removes is not called, and the kernel keeps its event`() throws {
        let (trace, valid) = try firstServed { loop, other in loop.remove(other) }
        #expect(trace == "served timedOut; served timedOut")
        #expect(valid)
    }

    @Test func `a ready source that an earlier one invalidates is not called`() throws {
        let (trace, valid) = try firstServed { _, other in other.invalidate() }
        #expect(trace == "served timedOut; timedOut")
        #expect(!valid)
    }

    @Test func `a ready source that an earlier one removes and adds again is called once, in a later pass`() throws {
        let trace = try onSimulatedTime { loop, _ in
            let trace = Trace()
            trace.observe(loop)
            let (one, two) = (Pipe(), Pipe())
            let sources = Box<[RunLoop.DescriptorSource]>([])
            @Sendable func serve(_ source: RunLoop.DescriptorSource, _ pipe: Pipe) {
                pipe.readAll()
                trace.add("served")
                let all = sources.change { list in
                    defer { list = [] }
                    return list
                }
                for other in all where other !== source {
                    loop.remove(other)
                    loop.add(other)
                }
            }
            let first = try readSource(one) { serve($0, one) }
            let second = try readSource(two) { serve($0, two) }
            sources.value = [first, second]
            for source in [first, second] { loop.add(source) }
            for pipe in [one, two] { pipe.write() }
            trace.add("-> \(loop.run(until: .ms(50)))")
            return trace.description
        }
        #expect(trace == "E T S served T S served T S W A X -> timedOut")
    }

    // MARK: 2.8

    @Test func `readiness is held while only other modes run`() throws {
        let trace = try onSimulatedTime { loop, _ in
            let trace = Trace()
            let pipe = Pipe()
            loop.add(try readSource(pipe) { _ in trace.add("read:\(pipe.readAll())") })
            let alive = loop.keepAlive(forMode: "other")
            defer { alive.cancel() }
            _ = loop.run(for: .zero)
            pipe.write("ab")
            trace.add("other \(loop.run(mode: "other", until: .ms(10)));")
            trace.add("default \(loop.run(until: .ms(20)))")
            return trace.description
        }
        #expect(trace == "other timedOut; read:ab default timedOut")
    }

    @Test func `a source in several modes is served in each`() throws {
        let trace = try onSimulatedTime { loop, _ in
            let trace = Trace()
            let pipe = Pipe()
            let source = try readSource(pipe) { _ in trace.add("\(loop.currentMode!):\(pipe.readAll())") }
            loop.add(source)
            loop.add(source, forMode: "other")
            for (mode, text) in [("default", "a"), ("other", "b"), ("default", "c"), ("other", "d")] {
                pipe.write(text)
                _ = loop.run(mode: .init(mode), for: .milliseconds(1))
            }
            return trace.description
        }
        #expect(trace == "default:a other:b default:c other:d")
    }

    @Test func `a source added to the common modes is served in every one of them`() throws {
        let trace = try onSimulatedTime { loop, _ in
            let trace = Trace()
            let pipe = Pipe()
            loop.addCommonMode("early")
            loop.add(try readSource(pipe) { _ in trace.add("\(loop.currentMode!):\(pipe.readAll())") }, forMode: .common)
            loop.addCommonMode("late")
            for mode in ["default", "early", "late"] as [RunLoop.Mode] {
                pipe.write()
                _ = loop.run(mode: mode, for: .milliseconds(1))
            }
            return trace.description
        }
        #expect(trace == "default:x early:x late:x")
    }

    // MARK: Nested runs

    @Test func `a nested run of the same mode serves the descriptors that the outer pass has found ready, once each`() throws {
        let trace = try onSimulatedTime { loop, _ in
            let trace = Trace()
            let depth = Box(0)
            for _ in 0..<3 {
                let pipe = Pipe()
                pipe.write()
                loop.add(
                    try readSource(pipe) { _ in
                        pipe.readAll()
                        trace.add("begin")
                        if depth.increment() == 1 { _ = loop.run(for: .milliseconds(5)) }
                        trace.add("end")
                    })
            }
            trace.add("-> \(loop.run(for: .milliseconds(10)))")
            return trace.description
        }
        #expect(trace == "begin begin end begin end end -> timedOut")
    }
}

// MARK: - Tools

/// Two connected stream sockets, closed when they are let go of.
final class SocketPair: Sendable {
    let near: Int32
    let far: Int32
    private let isFarOpen = Box(true)

    init() {
        var ends: [Int32] = [-1, -1]
        #if canImport(Glibc)
        let kind = Int32(SOCK_STREAM.rawValue)
        #else
        let kind = SOCK_STREAM
        #endif
        precondition(socketpair(AF_UNIX, kind, 0, &ends) == 0, "socketpair: errno \(errno)")
        for end in ends {
            precondition(fcntl(end, F_SETFL, O_NONBLOCK) == 0)
            precondition(fcntl(end, F_SETFD, FD_CLOEXEC) == 0)
        }
        (near, far) = (ends[0], ends[1])
    }

    deinit {
        closeFar()
        close(near)
    }

    func sendFromFar(_ text: String) {
        let bytes = Array(text.utf8)
        precondition(write(far, bytes, bytes.count) == bytes.count)
    }

    func closeFar() {
        let isMine = isFarOpen.change { open in
            defer { open = false }
            return open
        }
        if isMine { close(far) }
    }

    /// The far end will send no more, but still reads.
    func shutDownFar() { precondition(shutdown(far, Int32(SHUT_WR)) == 0) }
}

func describe(_ events: RunLoop.DescriptorSource.Events) -> String {
    let names: [(RunLoop.DescriptorSource.Events, String)] = [(.read, "read"), (.write, "write"), (.closed, "closed")]
    return names.filter { events.contains($0.0) }.map(\.1).joined(separator: "+")
}
