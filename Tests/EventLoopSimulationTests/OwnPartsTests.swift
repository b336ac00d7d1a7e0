// Rules: our own parts survive their seeds, and the replicated log's seeded bugs are found.

import EventLoop
import EventLoopDatagrams
import EventLoopSimulation
import EventLoopStreams
import EventLoopTesting
import Synchronization
import Testing

#if canImport(Glibc)
import Glibc
#endif

private let seeds = sample(short: 60, long: 100_000)

@Suite(.whereSimulated, .timeLimit(.minutes(60)))
struct OwnPartsTests {
    @Test func `withTimeout ends with the value or the timeout, and never early`() async throws {
        try await simulate(seeds: seeds) { world in
            let (limit, work) = (world.random(in: 1...20), world.random(in: 1...20))
            let start = world.loop.clock.now
            do {
                let value = try await world.loop.withTimeout(.milliseconds(limit)) {
                    try await Task.sleep(for: .milliseconds(work))
                    return 7
                }
                try #require(value == 7 && work <= limit)
            } catch is TaskTimedOut {
                try #require(limit <= work)
                try #require(world.loop.clock.now - start == .milliseconds(limit))
            }
        }
    }

    @Test func `frames arrive whole and in order, however they are split`() async throws {
        try await simulate(seeds: seeds) { world in
            let pair = try ByteStream.pair(on: world.loop, seed: world.seed)
            let messages = (0..<8).map { "message \($0) " + String(repeating: "x", count: world.random(in: 0...300)) }
            async let writer: Void = {
                for message in messages { try await pair.first.write(message + "\n") }
                try await pair.first.finishWriting()
            }()
            var received: [String] = []
            for try await line in pair.second.lines() { received.append(line) }
            try await writer
            try #require(received == messages)
        }
    }

    @Test func `a question over datagrams is answered, whatever is lost, late or doubled`() async throws {
        try await simulate(seeds: seeds) { world in
            let network = DatagramNetwork(seed: world.seed)
            (network.lossChance, network.duplicateChance, network.latency) = (0.4, 0.2, .milliseconds(1)...(.milliseconds(900)))
            let server = try network.socket(boundTo: .ipv4(host: "127.0.0.1", port: 53), on: world.loop)
            let answering = Task {
                for try await question in server.datagrams { try await server.write(question.bytes, to: question.peer) }
            }
            let client = try network.socket(connectedTo: server.localAddress, on: world.loop)
            var answers = client.datagrams.makeAsyncIterator()
            for number: UInt8 in 0..<4 {
                let asking = Task {
                    while true {
                        try await client.write([number])
                        try await world.loop.clock.sleep(for: .seconds(1))
                    }
                }
                // Answers to earlier questions may be late.
                while try await answers.next()?.bytes != [number] {}
                asking.cancel()
            }
            client.close()
            server.close()
            try await answering.value
        }
    }

    @Test func `a server survives resets, partitions and clients that go`() async throws {
        try await simulate(seeds: seeds) { world in
            let server = world.process("server") { server in
                try world.network.listen(server, port: 1, options: .init()) { stream in
                    do { for try await line in stream.lines() { try await stream.write(line + "\n") } } catch {}
                }
            }
            world.network.resetChance = 0.05
            let clients = (0..<3).map { number in
                world.process("client \(number)") { client in
                    for request in 0..<5 {
                        guard let stream = try? await world.network.connect(from: client, to: "server", port: 1) else { continue }
                        defer { stream.close() }
                        guard (try? await stream.write("\(number) \(request)\n")) != nil else { continue }
                        for try await line in stream.lines() {
                            try #require(line == "\(number) \(request)")
                            break
                        }
                    }
                }
            }
            world.network.partition(server, from: clients[0], for: .milliseconds(world.random(in: 1...20)))
            for client in clients { try? await client.waitForEnd() }
        }
    }

    @Test(arguments: ReplicatedLog.Bug.allCases) func `a bug of the replicated log is found`(bug: ReplicatedLog.Bug) async throws {
        let failure = try await #require(throws: SimulationFailure.self) {
            // The short form begins where the long one has found it.
            try await simulate(seeds: (isLong ? 1 : bug.firstSeed)...1_000) { try await ReplicatedLog(bug: bug).run($0) }
        }
        #expect(failure.kind == .threw || failure.kind == .invariant)
        if isLong { print(bug, "seed", failure.seed, failure.message) }
    }

    @Test func `the replicated log keeps what it acknowledges`() async throws {
        try await simulate(seeds: sample(short: 40, long: 100_000)) { try await ReplicatedLog().run($0) }
    }

    // MARK: Hard cases

    @Test func `a schedule with much noise is shortened to a few choices`() async throws {
        let failure = try await #require(throws: SimulationFailure.self) {
            try await simulate(seeds: 1...1_000, strategy: .random) { world in
                let noise = (0..<3).map { _ in Task { for _ in 0..<40 { await Task.yield() } } }
                try await farApartForRandom()
                for task in noise { await task.value }
            }
        }
        let choices = failure.schedule.split(separator: "-").count - 1
        if isLong { print("shortened to \(choices) choices, \(failure.trace.count) steps: \(failure.schedule)") }
        #expect(choices <= 20, "\(failure.schedule)")
    }
}

private actor Step {
    private(set) var value = 0
    func advance(from expected: Int) -> Bool {
        guard value == expected else { return false }
        value += 1
        return true
    }
}

/// Fails if the second task comes between the two steps of the first.
private func farApartForRandom() async throws {
    let step = Step()
    let looks = Tally()
    async let first: Void = {
        _ = await step.advance(from: 0)
        looks.add()
        for _ in 0..<3 { await Task.yield() }
        _ = await step.advance(from: 1)
    }()
    async let second: Bool = {
        for _ in 0..<10 { await Task.yield() }
        return await step.value == 1
    }()
    _ = await first
    if await second { throw Wrong("between the steps") }
}
