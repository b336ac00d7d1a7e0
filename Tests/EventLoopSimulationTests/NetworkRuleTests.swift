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
