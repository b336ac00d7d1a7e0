// The code of docs/concurrency.md and docs/threads.md, and the actor of the README, compiled and run.
//
// DocumentedCodeTests compares each Swift block of those pages with this file, line by line. If you change one, change the other.

import EventLoop
import EventLoopTestSupport
import Testing

// MARK: An actor on a loop

actor Meter {
    private let loop: RunLoop
    private var total = 0

    init(on loop: RunLoop) { self.loop = loop }

    nonisolated var unownedExecutor: UnownedSerialExecutor { loop.asUnownedSerialExecutor() }

    func add(_ count: Int) -> Int {
        total += count
        return total
    }
}

extension Meter {
    /// Called on the loop's thread, in the timer's handler: no task, no await.
    nonisolated func count(every interval: Duration) -> RunLoop.Timer {
        RunLoop.Timer(every: interval) { _ in
            self.assumeIsolated { meter in _ = meter.add(1) }
        }
    }
}

// MARK: Something that belongs to a thread

/// Not Sendable: it stays on the thread of its loop.
private final class Service {
    let loop: RunLoop
    var isOpen = true
    init(on loop: RunLoop) { self.loop = loop }
}

// MARK: Timeouts, ticks, readiness

private func fetch(_ loop: RunLoop) async throws -> String {
    do {
        return try await loop.withTimeout(.seconds(2)) {
            try await loop.clock.sleep(for: .milliseconds(1))
            return "answer"
        }
    } catch is TaskTimedOut {
        return "too late"
    }
}

private func serve(until stopped: Task<Void, Never>, with group: RunLoopThreadGroup) async {
    await stopped.value
    let stuck = await group.shutdown(timeout: .seconds(5))
    for thread in stuck { print("\(thread.name) does not end") }
}

private func report(_ loop: RunLoop, times: Int) async -> Int {
    var seen = 0
    for await tick in loop.ticks(every: .milliseconds(1)) {
        seen += tick.count
        if seen >= times { break }
    }
    return seen
}

private func readAll(_ pipe: Pipe, on loop: RunLoop, until last: String) async throws -> String {
    var text = ""
    for try await _ in loop.readiness(of: pipe.readEnd) {
        text += pipe.readAll()
        if text.hasSuffix(last) { break }
    }
    return text
}

@Suite(.bounded, .tags(.threads)) struct `Code of the documentation` {
    @Test func `an actor on a loop`() async throws {
        let thread = try RunLoopThread(name: "meter")
        let meter = Meter(on: thread.runLoop)
        let total = await meter.add(3)

        let timer = meter.count(every: .milliseconds(1))
        thread.runLoop.add(timer)
        try await suspendUntil("the timer has counted twice") { await meter.add(0) >= 5 }
        timer.invalidate()
        thread.stop()
        #expect(total == 3)
    }

    @Test func `a task that prefers a loop`() async throws {
        let thread = try RunLoopThread(name: "meter")
        let meter = Meter(on: thread.runLoop)

        let task = Task(executorPreference: thread.runLoop) {
            var total = 0
            for _ in 0..<1_000 { total = await meter.add(1) }
            return total
        }
        let total = await task.value
        thread.stop()
        #expect(total == 1_000)
    }

    @Test func `timeouts, ticks and readiness`() async throws {
        let thread = try RunLoopThread(name: "times")
        defer { thread.stop() }
        let pipe = Pipe()
        pipe.write("one ")
        async let text = readAll(pipe, on: thread.runLoop, until: "two")
        pipe.write("two")
        // In manual time, because on a busy machine the limit may pass before the sleep begins.
        let answer = try await withManualThread { loop, clock in
            let fetching = Task { try await fetch(loop) }
            try await loop.untilItHolds(timers: 2)
            clock.advance(by: .milliseconds(1))
            return try await fetching.value
        }
        #expect(answer == "answer")
        #expect(await report(thread.runLoop, times: 3) >= 3)
        #expect(try await text == "one two")
    }

    @Test func `no call that blocks`() async throws {
        let group = try RunLoopThreadGroup(count: 2)
        await serve(until: Task {}, with: group)
        #expect(await group.shutdown(timeout: patience).isEmpty)
    }

    @Test func `threads`() async throws {
        let thread = try RunLoopThread(
            name: "audio", stackSize: 1 << 20,
            setup: { loop in loop.add(RunLoop.Timer(every: .seconds(60)) { _ in }) },
            teardown: { loop in precondition(loop.isCurrent) })

        let answer = try await thread.runLoop.performAsync { 6 * 7 }
        thread.runLoop.perform { print("on \(thread.name)") }

        thread.stop()
        await thread.join()
        #expect(answer == 42)
    }

    @Test func `a thread that hosts something`() throws {
        let server = try RunLoopThread(
            name: "server", drainLimit: .seconds(10),
            setup: { loop in Service(on: loop) },
            drain: { _, service in service.isOpen = false },
            teardown: { _, service in precondition(!service.isOpen) })

        // A request that is not answered yet holds the thread.
        let hold = server.hold()
        server.stop()
        server.runLoop.perform { print("the answer is still accepted") }
        hold.release()
        server.join()
    }

    @Test func `groups`() throws {
        let group = try RunLoopThreadGroup(count: 4, name: "server")
        for number in 0..<8 {
            group.next().perform { precondition(number >= 0) }
        }
        let stuck = group.shutdown(timeout: .seconds(5))
        // On a busy machine they may take longer.
        #expect(stuck.allSatisfy { $0.join(timeout: patience) })
    }

    @Test func `values of a loop`() throws {
        let thread = try RunLoopThread(name: "cache")
        let cache = LoopBound([String: Int](), to: thread.runLoop)
        thread.runLoop.perform { cache.value["a"] = 1 }
        let value = try thread.runLoop.performAndWait { cache.value["a"] }
        thread.stop()
        #expect(value == 1)
    }
}
