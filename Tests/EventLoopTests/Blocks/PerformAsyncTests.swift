// Rules proved here:
// - `performAsync` suspends until the body has returned on the loop's thread, then returns the body's value or throws its error.
// - It is a perform: it wakes the loop, is a handled source, and has modes.
// - If the loop ends, it throws `RunLoopEnded`. If the task is cancelled before the body begins, it withdraws the body and throws
//   `CancellationError`.

import EventLoop
import EventLoopTestSupport
import Testing

// An async test must not block its thread while it waits for a task: tests and tasks share a few threads.

private struct Failure: Error, Equatable { let number: Int }

private final class Note {
    var text: String
    init(_ text: String) { self.text = text }
}

/// A thread that runs its loop only after the test opens `go`.
private final class HeldLoop: Sendable {
    let loop: RunLoop
    let go = Gate()
    private let thread: JoinableThread<[RunLoop.RunResult]>

    init(_ runs: @escaping @Sendable (RunLoop) -> [RunLoop.RunResult]) {
        let (published, ready, go) = (Box<RunLoop?>(nil), Gate(), go)
        thread = joinableThread { loop in
            published.value = loop
            ready.open()
            go.wait()
            return runs(loop)
        }
        ready.wait()
        loop = published.value!
    }

    /// Call this only if the runs can end by themselves: it blocks a thread that tasks may need.
    func end() throws -> [RunLoop.RunResult] {
        go.open()
        return try thread.join()
    }
}

@Suite(.bounded, .tags(.threads)) struct `Perform, asynchronously` {
    @Test func `returns the value, computed on the loop's thread`() async throws {
        let running = RunningLoop()
        for number in 1...200 {
            let result = try await running.loop.performAsync { (number * 2, currentThreadID()) }
            #expect(result == (number * 2, running.threadID))
        }
        try running.end()
    }

    @Test func `returns a value that is not Sendable`() async throws {
        let running = RunningLoop()
        let note = try await running.loop.performAsync { Note("from there") }
        note.text += ", here"
        #expect(note.text == "from there, here")
        try running.end()
    }

    @Test func `throws the body's error`() async throws {
        let running = RunningLoop()
        await #expect(throws: Failure(number: 7)) { try await running.loop.performAsync { throw Failure(number: 7) } }
        #expect(try await running.loop.performAsync { 1 } == 1)
        try running.end()
    }

    @Test func `wakes a sleeping loop`() async throws {
        let running = RunningLoop()
        for _ in 1...50 {
            try waitUntilAsleep(running.loop)
            try await running.loop.performAsync {}
        }
        try running.end()
    }

    @Test func `is a handled source, and waits for a run of one of its modes`() async throws {
        let held = HeldLoop { loop in
            loop.addIdleSource()
            loop.addIdleSource(forMode: "right")
            return [
                loop.run(for: .zero, returnAfterSourceHandled: true),
                loop.run(mode: "right", for: patience, returnAfterSourceHandled: true),
            ]
        }
        let task = Task { try await held.loop.performAsync(inModes: ["right"]) { held.loop.currentMode } }
        held.go.open()
        #expect(try await task.value == "right")
        #expect(try held.end() == [.timedOut, .handledSource])
    }

    @Test func `performs all of many concurrent calls`() async throws {
        let running = RunningLoop()
        let sum = try await withThrowingTaskGroup(of: Int.self) { group in
            for number in 1...500 { group.addTask { try await running.loop.performAsync { number } } }
            return try await group.reduce(0, +)
        }
        #expect(sum == 125_250)
        try running.end()
    }

    @Test func `releases the body before it returns`() async throws {
        let running = RunningLoop()
        for _ in 1...50 {
            let released = Counter()
            try await performWithCanary(running.loop, onRelease: { released.increment() })
            #expect(released.value == 1)
        }
        try running.end()
    }

    // MARK: Cancelling

    @Test func `withdraws the body if the task is cancelled before the body begins`() async throws {
        let trace = Trace()
        let held = HeldLoop { loop in
            loop.addIdleSource()
            return [loop.run(for: .zero, returnAfterSourceHandled: true)]
        }
        // Some tasks are cancelled while their bodies are queued, some before.
        for round in 0..<200 {
            let task = Task { try await held.loop.performAsync { trace.add("performed") } }
            for _ in 0..<round { await Task.yield() }
            task.cancel()
            await #expect(throws: CancellationError.self) { try await task.value }
        }
        // The withdrawn bodies leave nothing behind: the loop handled no source.
        #expect(try held.end() == [.timedOut])
        #expect(trace.take() == "")
    }

    @Test func `throws in a task that is already cancelled`() async throws {
        let trace = Trace()
        let running = RunningLoop()
        let task = Task {
            withUnsafeCurrentTask { $0?.cancel() }
            try await running.loop.performAsync { trace.add("performed") }
        }
        await #expect(throws: CancellationError.self) { try await task.value }
        try running.end()
        #expect(trace.take() == "")
    }

    @Test func `performs the body and returns if the task is cancelled after the body began`() async throws {
        let (entered, enter) = AsyncStream.makeStream(of: Void.self)
        let leave = Gate()
        let running = RunningLoop()
        let task = Task {
            try await running.loop.performAsync {
                enter.finish()
                leave.wait()
                return 3
            }
        }
        for await _ in entered {}
        task.cancel()
        leave.open()
        #expect(try await task.value == 3)
        try running.end()
    }

    @Test func `either performs or throws, however the cancellation and the loop race`() async throws {
        let running = RunningLoop()
        for _ in 1...300 {
            let begun = Counter()
            let task = Task { try await running.loop.performAsync { _ = begun.increment() } }
            task.cancel()
            switch await task.result {
            case .success: #expect(begun.value == 1)
            case .failure(let error):
                #expect(error is CancellationError)
                #expect(begun.value == 0)
            }
        }
        try running.end()
    }

    @Test(arguments: [[RunLoop.Mode.common], ["second"], [.default, "second", .common]])
    func `leaves nothing in a queue that keeps a mode from being empty, if the task is cancelled:`(_ modes: [RunLoop.Mode]) async throws {
        let held = HeldLoop { loop in [loop.run(for: patience), loop.run(mode: "second", for: patience)] }
        for round in 0..<50 {
            let task = Task { try await held.loop.performAsync(inModes: modes) {} }
            for _ in 0..<round { await Task.yield() }
            // On another thread, perhaps.
            Task.detached { task.cancel() }
            await #expect(throws: CancellationError.self) { try await task.value }
        }
        #expect(try held.end() == [.finished, .finished])
    }

    // MARK: The end

    /// Tests/Models/awaited.pml has every interleaving of one call.
    @Test func `either performs or throws, and releases the body, however the cancellation, the loop and its end race`() async throws {
        for round in 0..<200 {
            let held = HeldLoop { loop in
                let alive = loop.keepAlive()
                defer { alive.cancel() }
                return (0...round % 8).map { _ in loop.run(until: .distantPast) }
            }
            let tasks = (0..<6).map { _ in
                Task {
                    let (begun, released) = (Counter(), Counter())
                    do {
                        try await performWithCanary(held.loop, onRelease: { released.increment() }, also: { begun.increment() })
                        #expect(begun.value == 1)
                    } catch {
                        #expect(error is CancellationError || error is RunLoopEnded)
                        #expect(begun.value == 0)
                    }
                    #expect(released.value == 1)
                }
            }
            for _ in 0..<round % 7 { await Task.yield() }
            held.go.open()
            for task in tasks.prefix(4) {
                task.cancel()
                await Task.yield()
            }
            for task in tasks { await task.value }
            _ = try held.end()
        }
    }

    @Test func `throws on a loop that has ended`() async throws {
        let loop = try onFreshThread { $0 }
        await #expect(throws: RunLoopEnded.self) { try await loop.performAsync {} }
    }

    @Test func `throws and releases the body if the loop's thread ends first`() async throws {
        let performed = Counter()
        for _ in 1...50 {
            let held = HeldLoop { _ in [] }
            let tasks = (1...3).map { _ in
                Task {
                    let released = Counter()
                    do {
                        try await performWithCanary(held.loop, onRelease: { released.increment() }, also: { performed.increment() })
                        Issue.record("performed by a loop that never ran")
                    } catch {
                        #expect(error is RunLoopEnded)
                    }
                    #expect(released.value == 1)
                }
            }
            #expect(try held.end() == [])
            for task in tasks { await task.value }
        }
        #expect(performed.value == 0)
    }
}

private func performWithCanary(
    _ loop: RunLoop, onRelease: @escaping @Sendable () -> Void, also body: @escaping @Sendable () -> Void = {}
) async throws {
    let canary = Canary(onRelease)
    try await loop.performAsync {
        canary.touch()
        body()
    }
}
