// What a simulation costs, in processor time of the process, so that others on the machine count less. The figures are printed by the long form only;
// docs/performance.md has those of one machine.

import EventLoop
import EventLoopSimulation
import EventLoopStreams
import Testing

#if canImport(Glibc)
import Glibc
#endif

private actor Counter {
    var count = 0
    func add() { count += 1 }
}

@Suite(.whereSimulated, .enabled(if: isLong), .serialized, .timeLimit(.minutes(10)))
struct SpeedTests {
    private func measure(_ name: String, _ body: () async throws -> SimulationSummary) async throws {
        let start = processorSeconds()
        let summary = try await body()
        let seconds = processorSeconds() - start
        print(
            "\(name): \(summary.runs) runs, \(summary.steps) steps, \(seconds) s, \(Int(Double(summary.steps) / seconds)) steps/s, \(residentKilobytes()) KB"
        )
    }

    private func processorSeconds() -> Double {
        var usage = rusage()
        getrusage(0, &usage)  // RUSAGE_SELF
        return [usage.ru_utime, usage.ru_stime].reduce(0) { $0 + Double($1.tv_sec) + Double($1.tv_usec) / 1_000_000 }
    }

    private func residentKilobytes() -> Int {
        var usage = rusage()
        getrusage(0, &usage)  // RUSAGE_SELF
        return usage.ru_maxrss
    }

    @Test func `jobs, sleeps, and requests`() async throws {
        try await measure("yields") {
            try await simulate(seeds: 1...1, stepLimit: 10_000_000) { _ in
                await withTaskGroup(of: Void.self) { group in
                    for _ in 0..<10 { group.addTask { for _ in 0..<100_000 { await Task.yield() } } }
                }
            }
        }
        try await measure("hops") {
            try await simulate(seeds: 1...1, stepLimit: 10_000_000) { _ in
                let (one, other) = (Counter(), Counter())
                for _ in 0..<250_000 {
                    await one.add()
                    await other.add()
                }
            }
        }
        for count in [100_000, 1_000_000] {
            try await measure("\(count) sleeps") {
                try await simulate(seeds: 1...1, stepLimit: 10_000_000) { _ in
                    for _ in 0..<count { try await Task.sleep(for: .seconds(1)) }
                }
            }
        }
        try await measure("an hour of one-second ticks") {
            try await simulate(seeds: 1...1) { _ in for _ in 0..<3_600 { try await Task.sleep(for: .seconds(1)) } }
        }
        try await measure("a client and a server with ten requests") {
            try await simulate(seeds: 1...1_000) { world in
                world.process("server") { server in
                    try world.network.listen(server, port: 80) { stream in
                        do { for try await line in stream.lines() { try await stream.write(line + "\n") } } catch {}
                    }
                }
                let client = world.process("client") { client in
                    let stream = try await world.network.connect(from: client, to: "server", port: 80)
                    for number in 0..<10 {
                        try await stream.write("\(number)\n")
                        _ = try await stream.read(exactly: 2)
                    }
                    stream.close()
                }
                try await client.waitForEnd()
            }
        }
    }
}
