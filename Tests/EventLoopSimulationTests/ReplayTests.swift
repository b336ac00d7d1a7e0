// Rules: EVENTLOOP_SIMULATION in the environment repeats one failure, with a page that shows it.

import EventLoop
import EventLoopSimulation
import EventLoopStreams
import EventLoopTestSupport
import Testing

#if canImport(Glibc)
import Glibc
#endif

/// One after another: the environment is the process's.
@Suite(.whereSimulated, .serialized, .bounded)
struct ReplayTests {
    @Test func `a replay writes a page with a track for each task`() async throws {
        let call = {
            try await simulate(seeds: 1...1) { world in
                world.process("server") { server in
                    try world.network.listen(server, port: 1) { stream in _ = try? await stream.read() }
                }
                let client = world.process("client") { client in
                    try await Task.sleep(for: .seconds(1))
                    let stream = try await world.network.connect(from: client, to: "server", port: 1)
                    try await stream.write("hello")
                }
                try await client.waitForEnd()
                throw Wrong("the end")
            }
        }
        let failure = try await #require(throws: SimulationFailure.self) { try await call() }
        await withEnvironment(failure.schedule) { await #expect(throws: SimulationFailure.self) { try await call() } }
        let folder = getenv("TMPDIR").map { String(cString: $0) } ?? "/tmp"
        let file = open("\(folder)/eventloop-simulation-\(getpid()).html", O_RDONLY)
        try #require(file >= 0)
        defer { close(file) }
        var bytes = [UInt8](repeating: 0, count: 4_000_000)
        let count = read(file, &bytes, bytes.count)
        try #require(count > 0)
        let page = String(decoding: bytes.prefix(count), as: UTF8.self).lowercased()
        for part in ["task \\\"body\\\"", "connection 1 of server:1", "main", "client connects to server:1", "<!doctype html>"] {
            let isThere = page.contains(part)
            #expect(isThere, "\(part)")
        }
    }

    @Test func `a run that sleeps for longer than a recording has time can be replayed`() async throws {
        let call = {
            try await simulate(seeds: 1...1) { _ in
                // More than 292 years together.
                for _ in 0..<4 { try await Task.sleep(for: .seconds(100 * 365 * 86_400)) }
                throw Wrong("the end")
            }
        }
        let failure = try await #require(throws: SimulationFailure.self) { try await call() }
        await withEnvironment(failure.schedule) { await #expect(throws: SimulationFailure.self) { try await call() } }
    }

    @Test func `the schedule of a strategy with a negative number of changes can be read`() async throws {
        let body: @Sendable (SimulatedWorld) async throws -> Void = { _ in while true { await Task.yield() } }  // load: in virtual time
        let failure = try await #require(throws: SimulationFailure.self) {
            try await simulate(seeds: 1...1, strategy: .priorities(changes: -1), stepLimit: 50, body)
        }
        let again = try await #require(throws: SimulationFailure.self) {
            try await simulate(replaying: failure.schedule, stepLimit: 50, body)
        }
        #expect(failure.kind == .tooManySteps)
        #expect(again.kind == .tooManySteps)
    }

    @Test func `EVENTLOOP_SIMULATION replays its call only`() async throws {
        let runs = Tally()
        let body: @Sendable (SimulatedWorld) async throws -> Void = { world in
            runs.add()
            if world.seed >= 5 { throw Wrong("from seed 5 on") }
        }
        let call = { try await simulate(seeds: 1...10, body) }
        let failure = try await #require(throws: SimulationFailure.self) { try await call() }
        try await withEnvironment(failure.schedule) {
            let before = runs.count
            let again = try await #require(throws: SimulationFailure.self) { try await call() }
            #expect(again.kind == .threw && again.seed == 5)
            #expect(runs.count == before + 1)
            let other = try await simulate(seeds: 1...4, body)
            #expect(other.runs == 4)
        }
    }
}

private func withEnvironment(_ value: String, _ body: () async throws -> Void) async rethrows {
    setenv("EVENTLOOP_SIMULATION", value, 1)
    defer { unsetenv("EVENTLOOP_SIMULATION") }
    try await body()
}
