// Rules proved here:
// - Each call of `performAsync` returns once, and its body is released by then, whatever tasks, loops, cancellations, errors and ends of loops
//   meet. The model of one call is Tests/Models/awaited.pml.

import EventLoop
import EventLoopTestSupport
import Testing

private struct Failure: Error {}

/// What the calls of a round did.
private final class Tally: Sendable {
    let returns = Counter()
    let values = Counter()
    let failures = Counter()
    let refusals = Counter()
}

@Suite(.bounded, .tags(.threads)) struct `Perform, asynchronously, from many tasks` {
    private static let tasks = 24
    private static let calls = 20

    @Test func `returns once for each call, while loops end and tasks are cancelled`() async throws {
        let tally = Tally()
        let rounds = 12
        for round in 0..<rounds {
            let loops = [RunningLoop(), RunningLoop(), RunningLoop()]
            await withTaskGroup(of: Void.self) { group in
                for number in 0..<Self.tasks {
                    group.addTask {
                        await withTaskGroup(of: Void.self) { calls in
                            calls.addTask { await call(loops.map(\.loop), from: number, tally) }
                            // Cancelled at any point of a call, or before the first.
                            for _ in 0..<(number + round) % 40 { await Task.yield() }
                            if number % 3 == 0 { calls.cancelAll() }
                        }
                    }
                }
                // Two loops end while they are called. A run is stopped on its loop's thread.
                for (number, running) in loops.prefix(2).enumerated() {
                    group.addTask {
                        for _ in 0..<(round * 3 + number * 10) { await Task.yield() }
                        let loop = running.loop
                        loop.perform { loop.stop() }
                    }
                }
            }
            for running in loops.prefix(2) { try running.join() }
            try loops[2].end()
        }
        #expect(tally.returns.value == rounds * Self.tasks * Self.calls)
        #expect(tally.values.value > 0 && tally.failures.value > 0 && tally.refusals.value > 0)
    }

    /// Calls the loops in turn, and checks each outcome.
    private func call(_ loops: [RunLoop], from number: Int, _ tally: Tally) async {
        for call in 0..<Self.calls {
            let (begun, released) = (Counter(), Counter())
            let modes: [RunLoop.Mode] = call % 4 == 0 ? [.default, "second", .common] : [.common]
            do {
                let text = try await perform(on: loops[(number + call) % loops.count], modes, fails: call % 5 == 1, begun, released)
                tally.values.increment()
                #expect(text == "a value, long enough to be on the heap" && begun.value == 1)
            } catch is Failure {
                tally.failures.increment()
                #expect(begun.value == 1)
            } catch {
                tally.refusals.increment()
                #expect(error is CancellationError || error is RunLoopEnded)
                #expect(begun.value == 0)
            }
            #expect(released.value == 1)
            tally.returns.increment()
        }
    }

    private func perform(
        on loop: RunLoop, _ modes: [RunLoop.Mode], fails: Bool, _ begun: Counter, _ released: Counter
    ) async throws -> String {
        let canary = Canary { released.increment() }
        return try await loop.performAsync(inModes: modes) {
            canary.touch()
            begun.increment()
            if fails { throw Failure() }
            return "a value, long enough" + " to be on the heap"
        }
    }
}
