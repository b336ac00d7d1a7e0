// Actors and threads that the tests of this folder share.

import EventLoop
import EventLoopTestSupport
import Testing

/// Fewer rounds under ThreadSanitizer, which makes each round many times slower: the tests share a few pool threads, and some of them have
/// a time limit.
let roundsDivisor = isUnderThreadSanitizer ? 10 : 1

/// An actor on a loop. It keeps its entries, and reports the thread on which it runs.
actor Ledger {
    let loop: RunLoop
    private(set) var entries: [String] = []
    var numbers: [[Int]] = []
    var strayCalls = 0

    nonisolated var unownedExecutor: UnownedSerialExecutor { loop.asUnownedSerialExecutor() }

    init(on loop: RunLoop, senders: Int = 0) {
        self.loop = loop
        numbers = Array(repeating: [], count: senders)
    }

    func add(_ entry: String) {
        if !loop.isCurrent { strayCalls += 1 }
        entries.append(entry)
    }

    func add(_ number: Int, from sender: Int) {
        if !loop.isCurrent { strayCalls += 1 }
        numbers[sender].append(number)
    }

    /// Whether the actor runs on its loop's own thread.
    func isOnLoop() -> Bool { loop.isCurrent }

    func threadID() -> UInt { currentThreadID() }

    /// Runs a synchronous closure in the actor.
    func run<R: Sendable>(_ body: @Sendable (isolated Ledger) throws -> R) rethrows -> R { try body(self) }

    /// Starts a task in the actor. The part of the task before its first suspension is one job, which is queued before this returns.
    func spawn(_ body: @escaping @Sendable (isolated Ledger) async -> Void) { Task { await body(self) } }

    func append(_ entry: String) { entries.append(entry) }
}

/// Starts a `RunLoopThread` for `body`, and ends it afterwards.
func withLoopThread<R>(
    _ name: String = "actors", isolation: isolated (any Actor)? = #isolation, _ body: (RunLoopThread) async throws -> R
) async throws -> R {
    let thread = try RunLoopThread(name: name)
    do {
        let result = try await body(thread)
        thread.stop()
        #expect(await thread.join(timeout: patience))
        return result
    } catch {
        thread.stop()
        throw error
    }
}

/// Runs `body` in the next pass of the loop's thread, between two of its other callouts.
func onThread<R: Sendable>(of loop: RunLoop, _ body: @escaping @Sendable () throws -> R) async throws -> R {
    try await loop.performAsync { try body() }
}
