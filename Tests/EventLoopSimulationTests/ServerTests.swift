// Rules: `StreamServer`, over the simulated network, keeps its limit, serves each connection once, and ends as its shutdown promises.

import EventLoop
import EventLoopSimulation
import EventLoopStreams
import Synchronization
import Testing

#if canImport(Glibc)
import Glibc
#endif

private let seeds = sample(short: 60, long: 100_000)

/// A server that returns each line, what it has done, and a client of it.
private final class Echo: Sendable {
    let begun = Tally()
    let ended = Tally()
    private let made = Mutex<StreamServer?>(nil)

    var server: StreamServer? { made.withLock { $0 } }

    func serve(_ world: SimulatedWorld, _ process: SimulatedProcess, limit: Int? = nil) throws {
        let server = try world.network.server(process, port: 1, connectionLimit: limit) { [begun, ended] stream in
            begun.add()
            do { for try await line in stream.lines() { try await stream.write(line + "\n") } } catch {}
            ended.add()
        }
        made.withLock { $0 = server }
    }

    /// The answers. Nil if nobody listens.
    static func ask(_ world: SimulatedWorld, _ client: SimulatedProcess, _ lines: [String]) async throws -> [String]? {
        let stream: ByteStream
        do {
            stream = try await world.network.connect(from: client, to: "server", port: 1)
        } catch RunLoop.SourceError.system(_, ECONNREFUSED) {
            return nil
        }
        defer { stream.close() }
        var answers: [String] = []
        for line in lines {
            try await stream.write(line + "\n")
            guard let answer = try await stream.readLine() else { break }
            answers.append(answer)
        }
        return answers
    }
}

@Suite(.whereSimulated, .timeLimit(.minutes(60)))
struct ServerTests {
    @Test func `a server keeps its limit, and a shutdown resets nobody who has connected`() async throws {
        let (answered, refused) = (Tally(), Tally())
        try await simulate(seeds: seeds) { world in
            let echo = Echo()
            let limit = world.random(in: 1...3)
            world.always("at most \(limit) connections") { echo.server?.connections ?? 0 <= limit }
            world.process("server") { try echo.serve(world, $0, limit: limit) }
            try await world.eventually("the server listens") { echo.server != nil }
            let clients = (0..<4).map { number in
                world.process("client \(number)") { client in
                    try await Task.sleep(for: .milliseconds(world.random(in: 0...3)))
                    let lines = ["\(number) a", "\(number) b"]
                    let answers = try await Echo.ask(world, client, lines)
                    try #require(answers == nil || answers == lines)
                    if answers == nil { refused.add() } else { answered.add() }
                }
            }
            try await Task.sleep(for: .milliseconds(world.random(in: 0...5)))
            let server = try #require(echo.server)
            await server.shutdown(grace: .seconds(60))
            try #require(server.connections == 0 && !server.isAccepting)
            try #require(echo.begun.count == echo.ended.count)
            for client in clients { try await client.waitForEnd() }
            let end = await server.waitForEnd()
            try #require(end == .closed)
        }
        #expect(answered.count > 0 && refused.count > 0)
    }

    @Test func `when the grace is over, every task of a connection is cancelled and its stream closed`() async throws {
        try await simulate(seeds: seeds) { world in
            let echo = Echo()
            world.process("server") { try echo.serve(world, $0) }
            try await world.eventually("the server listens") { echo.server != nil }
            let clients = (0..<3).map { number in
                world.process("client \(number)") { client in
                    let stream = try await world.network.connect(from: client, to: "server", port: 1)
                    try await stream.write("hello\n")
                    // It never ends its stream, and reads what comes.
                    do { while try await stream.read() != nil {} } catch RunLoop.SourceError.system("read", ECONNRESET) {}
                }
            }
            try await Task.sleep(for: .milliseconds(world.random(in: 5...20)))
            let server = try #require(echo.server)
            let start = world.loop.clock.now
            async let first: Void = server.shutdown(grace: .seconds(60))
            async let second: Void = server.shutdown(grace: .seconds(2))
            async let end = server.waitForEnd()
            _ = await (first, second)
            let seen = await end
            try #require(seen == .closed)
            let taken = world.loop.clock.now - start
            try #require(taken >= .seconds(2) && taken < .seconds(3), "\(taken)")
            try #require(server.connections == 0 && echo.begun.count == 3 && echo.ended.count == 3)
            for client in clients { try await client.waitForEnd() }
        }
    }

    @Test func `a cancelled shutdown ends the connections at once`() async throws {
        try await simulate(seeds: seeds) { world in
            let echo = Echo()
            world.process("server") { try echo.serve(world, $0) }
            try await world.eventually("the server listens") { echo.server != nil }
            let client = world.process("client") { client in
                let stream = try await world.network.connect(from: client, to: "server", port: 1)
                do { while try await stream.read() != nil {} } catch {}
            }
            let server = try #require(echo.server)
            let start = world.loop.clock.now
            let shutdown = Task { await server.shutdown(grace: .seconds(60)) }
            try await Task.sleep(for: .milliseconds(world.random(in: 0...5)))
            shutdown.cancel()
            await shutdown.value
            try #require(world.loop.clock.now - start < .seconds(1))
            try #require(server.connections == 0 && echo.begun.count == echo.ended.count)
            try? await client.waitForEnd()
        }
    }

    @Test func `clients that try again are served by a server that crashes and starts again`() async throws {
        try await simulate(seeds: seeds) { world in
            let echo = Echo()
            world.network.resetChance = 0.02
            let server = world.process("server") { try echo.serve(world, $0, limit: 2) }
            let clients = (0..<3).map { number in
                world.process("client \(number)") { client in
                    while true {
                        let answers = try? await world.loop.withTimeout(.seconds(1)) {
                            try await Echo.ask(world, client, ["\(number) a", "\(number) b"])
                        }
                        // Bytes of another connection would be a prefix of nothing.
                        if let answers { try #require(answers == Array(["\(number) a", "\(number) b"].prefix(answers.count))) }
                        if answers?.count == 2 { return }
                        try await Task.sleep(for: .milliseconds(5))
                    }
                }
            }
            for _ in 0..<world.random(in: 1...3) {
                try await Task.sleep(for: .milliseconds(world.random(in: 1...8)))
                server.restart()
            }
            for client in clients { try await client.waitForEnd() }
        }
    }

    @Test func `messages with their length arrive whole, in order, and in front of a reset`() async throws {
        try await simulate(seeds: seeds) { world in
            world.network.resetChance = world.seed % 2 == 0 ? 0.1 : 0
            let received = Mutex<[[UInt8]]>([])
            let isReset = Tally()
            let messages = (0..<6).map { number in
                [UInt8](repeating: UInt8(number), count: world.random(in: 0...400))
            }
            world.process("server") { server in
                try world.network.listen(server, port: 1) { stream in
                    do {
                        for try await frame in stream.frames(LengthPrefixFraming(lengthBytes: 2)) { received.withLock { $0.append(frame) } }
                    } catch { isReset.add() }
                }
            }
            let client = world.process("client") { client in
                let stream = try await world.network.connect(from: client, to: "server", port: 1)
                var bytes = messages.flatMap { [UInt8($0.count >> 8), UInt8($0.count & 0xff)] + $0 }
                while !bytes.isEmpty {
                    let count = min(bytes.count, world.random(in: 1...200))
                    try await stream.write(Array(bytes.prefix(count)))
                    bytes.removeFirst(count)
                }
                try await stream.finishWriting()
                stream.closeAfterWriting()
            }
            try? await client.waitForEnd()
            try await Task.sleep(for: .seconds(10))
            let all = received.withLock { $0 }
            try #require(all == Array(messages.prefix(all.count)))
            try #require(all.count == messages.count || isReset.count > 0 || world.network.resetChance > 0)
        }
    }

    @Test func `the keys of the example with an actor on each loop are never lost`() async throws {
        try await simulate(seeds: seeds) { world in
            world.process("server") { server in
                let store = Store(on: [world.loop, world.loop])
                try world.network.listen(server, port: 1) { await store.serve($0) }
            }
            let clients = (0..<3).map { number in
                world.process("client \(number)") { client in
                    let stream = try await connectWhenListening(world, client)
                    var lines = stream.lines().makeAsyncIterator()
                    _ = try await lines.next()
                    func ask(_ line: String) async throws -> String? {
                        try await stream.write(line + "\n")
                        return try await lines.next()
                    }
                    var seen = 0
                    for value in 1...4 {
                        let answer = try await ask("SET key\(number) \(value)")
                        try #require(answer == "OK")
                        let own = try await ask("GET key\(number)")
                        try #require(own == "\(value)")
                        // Values of others only grow.
                        let other = try await ask("GET key\((number + 1) % 3)").flatMap { Int($0) } ?? 0
                        try #require(other >= seen)
                        seen = other
                    }
                    stream.close()
                }
            }
            for client in clients { try await client.waitForEnd() }
        }
    }

    @Test func `a log shipper delivers each line once, in order, whatever crashes`() async throws {
        try await simulate(seeds: seeds) { try await LogShipper().run($0) }
    }

    @Test(arguments: LogShipper.Bug.allCases) func `a bug of a log shipper is found`(bug: LogShipper.Bug) async throws {
        let failure = try await #require(throws: SimulationFailure.self) {
            try await simulate(seeds: 1...1_000) { try await LogShipper(bug: bug).run($0) }
        }
        #expect(failure.kind == .threw || failure.kind == .invariant, "\(failure)")
    }
}

/// A client may be earlier than its server.
private func connectWhenListening(_ world: SimulatedWorld, _ client: SimulatedProcess) async throws -> ByteStream {
    while true {
        do {
            return try await world.network.connect(from: client, to: "server", port: 1)
        } catch RunLoop.SourceError.system(_, ECONNREFUSED) {
            try await Task.sleep(for: .milliseconds(1))
        }
    }
}
