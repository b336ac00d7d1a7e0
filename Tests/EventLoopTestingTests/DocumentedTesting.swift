// The code of docs/testing.md, and that of docs/concurrency.md about retries, compiled and run. DocumentedCodeTests compares each block of the
// pages with this file: change both.

import EventLoop
import EventLoopDatagrams
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

/// Asks once a second until an answer arrives.
func ask(_ question: [UInt8], over socket: DatagramSocket) async throws -> [UInt8]? {
    let questions = Task {
        while !Task.isCancelled {
            // A refused question is asked again: the server may start later.
            try? await socket.write(question)
            try await socket.loop.clock.sleep(for: .seconds(1))
        }
    }
    defer { questions.cancel() }
    var answers = socket.datagrams.makeAsyncIterator()
    return try await answers.next()?.bytes
}

@Suite struct DocumentedTesting {
    @Test(.runLoop(.manualTime(autoAdvance: true)), arguments: 0..<10 as Range<UInt64>)
    func `an answer arrives, although datagrams are lost`(seed: UInt64) async throws {
        let network = DatagramNetwork(seed: seed)
        network.lossChance = 0.5
        let server = try network.socket(boundTo: .ipv4(host: "127.0.0.1", port: 53), on: .ofTest)
        server.onReceive { server, question in server.send(question.bytes.reversed(), to: question.peer) }
        let client = try network.socket(connectedTo: server.localAddress, on: .ofTest)
        #expect(try await ask([1, 2], over: client) == [2, 1])
    }

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
    func `an operation that fails twice is tried again after 100 and after 200 ms`() async throws {
        let (loop, clock) = (RunLoop.ofTest, RunLoop.ManualClock.ofTest)
        var times: [RunLoop.Instant] = []
        try await retry(within: .seconds(60), on: loop, jitter: 1...1) {
            times.append(clock.now)
            if times.count < 3 { throw StreamError.timedOut }
        }
        #expect(times.map(\.nanoseconds) == [0, 100_000_000, 300_000_000])
    }

    @Test(.runLoop(.manualTime(autoAdvance: true)))
    func `the last error is thrown when no attempt would begin before the deadline`() async throws {
        let (loop, clock) = (RunLoop.ofTest, RunLoop.ManualClock.ofTest)
        var attempts = 0
        await #expect(throws: StreamError.timedOut) {
            try await retry(within: .seconds(1), on: loop, jitter: 1...1) {
                attempts += 1
                throw StreamError.timedOut
            }
        }
        // At 0, 100, 300 and 700 ms. The next one would begin at 1,500 ms.
        #expect(attempts == 4 && clock.now == RunLoop.Instant(nanoseconds: 700_000_000))
    }

    @Test(.runLoop(.manualTime(autoAdvance: true)))
    func `an attempt that hangs is cancelled at the deadline`() async throws {
        let (loop, clock) = (RunLoop.ofTest, RunLoop.ManualClock.ofTest)
        await #expect(throws: TaskTimedOut.self) {
            try await retry(within: .seconds(3), on: loop) { try await loop.clock.sleep(for: .seconds(3_600)) }
        }
        #expect(clock.now == RunLoop.Instant(nanoseconds: 3_000_000_000))
    }

    @Test(.runLoop(.manualTime(autoAdvance: true)))
    func `a cancelled task makes no further attempt`() async throws {
        let (loop, clock) = (RunLoop.ofTest, RunLoop.ManualClock.ofTest)
        let task = Task {
            var attempts = 0
            await #expect(throws: CancellationError.self) {
                try await retry(within: .seconds(60), on: loop) {
                    attempts += 1
                    try await loop.clock.sleep(for: .seconds(10))
                }
            }
            return attempts
        }
        try await loop.clock.sleep(for: .seconds(1))
        task.cancel()
        #expect(await task.value == 1)
        #expect(clock.now == RunLoop.Instant(nanoseconds: 1_000_000_000))
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

// MARK: docs/concurrency.md, "Retry"

/// Tries until `body` succeeds: after pauses that double, from 100 ms to 10 s, and no longer than `limit`. Then it throws the last error.
func retry<Value>(
    within limit: Duration, on loop: RunLoop, jitter: ClosedRange<Double> = 0.5...1,
    isolation: isolated (any Actor)? = #isolation, _ body: () async throws -> sending Value
) async throws -> sending Value {
    let (deadline, clock) = (loop.clock.now + limit, loop.clock)
    var pause = Duration.milliseconds(100)
    while true {
        let delay: Duration
        do {
            // An attempt that hangs is cancelled at the deadline.
            return try await loop.withTimeout(deadline - clock.now, body)
        } catch {
            // The caller has given up, or no time is left for another attempt.
            try Task.checkCancellation()
            delay = pause * Double.random(in: jitter)
            guard clock.now + delay < deadline else { throw error }
        }
        try await clock.sleep(for: delay)
        pause = min(pause * 2, .seconds(10))
    }
}

/// Compiled, and never called.
private func connectAgain(port: UInt16, on loop: RunLoop) async throws -> ByteStream {
    let stream = try await retry(within: .seconds(60), on: loop) {
        try await ByteStream.connect(host: "localhost", port: port, timeout: .seconds(5), on: loop)
    }
    return stream
}

private func makePipe() throws -> (read: Int32, write: Int32) {
    var ends: [Int32] = [-1, -1]
    try #require(pipe(&ends) == 0)
    return (ends[0], ends[1])
}
