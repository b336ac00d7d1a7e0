// Rules: each seeded bug is found within 1,000 seeds, and its corrected version never fails. The long form has 10,000 seeds.

import EventLoopSimulation
import Testing

#if canImport(Glibc)
import Glibc
#endif

/// `make simulations` runs the long form in ten processes, each with a tenth of the seeds: tasks that are left over at the end of a run keep their
/// memory. The variable has the number of the process, from 1 on.
let isLong = part != nil
let part = getenv("EVENTLOOP_LONG_SIMULATIONS").map { UInt64(String(cString: $0)) ?? 1 }

/// The seeds of this process: 1 to `short`, or its tenth of 1 to `long`.
func sample(short: UInt64, long: UInt64) -> ClosedRange<UInt64> {
    guard let part else { return 1...short }
    return ((part - 1) * long / 10 + 1)...(part * long / 10)
}

@Suite(.whereSimulated, .timeLimit(.minutes(30)))
struct BugTests {
    @Test(arguments: Specimen.all)
    func `a bug is found within 1,000 seeds, and its schedule replays it`(specimen: Specimen) async throws {
        let failure = try await #require(throws: SimulationFailure.self) {
            try await simulate(seeds: 1...1_000) { try await specimen.run($0, false) }
        }
        #expect(specimen.kinds.contains(failure.kind), "\(failure)")
        #expect(!failure.trace.isEmpty)
        let again = try await #require(throws: SimulationFailure.self) {
            try await simulate(replaying: failure.schedule) { try await specimen.run($0, false) }
        }
        #expect(again.kind == failure.kind)
        #expect(again.message.split(separator: "\n").first == failure.message.split(separator: "\n").first)
        #expect(again.seed == failure.seed)
        if isLong { print(specimen.testDescription, "seed", failure.seed, "\n\(failure)") }
    }

    @Test(arguments: Specimen.all)
    func `a corrected program never fails`(specimen: Specimen) async throws {
        let seeds = sample(short: 200, long: 10_000)
        let summary = try await simulate(seeds: seeds) { try await specimen.run($0, true) }
        #expect(summary.runs == seeds.count)
    }
}
