// The code of docs/performs.md, compiled and run.

import EventLoop
import EventLoopTestSupport
import Testing

/// Not Sendable: one thread at a time has it.
private final class Picture {
    var pixels: [UInt8] = [1, 2, 3]
}

private func digest(_ bytes: [UInt8]) -> Int { bytes.reduce(0) { $0 + Int($1) } }

@Suite(.bounded) struct DocumentedPerforms {
    @Test func `work goes to a worker, and its result comes back to the loop`() throws {
        try onFreshThread { loop in
            let workers = try RunLoopThreadGroup(count: 2, name: "worker")
            let bytes: [UInt8] = [1, 2, 3]
            let shown = Box(0)
            let show: @Sendable (Int) -> Void = {
                shown.value = $0
                loop.stop()
            }
            let keepAlive = loop.keepAlive()
            defer { keepAlive.cancel() }

            workers.next().perform {
                let result = digest(bytes)  // on a worker's thread
                loop.perform { show(result) }  // back on this loop's thread
            }

            #expect(loop.run(for: patience) == .stopped)
            #expect(shown.value == 6)
            workers.shutdown()
        }
    }

    @Test func `the caller waits for an answer, and not longer than it wants to`() throws {
        let running = RunningLoop()
        let loop = running.loop
        let sizes = LoopBound(["a": 1], to: loop)
        #expect(try askAndBlock(loop, sizes) == 1)
        try running.end()
        #expect(try askAndBlock(loop, LoopBound(["a": 1], to: loop)) == nil)
    }

    private func askAndBlock(
        _ loop: RunLoop, _ sizes: LoopBound<[String: Int]>, for limit: Duration = patience
    ) throws -> Int? {
        do {
            return try loop.performAndWait(timeout: limit) { sizes.value["a"] }
        } catch is PerformTimedOut {
            return nil  // the loop was busy, and the closure is not performed later
        } catch is RunLoopEnded {
            return nil  // the loop's thread has exited
        }
    }

    @Test func `a task suspends while the loop performs`() async throws {
        let running = RunningLoop()
        let (loop, sizes) = (running.loop, LoopBound(["a": 1], to: running.loop))

        let size = try await loop.performAsync { sizes.value["a"] }

        #expect(size == 1)
        try await elsewhere { _ = try running.end() }
    }

    @Test func `a value that is not Sendable moves to the loop's thread`() throws {
        try onFreshThread { loop in
            let drawn = Box(0)
            let draw: @Sendable (Picture) -> Void = { drawn.value = $0.pixels.count }

            let picture = Picture()
            loop.perform(sending: picture) { picture in draw(picture) }
            // From here on the compiler refuses `picture`.

            #expect(loop.run(for: .zero) == .handledSource || drawn.value == 3)
            #expect(drawn.value == 3)
        }
    }

    @Test func `delayed performs are cancelled one by one, or by their target`() throws {
        try inManualTime { loop, _, trace in
            let retry: @Sendable () -> Void = { trace.add("retry") }
            let session = Canary()

            let pending = loop.perform(after: .seconds(5)) { retry() }
            pending.cancel()

            // All that belong to one object:
            loop.perform(after: .seconds(5), target: session) { retry() }
            loop.perform(after: .seconds(9), target: session) { retry() }
            loop.cancelDelayedPerforms(target: session)

            #expect(loop.run(for: .seconds(20)) == .finished)
            #expect(trace.list == [] && !pending.isValid)
        }
    }

    @Test func `a block waits for the next pass, and a wake-up brings that pass`() throws {
        let running = RunningLoop()
        let loop = running.loop
        try waitUntilAsleep(loop)
        let done = Gate()
        let update: @Sendable () -> Void = { done.open() }

        loop.performBlock { update() }  // the loop sleeps on
        loop.wakeUp()

        done.wait()
        try running.end()
    }

    @Test func `a loop that has ended refuses`() throws {
        let loop = try onFreshThread { $0 }
        let save: @Sendable () -> Void = {}
        let saved = Box(true)
        let report: @Sendable (String) -> Void = { _ in saved.value = false }

        if !loop.perform({ save() }) { report("the loop has ended: nothing was saved") }

        #expect(!saved.value)
    }
}
