// Rules: a task of an actor goes on where it lives, whichever thread resumes it. A task that goes on at a loop of another thread is an escape,
// whatever that loop does.

import EventLoop
import EventLoopSimulation
import EventLoopTestSupport
import Testing

#if canImport(Glibc)
import Glibc
#endif

#if os(Linux)
private actor Lobby {
    /// Of the task that is in `wait`.
    private(set) var continuation: UnsafeContinuation<Void, Never>?

    /// Whether the task goes on in a simulation when it is resumed.
    func wait() async -> Bool {
        await withUnsafeContinuation { continuation = $0 }
        return isInSimulation()
    }
}

/// The wall clock of a simulation begins with the year 2026. The machine's may be before that.
private func isInSimulation() -> Bool { (1_767_225_600..<1_767_225_600 + 86_400).contains(time(nil)) }

/// Returns when a task waits. It has left the actor then, which answers.
private func continuation(of lobby: Lobby) async -> UnsafeContinuation<Void, Never> {
    while true {  // ends: when the task waits
        if let continuation = await lobby.continuation { return continuation }
        await Task.yield()
    }
}

/// Returns when the thread of the loop has resumed the task.
private func resume(_ continuation: UnsafeContinuation<Void, Never>, on loop: RunLoop) {
    let resumptions = Tally()
    loop.perform {
        continuation.resume()
        resumptions.add()
    }
    while resumptions.count == 0 {}  // ends: with the resumption
}

/// Lives on a loop.
private actor Clerk {
    private let loop: RunLoop
    private let calls: Tally
    nonisolated var unownedExecutor: UnownedSerialExecutor { loop.asUnownedSerialExecutor() }

    init(on loop: RunLoop, _ calls: Tally = Tally()) { (self.loop, self.calls) = (loop, calls) }

    func isOnLoop() -> Bool {
        calls.add()
        return loop.isCurrent
    }

    func waitForEver() async {
        calls.add()
        await withUnsafeContinuation { (_: UnsafeContinuation<Void, Never>) in }
    }
}

/// How a task comes to a loop.
private enum Way: CaseIterable {
    case call, callForEver, newTask, preference

    /// Whether code ran on the loop's thread. It adds to `calls`.
    func go(to loop: RunLoop, _ calls: Tally) async -> Bool {
        let note: @Sendable () -> Bool = {
            calls.add()
            return loop.isCurrent
        }
        switch self {
        case .call: return await Clerk(on: loop, calls).isOnLoop()
        case .callForEver:
            await Clerk(on: loop, calls).waitForEver()
            return false
        case .newTask: return await Task(executorPreference: loop) { note() }.value
        case .preference: return await withTaskExecutorPreference(loop) { note() }
        }
    }
}

/// Runs each job at once, on the thread that enqueues it.
private final class InlineExecutor: SerialExecutor {
    func enqueue(_ job: consuming ExecutorJob) {
        let job = UnownedJob(job)
        job.runSynchronously(on: asUnownedSerialExecutor())
    }
}

private actor InlineClerk {
    private let executor = InlineExecutor()
    nonisolated var unownedExecutor: UnownedSerialExecutor { executor.asUnownedSerialExecutor() }

    func answer() -> Int { 7 }
    func waitForEver() async { await withUnsafeContinuation { (_: UnsafeContinuation<Void, Never>) in } }
}

@Suite(.whereSimulated, .bounded)
struct ActorEscapeTests {
    // The job that the actor enqueues is no task, so it went to the pool of the process, and the task with it.
    @Test func `a task of an actor that another thread resumes comes back, and is an escape`() async throws {
        let thread = try RunLoopThread(name: "outside")
        defer { thread.stop() }
        let loop = thread.runLoop
        let body: @Sendable (SimulatedWorld) async throws -> Void = { _ in
            let lobby = Lobby()
            let waiter = Task { await lobby.wait() }
            let continuation = await continuation(of: lobby)
            resume(continuation, on: loop)
            let isInside = await waiter.value
            if !isInside { throw Wrong("the task went on outside") }
        }
        let summary = try await simulate(seeds: 1...5, allowsEscapes: true, body)
        #expect(summary.escapes["a resumption by another thread"] == 5)
        let failure = try await #require(throws: SimulationFailure.self) { try await simulate(seeds: 1...1, body) }
        #expect(failure.kind == .escape)
        #expect(failure.message.hasPrefix("a resumption by another thread"), "\(failure.message)")
    }

    // It ran as a step of the run.
    @Test func `a task of an actor outside that a run resumes goes on outside`() async throws {
        let lobby = Lobby()
        let outside = Task { await lobby.wait() }
        let continuation = await continuation(of: lobby)
        try await simulate(seeds: 1...1, strategy: .firstComeFirstServed) { _ in
            continuation.resume()
            for _ in 0..<5 { await Task.yield() }
        }
        let wasInside = await outside.value
        #expect(!wasInside)
    }

    // It was a deadlock if nothing else was ready when the task had gone, and not deterministic if the loop was slower in the repetition.
    @Test(arguments: Way.allCases, [false, true])
    fileprivate func `a task that goes on at a loop of another thread is an escape, and does not get there`(
        way: Way, isBusy: Bool
    ) async throws {
        let thread = try RunLoopThread(name: "outside")
        defer { thread.stop() }
        let loop = thread.runLoop
        let (begins, ends) = (Gate(), Gate())
        defer { ends.open() }
        if isBusy {
            loop.perform {
                begins.open()
                ends.wait()
            }
            try await begins.waitInTask()
        }
        let calls = Tally()
        let body: @Sendable (SimulatedWorld) async throws -> Void = { _ in
            // Something is ready, or sleeps, at every time.
            Task { while true { try await Task.sleep(for: .seconds(1)) } }  // load: in virtual time
            _ = await way.go(to: loop, calls)
        }
        var messages: Set<String> = []
        for seed: UInt64 in 1...20 {
            let failure = try await #require(throws: SimulationFailure.self) { try await simulate(seeds: seed...seed, body) }
            try #require(failure.kind == .escape, "\(failure)")
            messages.insert(failure.message)
            let again = try await #require(throws: SimulationFailure.self) { try await simulate(replaying: failure.schedule, body) }
            try #require(again.kind == .escape && again.message == failure.message, "\(again)")
        }
        let message = try #require(messages.first)
        #expect(messages.count == 1, "\(messages)")
        #expect(message.hasPrefix(way == .newTask ? "task 3" : "task \"body\" goes on at"), "\(message)")
        #expect(message.contains("the run loop of the thread \"outside\", an executor that is not the simulation's"), "\(message)")
        ends.open()
        thread.stop()
        await thread.join()
        #expect(calls.count == 0)
    }

    @Test(arguments: [Way.call, .newTask, .preference])
    fileprivate func `a task that may go on at a loop of another thread comes back`(way: Way) async throws {
        let thread = try RunLoopThread(name: "outside")
        defer { thread.stop() }
        let loop = thread.runLoop
        let calls = Tally()
        let summary = try await simulate(seeds: 1...5, allowsEscapes: true) { _ in
            let wasOutside = await way.go(to: loop, calls)
            try #require(wasOutside && isInSimulation())
        }
        #expect(summary.runs == 5)
        #expect(calls.count == 5)
    }

    @Test func `a task that waits on the world's loop for ever is a deadlock, and so is one at an executor of the program`() async throws {
        let onLoop = try await #require(throws: SimulationFailure.self) {
            try await simulate(seeds: 1...20) { world in await Clerk(on: world.loop).waitForEver() }
        }
        #expect(onLoop.kind == .deadlock, "\(onLoop)")
        let atExecutor = try await #require(throws: SimulationFailure.self) {
            try await simulate(seeds: 1...20) { _ in await InlineClerk().waitForEver() }
        }
        #expect(atExecutor.kind == .deadlock, "\(atExecutor)")
    }

    @Test func `an executor of the program that runs its jobs in the simulation is no escape`() async throws {
        try await simulate(seeds: 1...20) { world in
            let answer = await InlineClerk().answer()
            let isOnLoop = await Clerk(on: world.loop).isOnLoop()
            try #require(answer == 7 && isOnLoop)
        }
    }

    // The same seed did different things, but it is not the program that differs.
    @Test func `another thread may resume a task at another step when the run is repeated`() async throws {
        let thread = try RunLoopThread(name: "outside")
        defer { thread.stop() }
        let loop = thread.runLoop
        let runs = Tally()
        let failure = try await #require(throws: SimulationFailure.self) {
            try await simulate(seeds: 1...1) { _ in
                runs.add()
                let lobby = Lobby()
                let waiter = Task { await lobby.wait() }
                let continuation = await continuation(of: lobby)
                // For a thread that takes longer each time.
                for _ in 0..<runs.count { await Task.yield() }
                resume(continuation, on: loop)
                _ = await waiter.value
            }
        }
        #expect(failure.kind == .escape, "\(failure)")
        #expect(runs.count == 2)
    }
}
#endif
