// Rule proved here: in manual time, the same program gives the same trace a thousand times. This holds with real descriptors and a real
// signal beside the clock, and for both ways of writing a test.

import EventLoop
import EventLoopTestSupport
import EventLoopTesting
import Synchronization
import Testing

#if canImport(Glibc)
import Glibc
#else
import Darwin
#endif

/// Each is sent to the calling thread, which does not block it, so none comes late. No other suite of the process sends it or has a source for
/// it (StopInSignalHandlerTests uses SIGURG, EndInHandlerTests SIGWINCH).
private let testSignal = SIGXCPU

// A signal handler has no context, so its descriptor is global.
private let signalPipe = Pipe()
private let signalPipeEnd = Atomic<Int32>(-1)

private func forwardSignal(_: Int32) {
    let before = errno
    var byte: UInt8 = 33
    _ = write(signalPipeEnd.load(ordering: .relaxed), &byte, 1)
    errno = before
}

/// A program with every kind of item: repeating timers with different intervals, pipes that they write to, a source, performs, blocks,
/// a nested run, and a signal that the thread sends to itself.
private func program(on loop: RunLoop, _ clock: RunLoop.ManualClock) throws -> String {
    let trace = Trace()
    trace.observe(loop)
    let pipes = (0..<3).map { _ in Pipe() }
    for (index, pipe) in pipes.enumerated() {
        loop.add(
            try RunLoop.DescriptorSource(descriptor: pipe.readEnd, events: .read, priority: index == 0 ? .high : .low) { _, _ in
                trace.add("p\(index):\(pipe.readAll())@\(clock.ms)")
            })
    }
    loop.add(
        try RunLoop.DescriptorSource(descriptor: signalPipe.readEnd, events: .read) { _, _ in
            trace.add("signal:\(signalPipe.readAll())@\(clock.ms)")
        })
    let source = RunLoop.CustomSource { trace.add("c@\(clock.ms)") }
    loop.add(source)
    for (index, interval) in [7, 11, 13].enumerated() {
        loop.add(
            RunLoop.Timer(fireAt: clock.now + .milliseconds(interval), interval: .milliseconds(interval)) { _ in
                trace.add("t\(index)@\(clock.ms)")
                pipes[index].write("\(index)")
                if clock.ms % 2 == 0 { source.signal() }
                if clock.ms % 3 == 0 { loop.perform { trace.add("f@\(clock.ms)") } }
                if clock.ms % 5 == 0 { loop.performBlock { trace.add("b@\(clock.ms)") } }
            })
    }
    loop.perform(after: .milliseconds(20)) {
        pthread_kill(pthread_self(), testSignal)
        trace.add("nested:\(loop.run(for: .milliseconds(5)))@\(clock.ms)")
    }
    trace.add("-> \(loop.run(for: .milliseconds(60)))@\(clock.ms)")
    return trace.description
}

/// Threads of a pool block signals, and a loop's thread inherits their signal mask.
private func unblockTestSignal() {
    var set = sigset_t()
    sigemptyset(&set)
    sigaddset(&set, testSignal)
    pthread_sigmask(SIG_UNBLOCK, &set, nil)
}

@Suite(.serialized) struct DeterminismTests {
    private static let times = 1000

    private func catchingSignals(_ body: () async throws -> Void) async rethrows {
        signalPipeEnd.store(signalPipe.writeEnd, ordering: .relaxed)
        let before = signal(testSignal, forwardSignal)
        defer { signal(testSignal, before) }
        try await body()
    }

    @Test func `the same program gives the same trace a thousand times, with descriptors and signals beside the clock`() async throws {
        let test = try #require(Test.current)
        let traces = Box<Set<String>>([])
        try await catchingSignals {
            for _ in 0..<Self.times {
                try await RunLoopTrait.runLoop(.manualTime(autoAdvance: true)).provideScope(for: test, testCase: nil) {
                    traces.value.insert(try run())
                }
            }
        }
        #expect(traces.value.count == 1, "\(traces.value.sorted().joined(separator: "\n"))")
        let trace = try #require(traces.value.first)
        for part in ["t2@13", "p0:0@7", "signal:!@20", "nested:timedOut@25", "f@", "b@", "c@", "-> timedOut@60"] {
            #expect(trace.contains(part), "\(part)")
        }

        @Sendable func run() throws -> String {
            unblockTestSignal()
            return try program(on: .current, .ofTest)
        }
    }

    @Test func `the same tasks give the same trace a thousand times`() async throws {
        let test = try #require(Test.current)
        let traces = Box<Set<String>>([])
        for _ in 0..<Self.times {
            try await RunLoopTrait.runLoop(.manualTime(autoAdvance: true)).provideScope(for: test, testCase: nil) {
                let (loop, clock, trace) = (RunLoop.ofTest, RunLoop.ManualClock.ofTest, Trace())
                await withTaskGroup { group in
                    for index in 1...5 {
                        group.addTask {
                            for _ in 0..<3 {
                                try? await loop.clock.sleep(for: .milliseconds(index * 7))
                                trace.add("\(index)@\(clock.ms)")
                            }
                        }
                    }
                }
                traces.value.insert(trace.description)
            }
        }
        #expect(traces.value.count == 1)
        #expect(
            traces.value.first?.hasPrefix("1@7 ") == true && traces.value.first?.hasSuffix(" 5@105") == true, "\(traces.value)")
    }

    @Test func `two loops that share a clock and communicate over pipes give the same trace a thousand times`() throws {
        var traces: Set<String> = []
        for _ in 0..<Self.times { traces.insert(try conversation()) }
        #expect(traces == ["ask@10 answer@10 heard@10 ask@20 answer@20 heard@20 ask@30 answer@30 heard@30"])
    }

    private func conversation() throws -> String {
        let (clock, trace) = (RunLoop.ManualClock(autoAdvance: true), Trace())
        let (question, answer) = (Pipe(), Pipe())
        let start = Counter()
        let server = joinableThread { loop in
            loop.use(clock)
            loop.add(
                try RunLoop.DescriptorSource(descriptor: question.readEnd, events: .read) { _, _ in
                    question.readAll()
                    trace.add("answer@\(clock.ms)")
                    answer.write()
                })
            start.increment()
            try waitUntil { start.value == 2 }
            _ = loop.run(until: .ms(35))
        }
        let client = joinableThread { loop in
            loop.use(clock)
            loop.add(
                RunLoop.Timer(fireAt: .ms(10), interval: .milliseconds(10)) { _ in
                    trace.add("ask@\(clock.ms)")
                    question.write()
                })
            loop.add(
                try RunLoop.DescriptorSource(descriptor: answer.readEnd, events: .read) { _, _ in
                    answer.readAll()
                    trace.add("heard@\(clock.ms)")
                })
            start.increment()
            try waitUntil { start.value == 2 }
            _ = loop.run(until: .ms(35))
        }
        try server.join()
        try client.join()
        return trace.description
    }
}
