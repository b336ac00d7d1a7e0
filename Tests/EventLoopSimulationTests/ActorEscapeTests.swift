// Rules: a task of an actor goes on where it lives, whichever thread resumes it.

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
}
#endif
