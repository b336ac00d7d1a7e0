// The code of docs/testing.md, compiled and run. DocumentedCodeTests compares each block of the page with this file: change both.

import EventLoop
import EventLoopStreams
import EventLoopTesting
import Testing

#if canImport(Glibc)
import Glibc
#else
import Darwin
#endif

/// Calls `onSilence` when nothing was heard for ten seconds.
final class Watchdog: Sendable {
    private let loop: RunLoop
    private let timer: RunLoop.Timer

    init(on loop: RunLoop, onSilence: @escaping @Sendable () -> Void) {
        self.loop = loop
        timer = .onDemand { _ in onSilence() }
        loop.add(timer)
        heard()
    }

    func heard() { timer.nextFire = loop.clock.now + .seconds(10) }
    func stop() { timer.invalidate() }
}

/// Answers each line with its length.
func measure(_ stream: ByteStream) async throws {
    for try await line in stream.lines() { try await stream.write("\(line.utf8.count)\n") }
}

@Suite struct DocumentedTesting {
    @Test(.runLoop(.manualTime(autoAdvance: true)))
    func `silence is noticed ten seconds after the last word`() {
        let (loop, clock) = (RunLoop.current, RunLoop.ManualClock.ofTest)
        let watchdog = Watchdog(on: loop) { loop.stop() }
        loop.perform(after: .seconds(7)) { watchdog.heard() }

        #expect(loop.run(for: .seconds(60)) == .stopped)
        #expect(clock.now == RunLoop.Instant(nanoseconds: 17_000_000_000))
    }

    @Test(.runLoop(.manualTime))
    func `silence is not noticed a moment early`() {
        let (loop, clock) = (RunLoop.current, RunLoop.ManualClock.ofTest)
        let watchdog = Watchdog(on: loop) { loop.stop() }
        defer { watchdog.stop() }

        clock.advance(by: .milliseconds(9_999))
        #expect(loop.run(for: .zero) == .timedOut)
        clock.advance(by: .milliseconds(1))
        #expect(loop.run(for: .zero) == .stopped)
    }

    @Test(.runLoop(.manualTime(autoAdvance: true)))
    func `the third attempt is made three seconds after the first`() async throws {
        let clock = RunLoop.ofTest.clock
        let start = clock.now
        let attempts = try await retry(on: clock) { attempt in
            if attempt < 3 { throw CancellationError() }
            return attempt
        }
        #expect(attempts == 3)
        #expect(clock.now - start == .seconds(3))
    }

    @Test(.runLoop(.manualTime))
    func `a question is answered`() throws {
        let (questions, answers) = (try makePipe(), try makePipe())
        let loop = RunLoop.current
        let server = try RunLoop.DescriptorSource(descriptor: questions.read, events: .read) { _, _ in
            var byte: UInt8 = 0
            guard read(questions.read, &byte, 1) == 1 else { return }
            byte += 1
            _ = write(answers.write, &byte, 1)
        }
        loop.add(server)

        var byte: UInt8 = 41
        #expect(write(questions.write, &byte, 1) == 1)
        #expect(loop.run(for: .zero, returnAfterSourceHandled: true) == .handledSource)
        #expect(read(answers.read, &byte, 1) == 1)
        #expect(byte == 42)
    }

    @Test(.runLoop(.manualTime, mustBeLeftEmpty: true))
    func `a stopped watchdog leaves nothing`() {
        let watchdog = Watchdog(on: .current) {}
        watchdog.stop()
    }

    @Test(.runLoop(.manualTime(autoAdvance: true)), arguments: 0..<10 as Range<UInt64>)
    func `lines are measured, however they arrive`(seed: UInt64) async throws {
        let pair = try ByteStream.pair(on: .ofTest, seed: seed)
        let server = Task { try await measure(pair.first) }
        try await pair.second.write("one\r\nthree\n\n")
        #expect(try await pair.second.read(exactly: 6) == Array("3\n5\n0\n".utf8))
        pair.reset()
        await #expect(throws: RunLoop.SourceError.self) { try await server.value }
    }

    @Test(.runLoop(.manualTime(autoAdvance: true)))
    func `a silent client is given up after a minute`() async throws {
        var options = ByteStream.Options()
        options.idleTimeout = .seconds(60)
        let pair = try ByteStream.pair(on: .ofTest, options: options, otherOptions: .init())
        await #expect(throws: StreamError.timedOut) { try await measure(pair.first) }
        #expect(RunLoop.ManualClock.ofTest.now == RunLoop.Instant(nanoseconds: 60_000_000_000))
    }

    @Test func `two loops share one time`() async throws {
        let clock = RunLoop.ManualClock(autoAdvance: true)
        let threads = try (1...2).map { try RunLoopThread(name: "loop \($0)", setup: { loop in loop.use(clock) }) }
        defer {
            for thread in threads { thread.stop() }
        }
        let (first, second) = (threads[0].runLoop, threads[1].runLoop)

        async let late: Void = second.clock.sleep(until: RunLoop.Instant(nanoseconds: 120_000_000_000))
        try await first.clock.sleep(until: RunLoop.Instant(nanoseconds: 60_000_000_000))
        try await late
        #expect(clock.now == RunLoop.Instant(nanoseconds: 120_000_000_000))
    }
}

/// Tries three times, after pauses of one second and of two.
func retry<Result: Sendable>(
    on clock: RunLoop.Clock, isolation: isolated (any Actor)? = #isolation, _ body: (Int) async throws -> Result
) async throws -> Result {
    for (attempt, pause) in [(1, Duration.seconds(1)), (2, .seconds(2))] {
        do { return try await body(attempt) } catch { try await clock.sleep(for: pause) }
    }
    return try await body(3)
}

private func makePipe() throws -> (read: Int32, write: Int32) {
    var ends: [Int32] = [-1, -1]
    try #require(pipe(&ends) == 0)
    return (ends[0], ends[1])
}
