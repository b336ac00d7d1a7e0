// The code of docs/simulation.md, compiled. The first test of the page fails, as the page says, so it is not run; PageTests run the same race.

import EventLoopSimulation
import EventLoopStreams
import Testing

@Suite(.whereSimulated, .disabled("the page shows how it fails"), .timeLimit(.minutes(5)))
struct DocumentedRace {
    actor Audit {
        var lines = 0
        func log() { lines += 1 }
    }

    actor Account {
        var balance = 100
        let audit = Audit()

        func withdraw(_ amount: Int) async -> Bool {
            guard balance >= amount else { return false }
            await audit.log()
            balance -= amount
            return true
        }
    }

    @Test func `two withdrawals at once`() async {
        let account = Account()
        async let first = account.withdraw(80)
        async let second = account.withdraw(80)
        _ = await (first, second)
        let balance = await account.balance
        #expect(balance >= 0)
    }

    @Test func `an account is never overdrawn`() async throws {
        try await simulate { world in
            let account = Account()
            async let first = account.withdraw(80)
            async let second = account.withdraw(80)
            _ = await (first, second)
            let balance = await account.balance
            #expect(balance >= 0)
        }
    }
}

@Suite(.whereSimulated, .timeLimit(.minutes(5)))
struct DocumentedSimulation {
    actor Account {
        var balance = 100
        let audit = DocumentedRace.Audit()

        func withdraw(_ amount: Int) async -> Bool {
            guard balance >= amount else { return false }
            await audit.log()
            guard balance >= amount else { return false }
            balance -= amount
            return true
        }
    }

    @Test func `the mended account of the page is never overdrawn`() async throws {
        try await simulate { world in
            let account = Account()
            async let first = account.withdraw(80)
            async let second = account.withdraw(80)
            _ = await (first, second)
            let balance = await account.balance
            #expect(balance >= 0)
        }
    }

    @Test(.simulated(seeds: 1...200)) func `an hour passes at once`() async throws {
        let start = ContinuousClock.now
        try await Task.sleep(for: .seconds(3_600))
        #expect(ContinuousClock.now - start == .seconds(3_600))
        #expect((1...200).contains(SimulatedWorld.ofTest.seed))
    }

    @Test func `the processes of the page exchange a line`() async throws {
        try await simulate { world in
            world.process("server") { server in
                try world.network.listen(server, port: 80) { stream in
                    do { for try await line in stream.lines() { try await stream.write(line + "\n") } } catch {}
                }
            }
            let client = world.process("client") { client in
                let stream = try await world.network.connect(from: client, to: "server", port: 80)
                try await stream.write("hello\n")
                let answer = try await stream.read(exactly: 6)
                #expect(answer == Array("hello\n".utf8))
            }
            try await client.waitForEnd()
        }
    }

    @Test func `the client of the page gets its answer, although the server crashes`() async throws {
        try await simulate { world in
            let server = world.process("server") { server in
                try world.network.listen(server, port: 80) { stream in
                    do { for try await line in stream.lines() { try await stream.write(line + "\n") } } catch {}
                }
            }
            let client = world.process("client") { client in
                let answer = try await askUntilAnswered("hello", from: client, in: world)
                #expect(answer == "hello")
            }
            try await Task.sleep(for: .microseconds(world.random(in: 0...3_000)))
            server.crash()
            try await Task.sleep(for: .seconds(1))
            server.restart()
            try await client.waitForEnd()
        }
    }
}

/// Asks until an answer arrives.
func askUntilAnswered(_ question: String, from client: SimulatedProcess, in world: SimulatedWorld) async throws -> String {
    while true {
        do {
            let stream = try await world.network.connect(from: client, to: "server", port: 80)
            defer { stream.close() }
            try await stream.write(question + "\n")
            if let answer = try await stream.readLine() { return answer }
        } catch {
            // The server has crashed (ECONNRESET), or does not listen yet (ECONNREFUSED).
        }
        try await Task.sleep(for: .milliseconds(100))
    }
}
