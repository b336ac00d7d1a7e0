// Rules: what `simulate` promises of time, chance, order, processes, the network and its reports.

import EventLoop
import EventLoopSimulation
import EventLoopStreams
import EventLoopTestSupport
import Synchronization
import Testing

#if canImport(Glibc)
import Glibc
#endif

@TaskLocal private var marker = 0

@MainActor private final class Model {
    var count = 0
    func bump() async {
        count += 1
        await Task.yield()
        count += 1
    }
}

private func failureOf(
    seeds: ClosedRange<UInt64> = 1...20, stepLimit: Int = 20_000, _ body: @escaping @Sendable (SimulatedWorld) async throws -> Void
) async throws -> SimulationFailure {
    try await #require(throws: SimulationFailure.self) { try await simulate(seeds: seeds, stepLimit: stepLimit, body) }
}

@Suite(.whereSimulated, .bounded)
struct SimulationRuleTests {
    // MARK: Time and chance

    @Test func `sleeps of every clock take virtual time only`() async throws {
        let start = ContinuousClock.now
        let summary = try await simulate(seeds: 1...10) { world in
            let (continuous, suspending, loop) = (ContinuousClock.now, SuspendingClock.now, world.loop.clock.now)
            try await Task.sleep(for: .seconds(3_600))
            try await Task.sleep(for: .seconds(60), clock: .suspending)
            try await Task.sleep(nanoseconds: 1_000_000_000)
            try await world.loop.clock.sleep(for: .seconds(9))
            try #require(ContinuousClock.now - continuous == .seconds(3_670))
            try #require(SuspendingClock.now - suspending == .seconds(3_670))
            try #require(world.loop.clock.now - loop == .seconds(3_670))
        }
        #expect(summary.runs == 10)
        #expect(summary.steps > 10)
        #expect(summary.escapes.isEmpty)
        #expect(ContinuousClock.now - start < .seconds(60))
    }

    @Test func `the wall time of the world's loop is that of the program`() async throws {
        try await simulate(seeds: 1...10) { world in
            try await Task.sleep(for: .milliseconds(world.random(in: 0...3_000)))
            let loop = world.loop
            try #require(loop.wallTime == RunLoop.WallTime.now)
            try await Task.sleep(for: .milliseconds(1_500))
            try #require(loop.wallTime == RunLoop.WallTime.now)
        }
    }

    /// The unit of the processor's clock cannot be measured while the system's clock stands still.
    @Test func `the statistics of the world's loop can be read`() async throws {
        try await simulate(seeds: 1...3) { world in
            let loop = world.loop
            try await loop.clock.sleep(for: .milliseconds(1))
            try #require(loop.statistics.timersFired >= 1)
        }
    }

    @Test func `the same seed draws the same numbers, and another seed others`() async throws {
        let drawn = Mutex<[[Int]]>([])
        for seed in [3, 3, 4] as [UInt64] {
            try await simulate(seeds: seed...seed) { world in
                let numbers = [Int.random(in: 0...1_000_000), world.random(in: 0...1_000_000), Int(world.seed)]
                drawn.withLock { $0.append(numbers) }
            }
        }
        let all = drawn.withLock { $0 }
        #expect(all[0] == all[1])
        #expect(all[0] != all[2])
        #expect(all[2][2] == 4)
    }

    @Test func `tasks of every kind run in the simulation`() async throws {
        try await $marker.withValue(7) {
            try await simulate(seeds: 1...50) { world in
                try #require(marker == 7)
                let model = await MainActor.run { Model() }
                await withTaskGroup(of: Void.self) { group in
                    for index in 0..<5 {
                        group.addTask {
                            try? await Task.sleep(for: .seconds(index))
                            await model.bump()
                        }
                    }
                }
                let count = await model.count
                try #require(count == 10)
                let detached = Task.detached { await Task.yield() }
                await detached.value
                let (stream, continuation) = AsyncStream.makeStream(of: Int.self)
                let reader = Task(priority: .low) { await stream.reduce(0, +) }
                for number in 1...4 { continuation.yield(number) }
                continuation.finish()
                let sum = await reader.value
                try #require(sum == 10)
                try await withTaskExecutorPreference(world.loop) {
                    try await Task.sleep(for: .seconds(1))
                    try #require(world.loop.isCurrent)
                }
            }
        }
    }

    @Test(arguments: 1...4) func `simulations run side by side`(number: Int) async throws {
        try await $marker.withValue(number) {
            try await simulate(seeds: 1...100) { _ in
                let start = ContinuousClock.now
                try await Task.sleep(for: .seconds(number))
                if ContinuousClock.now - start != .seconds(number) || marker != number { throw Wrong("\(ContinuousClock.now - start)") }
            }
        }
        let start = ContinuousClock.now
        try await Task.sleep(for: .milliseconds(10))
        #expect(ContinuousClock.now - start >= .milliseconds(10))
    }

    @Test func `ready tasks do not starve a timer that is due`() async throws {
        try await simulate(seeds: 1...20, stepLimit: 1_000) { world in
            let fired = Tally()
            world.loop.perform(after: .zero) { fired.add() }
            await Task {
                while fired.count == 0 { await Task.yield() }  // load: in virtual time
            }.value
        }
    }

    // MARK: Failures

    @Test func `an error of the body fails the run`() async throws {
        let failure = try await failureOf { world in if world.seed == 3 { throw Wrong("of the body") } }
        #expect(failure.kind == .threw)
        #expect(failure.seed == 3)
        #expect(failure.message.contains("of the body"))
        #expect(failure.file == "EventLoopSimulationTests/SimulationRuleTests.swift")
        #expect(failure.schedule.hasPrefix("EventLoopSimulationTests/SimulationRuleTests.swift:"))
        #expect(failure.description.contains("EVENTLOOP_SIMULATION="))
    }

    @Test func `a deadlock names each task, what it waits for, and where`() async throws {
        let failure = try await failureOf { world in
            world.process("teller") { _ in
                await Task(name: "forgotten") { await waitForEver() }.value
            }
            try await Task.sleep(for: .seconds(1))
            await waitForEver()
        }
        #expect(failure.kind == .deadlock)
        for part in [
            "task \"body\"", "task \"forgotten\" of process \"teller\"", "a continuation that nobody has resumed",
            "the value of task \"forgotten\"",
            isDebugBuild ? "waitForEver" : "in ",
        ] { #expect(failure.message.contains(part), "\(failure.message)") }
    }

    @Test func `a livelock fails with the number of steps`() async throws {
        let failure = try await failureOf(stepLimit: 500) { _ in while true { await Task.yield() } }  // load: in virtual time
        #expect(failure.kind == .tooManySteps)
        #expect(failure.message.contains("500 steps"))
    }

    @Test func `a claim is checked after every step`() async throws {
        let failure = try await failureOf { world in
            let number = Tally()
            world.always("less than three") { number.count < 3 }
            for _ in 0..<5 {
                number.add()
                await Task.yield()
            }
        }
        #expect(failure.kind == .invariant)
        #expect(failure.message.contains("less than three"))
        let late = try await failureOf { world in try? await world.eventually("never", within: .seconds(5)) { false } }
        #expect(late.kind == .invariant)
        #expect(late.message.contains("never"))
        try await simulate(seeds: 1...20) { world in
            let number = Tally()
            Task {
                try? await Task.sleep(for: .seconds(3))
                number.add()
            }
            try await world.eventually("one") { number.count == 1 }
        }
    }

    @Test func `a claim that a task of a crashed process waits for fails nothing`() async throws {
        try await simulate(seeds: 1...20) { world in
            let process = world.process("one") { _ in try await world.eventually("never", within: .seconds(2)) { false } }
            try await Task.sleep(for: .seconds(1))
            process.crash()
            try await Task.sleep(for: .seconds(5))
        }
    }

    @Test func `what leaves the simulation is named with its caller`() async throws {
        let failure = try await failureOf { _ in sleepForReal() }
        #expect(failure.kind == .escape)
        #expect(failure.message.contains("usleep"))
        if isDebugBuild { #expect(failure.message.contains("sleepForReal")) }
        let summary = try await simulate(seeds: 1...3, allowsEscapes: true) { _ in sleepForReal() }
        #expect(summary.escapes == ["usleep": 3])
    }

    @Test func `a program that differs between runs is not deterministic`() async throws {
        let runs = Tally()
        let failure = try await failureOf { _ in
            runs.add()
            for _ in 0..<runs.count { await Task.yield() }
            throw Wrong("always")
        }
        #expect(failure.kind == .notDeterministic)
    }

    @Test func `an expectation that fails is recorded once`() async throws {
        let failure = Mutex<SimulationFailure?>(nil)
        let records = Tally()
        try await withKnownIssue {
            do {
                try await simulate(seeds: 1...20) { world in
                    await Task.yield()
                    #expect(world.seed != 2)
                }
            } catch let thrown as SimulationFailure {
                failure.withLock { $0 = thrown }
            }
        } matching: { _ in
            records.add()
            return true
        }
        let found = try #require(failure.withLock { $0 })
        #expect(found.kind == .issueRecorded)
        #expect(found.seed == 2)
        #expect(records.count == 1)
    }

    @Test func `a cancelled caller ends the simulation`() async throws {
        let task = Task {
            try await simulate(seeds: 1...1) { _ in while true { await Task.yield() } }  // load: in virtual time
        }
        task.cancel()
        await #expect(throws: CancellationError.self) { try await task.value }
    }

    // MARK: Schedules

    @Test(arguments: ["", "nonsense", "a:b:c:d", "File.swift:3:7", "File.swift:3:7:choices-1", "File.swift:3:7:choices-5.1.2-4.1.2"])
    func `a schedule that cannot be read is refused`(text: String) async throws {
        let failure = try await #require(throws: SimulationFailure.self) { try await simulate(replaying: text) { _ in } }
        #expect(failure.kind == .notDeterministic)
    }

    @Test func `a schedule that does not fit the program is refused`() async throws {
        let found = try await failureOf(seeds: 1...100) { world in try await checkThenAct.run(world, false) }
        let refused = try await #require(throws: SimulationFailure.self) {
            try await simulate(replaying: "File.swift:3:7:choices-40.1.2") { _ in }
        }
        #expect(refused.kind == .notDeterministic)
        #expect(found.kind == .threw)
    }

    // MARK: Processes

    @Test func `nothing of a crashed process runs on, and what it has synced stays`() async throws {
        let late = Tally()
        let (kept, lost) = (Tally(), Tally())
        try await simulate(seeds: 1...100) { world in
            let process = world.process("one") { process in
                defer { if process.stored(named: "a") == [9] { late.add() } }
                if process.stored(named: "a") != nil { return }
                process.store([1], named: "a")
                await process.sync()
                process.store([2], named: "a")
                try await Task.sleep(for: .seconds(2))
                late.add()
            }
            try await Task.sleep(for: .seconds(1))
            try #require(process.isRunning)
            process.crash()
            try #require(!process.isRunning)
            await #expect { try await process.waitForEnd() } throws: { ($0 as? SimulatedCrash)?.process == "one" }
            let bytes = process.stored(named: "a")
            try #require(bytes == [1] || bytes == [2])
            if bytes == [2] { kept.add() } else { lost.add() }
            process.restart()
            try await process.waitForEnd()
            try await Task.sleep(for: .seconds(5))
            try #require(!process.isRunning)
        }
        #expect(late.count == 0)
        #expect(kept.count > 10)
        #expect(lost.count > 10)
    }

    // Found by seed 30 of the replicated log.
    @Test func `a sync that ends late takes back nothing that a later one has made safe`() async throws {
        try await simulate(seeds: 1...200) { world in
            let last = Mutex<[UInt8]?>(nil)
            let process = world.process("one") { process in
                async let first: Void = {
                    process.store([1], named: "a")
                    await process.sync()
                }()
                async let second: Void = {
                    process.store([2], named: "a")
                    await process.sync()
                }()
                _ = await (first, second)
                let stored = process.stored(named: "a")
                last.withLock { $0 = stored }
            }
            try await process.waitForEnd()
            process.crash()
            try #require(process.stored(named: "a") == last.withLock { $0 })
        }
    }

    @Test func `an error of a process is a failure unless somebody waits for its end`() async throws {
        let failure = try await failureOf { world in
            world.process("one") { _ in throw Wrong("of the process") }
            try await Task.sleep(for: .seconds(1))
        }
        #expect(failure.kind == .threw)
        #expect(failure.message.contains("of the process"))
        try await simulate(seeds: 1...20) { world in
            let process = world.process("one") { _ in throw Wrong("of the process") }
            await #expect(throws: Wrong.self) { try await process.waitForEnd() }
        }
    }

    @Test func `an error that somebody has learned of is no failure after a restart`() async throws {
        try await simulate(seeds: 1...20) { world in
            let starts = Tally()
            let process = world.process("one") { _ in
                starts.add()
                if starts.count == 1 { throw Wrong("of the first start") }
            }
            await #expect(throws: Wrong.self) { try await process.waitForEnd() }
            process.restart()
            try await Task.sleep(for: .seconds(1))
            try #require(starts.count == 2)
        }
    }

    @Test func `an error that nobody has learned of is a failure after a restart that succeeds`() async throws {
        let failure = try await failureOf { world in
            let starts = Tally()
            let process = world.process("one") { _ in
                starts.add()
                if starts.count == 1 { throw Wrong("of the first start") }
            }
            try await Task.sleep(for: .seconds(1))
            process.restart()
            try await process.waitForEnd()
            try await Task.sleep(for: .seconds(1))
            try await process.waitForEnd()
        }
        #expect(failure.kind == .threw)
        #expect(failure.message.contains("of the first start"))
    }

    @Test func `a task of a crashed process learns of no error`() async throws {
        let failure = try await failureOf { world in
            let process = world.process("one") { _ in
                try await Task.sleep(for: .seconds(2))
                throw Wrong("of the process")
            }
            let waiter = world.process("waiter") { _ in try await process.waitForEnd() }
            try await Task.sleep(for: .seconds(1))
            waiter.crash()
            try await Task.sleep(for: .seconds(2))
        }
        #expect(failure.kind == .threw)
        #expect(failure.message.contains("process \"one\" threw of the process"))
    }

    @Test func `somebody who waits for a process that crashes hears of it`() async throws {
        try await simulate(seeds: 1...20) { world in
            let process = world.process("one") { _ in try await Task.sleep(for: .seconds(60)) }
            Task {
                try await Task.sleep(for: .seconds(1))
                process.crash()
            }
            await #expect { try await process.waitForEnd() } throws: { ($0 as? SimulatedCrash)?.process == "one" }
        }
    }

    // MARK: The network

    @Test func `a connection takes latency, and keeps the order`() async throws {
        try await simulate(seeds: 1...50) { world in
            let server = world.process("server") { server in
                try world.network.listen(server, port: 80) { stream in
                    do { for try await line in stream.lines() { try await stream.write(line + "\n") } } catch {}
                }
            }
            let client = world.process("client") { client in
                world.network.latency = .milliseconds(10)...(.milliseconds(20))
                let start = ContinuousClock.now
                let stream = try await world.network.connect(from: client, to: "server", port: 80)
                let connected = ContinuousClock.now - start
                try #require(connected >= .milliseconds(20) && connected <= .milliseconds(40))
                for number in 0..<20 { try await stream.write("\(number)\n") }
                var lines: [String] = []
                for try await line in stream.lines() {
                    lines.append(line)
                    if lines.count == 20 { break }
                }
                try #require(lines == (0..<20).map { "\($0)" })
                try #require(ContinuousClock.now - start >= .milliseconds(40))
                stream.close()
            }
            try await client.waitForEnd()
            try #require(server.isRunning)
        }
    }

    @Test func `nobody listens, a partition, and a crash each have their error`() async throws {
        try await simulate(seeds: 1...50) { world in
            let server = world.process("server") { server in
                try world.network.listen(server, port: 80) { stream in _ = try? await stream.read() }
            }
            let client = world.process("client") { client in
                await #expect(throws: RunLoop.SourceError.system(operation: "connect nobody:1", errno: ECONNREFUSED)) {
                    try await world.network.connect(from: client, to: "nobody", port: 1)
                }
                world.network.partition(client, from: server)
                let start = ContinuousClock.now
                await #expect(throws: RunLoop.SourceError.system(operation: "connect server:80", errno: ETIMEDOUT)) {
                    try await world.network.connect(from: client, to: "server", port: 80, timeout: .seconds(3))
                }
                try #require(ContinuousClock.now - start == .seconds(3))
                world.network.heal()
                let stream = try await world.network.connect(from: client, to: "server", port: 80)
                server.crash()
                await #expect(throws: RunLoop.SourceError.system(operation: "read", errno: ECONNRESET)) { _ = try await stream.read() }
            }
            try await client.waitForEnd()
        }
    }

    @Test func `who writes to an end that was closed before its process crashed is reset`() async throws {
        try await simulate(seeds: 1...20) { world in
            let resets = Tally()
            world.process("server") { server in
                try world.network.listen(server, port: 80) { stream in
                    do {
                        while try await stream.read() != nil {}
                        try await Task.sleep(for: .seconds(1))
                        // More than fits into the connection.
                        for _ in 0..<64 { try await stream.write([UInt8](repeating: 1, count: 16_384)) }
                    } catch RunLoop.SourceError.system("write", ECONNRESET) {
                        resets.add()
                    } catch {}
                }
            }
            let client = world.process("client") { client in
                let stream = try await world.network.connect(from: client, to: "server", port: 80)
                stream.close()
            }
            try await Task.sleep(for: .milliseconds(500))
            client.crash()
            try await Task.sleep(for: .seconds(5))
            try #require(resets.count == 1)
        }
    }

    @Test func `a reset by chance reaches the other end when a partition has healed`() async throws {
        try await simulate(seeds: 1...50) { world in
            let resets = Tally()
            let server = world.process("server") { server in
                try world.network.listen(server, port: 80) { stream in
                    do { _ = try await stream.read() } catch RunLoop.SourceError.system("read", ECONNRESET) { resets.add() } catch {}
                }
            }
            let client = world.process("client") { client in
                let stream = try await world.network.connect(from: client, to: "server", port: 80)
                world.network.partition(client, from: server)
                world.network.resetChance = 1
                await #expect(throws: RunLoop.SourceError.system(operation: "write", errno: ECONNRESET)) {
                    try await stream.write("hello")
                    try await stream.finishWriting()
                }
                try await Task.sleep(for: .seconds(5))
                try #require(resets.count == 0)
                world.network.heal()
                try await Task.sleep(for: .seconds(1))
                try #require(resets.count == 1)
            }
            try await client.waitForEnd()
        }
    }

    @Test func `bytes that a partition delays arrive when it has healed`() async throws {
        try await simulate(seeds: 1...50) { world in
            let server = world.process("server") { server in
                try world.network.listen(server, port: 80) { stream in
                    if let bytes = try? await stream.read() { try? await stream.write(bytes) }
                }
            }
            let client = world.process("client") { client in
                let stream = try await world.network.connect(from: client, to: "server", port: 80)
                world.network.partition(client, from: server, for: .seconds(10))
                let start = ContinuousClock.now
                try await stream.write("hello")
                let answer = try await stream.read(exactly: 5)
                try #require(answer == Array("hello".utf8))
                try #require(ContinuousClock.now - start >= .seconds(10))
            }
            try await client.waitForEnd()
        }
    }
}

private func waitForEver() async { await withUnsafeContinuation { (_: UnsafeContinuation<Void, Never>) in } }
private func sleepForReal() { usleep(10) }
