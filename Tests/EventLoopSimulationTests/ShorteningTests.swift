// Rules: a shortened run fails in the same way as the run that was found.

import EventLoopSimulation
import EventLoopTestSupport
import Synchronization
import Testing

private struct OtherError: Error, CustomStringConvertible { let description = "of the body" }

/// Whether the first of two ready tasks runs first. It does so in a run without choices, which is the shortest.
private func tasksRunInOrder() async -> Bool {
    let starts = Tally()
    let tasks = (0..<2).map { _ in
        Task {
            starts.add()
            return starts.count
        }
    }
    let place = await tasks[0].value
    _ = await tasks[1].value
    return place == 1
}

@Suite(.whereSimulated, .bounded)
struct ShorteningTests {
    // Any error was taken for the one that was found, so the report was of another failure.
    @Test func `another description is another error`() async {
        await checkThatTheFirstFailureIsReported { isInOrder in throw Wrong("the tasks ran in order: \(isInOrder)") }
    }

    @Test func `another type is another error`() async {
        await checkThatTheFirstFailureIsReported { isInOrder in
            if isInOrder { throw OtherError() }
            throw Wrong("of the body")
        }
    }

    @Test func `an issue in another line is another issue`() async {
        await checkThatTheFirstFailureIsReported { isInOrder in
            if isInOrder {
                Issue.record("of the body")
                return
            }
            Issue.record("of the body")
        }
    }

    /// `fail` always fails, in two ways. The last of all runs is the one that is reported.
    private func checkThatTheFirstFailureIsReported(_ fail: @escaping @Sendable (_ isInOrder: Bool) throws -> Void) async {
        var found: Set<Bool> = []
        for seed: UInt64 in 1...20 {
            let runs = Mutex<[Bool]>([])
            await withKnownIssue {
                try await simulate(seeds: seed...seed, strategy: .random) { _ in
                    let isInOrder = await tasksRunInOrder()
                    runs.withLock { $0.append(isInOrder) }
                    try fail(isInOrder)
                }
            }
            let all = runs.withLock { $0 }
            #expect(all.count >= 2)
            #expect(all.first == all.last, "seed \(seed)")
            if let first = all.first { found.insert(first) }
        }
        #expect(found == [true, false])
    }
}
