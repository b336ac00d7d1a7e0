// Rules: what the simulated network does at the ends of connections and of partitions.

import EventLoop
import EventLoopSimulation
import EventLoopStreams
import EventLoopTestSupport
import Synchronization
import Testing

#if canImport(Glibc)
import Glibc
#endif

@Suite(.whereSimulated, .bounded)
struct NetworkRuleTests {
    // Both ends were reset at once, and the network kept the connection: its first end was never closed.
    @Test func `the server of a connect that has timed out is reset by a packet, because nobody knows the connection`() async throws {
        try await simulate(seeds: 1...20) { world in
            world.network.latency = .milliseconds(10)...(.milliseconds(10))
            let start = ContinuousClock.now
            let resetAfter = Mutex<Duration?>(nil)
            world.process("server") { server in
                try world.network.listen(server, port: 80) { stream in
                    do {
                        _ = try await stream.read()
                    } catch RunLoop.SourceError.system("read", ECONNRESET) {
                        resetAfter.withLock { $0 = ContinuousClock.now - start }
                    } catch {}
                }
            }
            let client = world.process("client") { client in
                await #expect(throws: RunLoop.SourceError.system(operation: "connect server:80", errno: ETIMEDOUT)) {
                    try await world.network.connect(from: client, to: "server", port: 80, timeout: .milliseconds(15))
                }
            }
            try await client.waitForEnd()
            try await Task.sleep(for: .seconds(1))
            let duration = resetAfter.withLock { $0 }
            // The request, the answer, and the reset.
            try #require(duration == .milliseconds(30))
        }
    }

    @Test func `packets with one latency let the tasks of two connections overlap`() async {
        let failure = await #expect(throws: SimulationFailure.self) {
            try await simulate(seeds: 1...200) { world in
                world.network.latency = .zero ... .zero
                let count = try await requestsCounted(in: world)
                if count != 2 { throw LostUpdate() }
            }
        }
        #expect(failure?.kind == .threw)
    }

    private struct LostUpdate: Error {}

    /// How many of two clients' requests a server counts that reads, hops and writes for each.
    private func requestsCounted(in world: SimulatedWorld) async throws -> Int {
        let counter = HoppingCounter()
        world.process("server") { server in
            try world.network.listen(server, port: 80) { stream in
                do { if try await stream.readLine() != nil { try await stream.write("\(await counter.count())\n") } } catch {}
            }
        }
        let clients = ["first", "second"].map { name in
            world.process(name) { client in
                let stream = try await world.network.connect(from: client, to: "server", port: 80)
                try await stream.write("count\n")
                _ = try await stream.readLine()
                stream.close()
            }
        }
        for client in clients { try await client.waitForEnd() }
        return await counter.value
    }

    // The timeout of the connect held the stream until it was over, too.
    @Test func `a stream that its client releases ends at once`() async throws {
        try await simulate(seeds: 1...20) { world in
            let ends = Tally()
            world.process("server") { server in
                try world.network.listen(server, port: 80) { stream in
                    do { if try await stream.read() == nil { ends.add() } } catch {}
                }
            }
            let client = world.process("client") { client in
                _ = try await world.network.connect(from: client, to: "server", port: 80)
            }
            try await client.waitForEnd()
            try await Task.sleep(for: .seconds(1))
            try #require(ends.count == 1)
        }
    }

    @Test func `a partition that ends while there is another one is not said to connect`() async throws {
        let failure = try await #require(throws: SimulationFailure.self) {
            try await simulate(seeds: 1...1) { world in
                let (one, other) = (world.process("one") { _ in }, world.process("other") { _ in })
                for seconds in 1...4 { world.network.partition(one, from: other, for: .seconds(seconds)) }
                try await Task.sleep(for: .milliseconds(2_500))
                world.network.heal()
                try await Task.sleep(for: .seconds(5))
                world.network.partition(one, from: other, for: .seconds(1))
                try await Task.sleep(for: .seconds(2))
                throw Wrong("the end")
            }
        }
        #expect(failure.trace.count { $0.contains("one and other are partitioned") } == 2, "\(failure)")
        #expect(failure.trace.count { $0.contains("one and other are still partitioned") } == 2, "\(failure)")
        #expect(failure.trace.count { $0.contains("the network heals") } == 1, "\(failure)")
        #expect(failure.trace.count { $0.contains("one and other are connected again") } == 1, "\(failure)")
    }
}

/// Loses an update if a second caller comes while the first one hops.
private actor HoppingCounter {
    private actor Journal { func note() {} }
    private let journal = Journal()
    private(set) var value = 0

    func count() async -> Int {
        let next = value + 1
        await journal.note()
        value = next
        return next
    }
}
