// Rules: when `simulate` returns, its thread has released the body and what the body captured. So the trait may pass a closure that must not
// escape, even if a run failed and left tasks that never run on. In a run, what a task has returned lives as long as the program holds it, or to
// the end of the step.

import EventLoop
import EventLoopSimulation
import EventLoopStreams
import EventLoopTestSupport
import Synchronization
import Testing

#if canImport(Glibc)
import Glibc
#endif

private final class Probe: Sendable {}

/// No async function may ask for it.
private func loopOfThread() -> WeakReference<RunLoop> { WeakReference(RunLoop.current) }

private actor Maker {
    private var count = 0

    func makeTask() -> Task<Probe, Never> {
        Task {
            count += 1
            return Probe()
        }
    }

    /// All of them run in one step of the actor's queue, and `last` behind them.
    func makeTasks(_ number: Int, released: @escaping @Sendable (Int) -> Void, last: @escaping @Sendable () -> Void = {}) {
        for index in 0..<number {
            Task {
                count += 1
                return Canary { released(index) }
            }
        }
        Task {
            count += 1
            last()
        }
    }
}

@Suite(.whereSimulated, .bounded)
struct LifetimeTests {
    /// Runs a body many times on several tasks at once: the more of them wait for a processor, the later a thread ends.
    private func underLoad(_ body: @escaping @Sendable () async throws -> Void) async throws {
        try await withThrowingTaskGroup(of: Void.self) { group in
            for _ in 0..<8 {
                group.addTask { for _ in 0..<(part == 1 ? 5_000 : 60) { try await body() } }
            }
            try await group.waitForAll()
        }
    }

    @Test func `nothing holds the body when simulate has returned`() async throws {
        let late = Tally()
        try await underLoad {
            var probe = Probe()
            try await simulate(seeds: 1...1) { [probe] world in
                world.process("one") { _ in withExtendedLifetime(probe) {} }
                try await world.loop.clock.sleep(for: .seconds(1))
                withExtendedLifetime(probe) {}
            }
            if !isKnownUniquelyReferenced(&probe) { late.add() }
        }
        #expect(late.count == 0)
    }

    @Test func `a run that fails holds nothing that its tasks have released`() async throws {
        let late = Tally()
        try await underLoad {
            var probe = Probe()
            _ = try await #require(throws: SimulationFailure.self) {
                try await simulate(seeds: 1...1) { [probe] _ in
                    await Task.yield()
                    withExtendedLifetime(probe) {}
                    throw Wrong("always")
                }
            }
            if !isKnownUniquelyReferenced(&probe) { late.add() }
        }
        #expect(late.count == 0)
    }

    @Test func `a claim that has come true keeps nothing alive`() async throws {
        try await simulate(seeds: 1...5) { world in
            let released = Tally()
            Task { try await Task.sleep(for: .seconds(2)) }
            try await waitForASecond(in: world) { released.add() }
            await Task.yield()
            try #require(released.count == 1)
        }
    }

    /// Only the claim has the canary when it returns.
    private func waitForASecond(in world: SimulatedWorld, _ onRelease: @escaping @Sendable () -> Void) async throws {
        let (start, canary) = (ContinuousClock.now, Canary(onRelease))
        try await world.eventually("a second has passed") {
            canary.touch()
            return ContinuousClock.now - start >= .seconds(1)
        }
    }

    @Test func `a partition that never heals keeps nothing alive`() async throws {
        var probe = Probe()
        try await simulate(seeds: 1...1) { [probe] world in
            let server = world.process("server") { _ in withExtendedLifetime(probe) {} }
            let client = world.process("client") { client in
                world.network.partition(client, from: server)
                await #expect(throws: RunLoop.SourceError.system(operation: "connect server:1", errno: ETIMEDOUT)) {
                    try await world.network.connect(from: client, to: "server", port: 1, timeout: .seconds(3))
                }
            }
            try await client.waitForEnd()
        }
        let isReleased = isKnownUniquelyReferenced(&probe)
        #expect(isReleased)
    }

    @Test func `what a task has returned is released with its handle, wherever the task ended`() async throws {
        try await simulate(seeds: 1...20) { world in
            let ofActor = WeakReference(await Maker().makeTask().value)
            let ofLoop = WeakReference(await Task(executorPreference: world.loop) { Probe() }.value)
            for _ in 0..<2 { await Task.yield() }
            try #require(ofActor.value == nil)
            try #require(ofLoop.value == nil)
        }
    }

    @Test func `what the tasks of one step have returned is released in the order of the tasks`() async throws {
        try await simulate(seeds: 1...20) { _ in
            let released = Mutex<[Int]>([])
            await Maker().makeTasks(20) { index in released.withLock { $0.append(index) } }
            try await Task.sleep(for: .seconds(1))
            let order = released.withLock { $0 }
            try #require(order == Array(0..<20))
        }
    }

    @Test func `the targets of performs that are left over are released in the order of the performs`() async throws {
        let released = Mutex<[Int]>([])
        try await simulate(seeds: 1...1) { world in
            for index in 0..<20 {
                world.loop.perform(after: .seconds(1), target: Canary { released.withLock { $0.append(index) } }) {}
            }
        }
        let order = released.withLock { $0 }
        #expect(order == Array(0..<20))
    }

    // Their step never ends, so the end of the run releases it: in the order of their addresses, before.
    @Test func `what tasks leave at the end of a run is released in the order of the tasks`() async throws {
        let released = Mutex<[Int]>([])
        await #expect(throws: SimulationFailure.self) {
            try await simulate(seeds: 1...1) { _ in
                await Maker().makeTasks(20) { index in
                    released.withLock { $0.append(index) }
                } last: {
                    while true { usleep(1) }  // load: an escape
                }
                try await Task.sleep(for: .seconds(1))
            }
        }
        // The run is repeated before it is reported.
        let order = released.withLock { $0 }
        #expect(order.count >= 20)
        #expect(order == order.indices.map { $0 % 20 })
    }

    @Test func `what an immediate task has returned is released with its handle`() async throws {
        try await simulate(seeds: 1...20) { _ in
            let result = WeakReference(await Task.immediate { Probe() }.value)
            await Task.yield()
            try #require(result.value == nil)
        }
    }

    // The table of tasks was swept by the call that made one task too many, perhaps under a lock of the program.
    @Test func `making a task releases nothing of the tasks that have ended`() async throws {
        let (early, released) = (Tally(), Tally())
        try await simulate(seeds: 1...5) { _ in
            let isMaking = Mutex(false)
            await Maker().makeTasks(600) { _ in
                released.add()
                if isMaking.withLock({ $0 }) { early.add() }
            } last: {
                isMaking.withLock { $0 = true }
                for _ in 0..<600 { Task {} }
                isMaking.withLock { $0 = false }
            }
            try await Task.sleep(for: .seconds(1))
        }
        #expect(early.count == 0)
        #expect(released.count == 5 * 600)
    }

    @Test func `a test with the trait may end, fail, and wait for ever`() async throws {
        let test = try #require(Test.current)
        let trait: SimulationTrait = .simulated(seeds: 1...2)
        try await underLoad {
            try await trait.provideScope(for: test, testCase: nil) { try await Task.sleep(for: .seconds(1)) }
            await #expect(throws: SimulationFailure.self) {
                try await trait.provideScope(for: test, testCase: nil) { throw Wrong("always") }
            }
            await #expect(throws: SimulationFailure.self) {
                try await trait.provideScope(for: test, testCase: nil) {
                    await withUnsafeContinuation { (_: UnsafeContinuation<Void, Never>) in }
                }
            }
        }
    }

    @Test func `an expectation that fails in a test with the trait is recorded once`() async throws {
        let test = try #require(Test.current)
        let trait: SimulationTrait = .simulated(seeds: 1...20)
        let records = Tally()
        try await withKnownIssue {
            let failure = try await #require(throws: SimulationFailure.self) {
                try await trait.provideScope(for: test, testCase: nil) {
                    await Task.yield()
                    #expect(SimulatedWorld.ofTest.seed != 2)
                    await Task.yield()
                }
            }
            #expect(failure.kind == .issueRecorded && failure.seed == 2)
        } matching: { _ in
            records.add()
            return true
        }
        #expect(records.count == 1)
    }

    // Each run had kept the wake-up descriptor of its loop. The limit of the process ended it after as many seeds.
    @Test func `a run leaves no descriptor open`() async throws {
        let before = openDescriptors()
        try await simulate(seeds: 1...500) { world in
            world.process("server") { server in
                try world.network.listen(server, port: 1) { stream in _ = try? await stream.read() }
            }
            let client = world.process("client") { client in
                try await Task.sleep(for: .seconds(1))
                _ = try await world.network.connect(from: client, to: "server", port: 1)
            }
            try await client.waitForEnd()
        }
        // Other tests of the process open some.
        #expect(openDescriptors() - before < 300)
    }

    @Test func `a loop that the program got from RunLoop-current ends before the world's loop begins`() async throws {
        try await simulate(seeds: 1...5) { world in
            let earlier = loopOfThread()
            try #require(earlier.value?.isValid == true)
            let loop = world.loop
            try #require(earlier.value?.isValid != true)
            try #require(loopOfThread().value === loop)
        }
    }

    @Test func `nothing holds what a loop from RunLoop-current held when simulate has returned`() async throws {
        let late = Tally()
        try await underLoad {
            var probe = Probe()
            try await simulate(seeds: 1...1) { [probe] _ in
                loopOfThread().value?.perform(after: .seconds(1)) { withExtendedLifetime(probe) {} }
            }
            if !isKnownUniquelyReferenced(&probe) { late.add() }
        }
        #expect(late.count == 0)
    }

    private func openDescriptors() -> Int { (0..<20_000).count { fcntl($0, F_GETFD) >= 0 } }

    @Test(.simulated(seeds: 1...20)) func `a test with the trait runs once for each seed, in virtual time`() async throws {
        let world = SimulatedWorld.ofTest
        let start = ContinuousClock.now
        try await Task.sleep(for: .seconds(1_000))
        #expect(ContinuousClock.now - start == .seconds(1_000))
        #expect((1...20).contains(world.seed))
    }
}
