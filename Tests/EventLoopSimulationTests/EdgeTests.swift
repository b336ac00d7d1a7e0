// Rules: what a stranger may try neither crashes nor hangs the test process.

import EventLoop
import EventLoopSimulation
import EventLoopTestSupport
import EventLoopTesting
import Synchronization
import Testing

#if canImport(Glibc)
import Glibc
#endif

private actor Room {
    func crash(_ process: SimulatedProcess) async {
        process.crash()
        await Task.yield()
    }
    func both() async -> Int {
        async let one = value()
        async let other = value()
        return await one + other
    }
    func value() -> Int { 1 }
}

/// Outlives every run, as a global actor does.
private let sharedRoom = Room()

@Suite(.whereSimulated, .bounded)
struct EdgeTests {
    @Test func `a simulation inside a simulation is refused`() async throws {
        try await simulate(seeds: 1...2) { _ in
            await #expect(throws: RunLoop.SourceError.self) { try await simulate(seeds: 1...1) { _ in } }
        }
    }

    @MainActor @Test func `the main actor may call simulate`() async throws {
        try await simulate(seeds: 1...20) { @MainActor _ in
            MainActor.assertIsolated()
            try await Task.sleep(for: .seconds(1))
            MainActor.assertIsolated()
        }
        MainActor.assertIsolated()
    }

    @Test(.runLoop(.manualTime)) func `a test on a loop of its own may call simulate`() async throws {
        let summary = try await simulate(seeds: 1...20) { world in try await world.loop.clock.sleep(for: .seconds(5)) }
        #expect(summary.runs == 20)
        #expect(RunLoop.ofTest.isCurrent)
    }

    @Test func `a process that crashes itself stops at its next suspension`() async throws {
        let later = Tally()
        try await simulate(seeds: 1...50) { world in
            let room = Room()
            let process = world.process("one") { process in
                defer { later.add() }
                await room.crash(process)
                later.add()
            }
            await #expect { try await process.waitForEnd() } throws: { $0 is SimulatedCrash }
            try await Task.sleep(for: .seconds(1))
        }
        #expect(later.count == 0)
    }

    // The thread's current task was still the crashed one, so the new task was of its process, and stopped at the next crash.
    @Test func `a task that a timer makes after a crashed task was resumed belongs to no process`() async throws {
        try await simulate(seeds: 1...20) { world in
            let ended = Tally()
            let one = world.process("one") { _ in try await Task.sleep(for: .seconds(2)) }
            let other = world.process("other") { _ in try await Task.sleep(for: .seconds(60)) }
            try await Task.sleep(for: .seconds(1))
            one.crash()
            world.loop.perform(after: .seconds(2)) {
                Task {
                    try await Task.sleep(for: .seconds(2))
                    ended.add()
                }
            }
            try await Task.sleep(for: .seconds(3))
            other.crash()
            try await Task.sleep(for: .seconds(3))
            try #require(ended.count == 1)
        }
    }

    @Test func `tasks that are left over do nothing after the end`() async throws {
        let late = Tally()
        try await simulate(seeds: 1...50) { world in
            Task {
                try await world.loop.clock.sleep(for: .seconds(1))
                late.add()
            }
            Task.detached {
                defer { late.add() }
                try await Task.sleep(for: .seconds(1))
            }
            _ = await Room().both()
        }
        #expect(late.count == 0)
    }

    // Its job was lost with the run, so the next run was a deadlock.
    @Test func `an actor that outlives a run serves the next one`() async throws {
        // After some of these steps, the task is in the queue of the actor.
        for steps in 0..<6 {
            try await simulate(seeds: 1...1, strategy: .firstComeFirstServed) { _ in
                Task { await sharedRoom.value() }
                for _ in 0..<steps { await Task.yield() }
            }
            try await simulate(seeds: 1...1) { _ in
                let value = await sharedRoom.value()
                try #require(value == 1)
            }
        }
    }

    @Test func `a deinit at the end of a run has the run's time, and the task that it makes never runs`() async throws {
        let late = Tally()
        let ages = Mutex<[Duration]>([])
        try await simulate(seeds: 1...50) { world in
            let start = ContinuousClock.now
            let canary = Canary {
                ages.withLock { $0.append(ContinuousClock.now - start) }
                Task { late.add() }
            }
            world.loop.perform(after: .seconds(3_600)) { canary.touch() }
            try await Task.sleep(for: .seconds(1))
        }
        let all = ages.withLock { $0 }
        #expect(all == [Duration](repeating: .seconds(1), count: 50))
        #expect(late.count == 0)
    }

    @Test func `a deinit at the end of a run may resume a task that is outside`() async throws {
        let (seeds, continuation) = AsyncStream.makeStream(of: UInt64.self)
        let outside = Task { await seeds.first { _ in true } }
        try await simulate(seeds: 7...7) { world in
            let seed = world.seed
            let canary = Canary { continuation.yield(seed) }
            world.loop.perform(after: .seconds(3_600)) { canary.touch() }
        }
        let seed = await outside.value
        #expect(seed == 7)
    }

    @Test func `a task outside that runs resume goes on outside, to its end`() async throws {
        let (seeds, continuation) = AsyncStream.makeStream(of: UInt64.self)
        let outside = Task { await seeds.reduce(into: [UInt64]()) { $0.append($1) } }
        try await simulate(seeds: 1...20) { world in
            await Task.yield()
            continuation.yield(world.seed)
            await Task.yield()
        }
        continuation.finish()
        let all = await outside.value
        #expect(all == Array(1...20))
    }

    @Test func `code that waits for another thread in a loop ends the run`() async throws {
        let failure = try await #require(throws: SimulationFailure.self) { try await simulate(seeds: 1...1) { _ in spin() } }
        #expect(failure.kind == .escape)
        #expect(failure.message.contains("pthread_cond_wait") || failure.message.contains("usleep"))
    }

    // Its digest and its choices were lost, so two runs that differed passed for one.
    @Test func `a run that waits for another thread in a loop is compared with its repetition, which is the only one`() async throws {
        let runs = Tally()
        let failure = try await #require(throws: SimulationFailure.self) {
            try await simulate(seeds: 1...1, strategy: .random) { _ in
                runs.add()
                for _ in 0..<20 { Task { await Task.yield() } }
                for _ in 0..<10 { await Task.yield() }
                spin()
            }
        }
        #expect(failure.kind == .escape)
        #expect(failure.schedule.hasSuffix(":1:random"))
        #expect(runs.count == 2)
        let different = try await #require(throws: SimulationFailure.self) {
            try await simulate(seeds: 1...1) { _ in
                runs.add()
                for _ in 0..<runs.count { await Task.yield() }
                spin()
            }
        }
        #expect(different.kind == .notDeterministic)
    }

    @Test func `a deinit at the end of a run that waits for another thread has the run's time, and its task never runs`() async throws {
        let late = Tally()
        let ages = Mutex<[Duration]>([])
        await #expect(throws: SimulationFailure.self) {
            try await simulate(seeds: 1...1) { world in
                let start = ContinuousClock.now
                keepCanary(in: world) {
                    ages.withLock { $0.append(ContinuousClock.now - start) }
                    Task { late.add() }
                }
                spin()
            }
        }
        let all = ages.withLock { $0 }
        #expect(!all.isEmpty && all.allSatisfy { $0 == .zero })
        #expect(late.count == 0)
    }

    @Test func `many tasks, and async lets in actors, keep their numbers`() async throws {
        let summaries = Mutex<[SimulationSummary]>([])
        for _ in 0..<3 {
            let summary = try await simulate(seeds: 7...9) { _ in
                let room = Room()
                await withTaskGroup(of: Int.self) { group in
                    for _ in 0..<2_000 { group.addTask { await room.both() } }
                    let sum = await group.reduce(0, +)
                    #expect(sum == 4_000)
                }
            }
            summaries.withLock { $0.append(summary) }
        }
        let all = summaries.withLock { Set($0) }
        #expect(all.count == 1)
    }
}

/// Only a claim of the world has the canary, so a body that never returns does not keep it.
private func keepCanary(in world: SimulatedWorld, _ onRelease: @escaping @Sendable () -> Void) {
    let canary = Canary(onRelease)
    world.always("the canary lives") {
        canary.touch()
        return true
    }
}

private func spin() {
    while true { usleep(1) }  // load: an escape
}
