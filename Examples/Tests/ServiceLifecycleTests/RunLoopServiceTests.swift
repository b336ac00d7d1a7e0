// Rules proved here (RunLoopService.swift):
// - A graceful shutdown drains the threads; a cancellation does not, also while they drain. `run()` returns when all have ended, without an
//   error.
// - Errors of `setup` and of the service manager are thrown, when the threads that were started have ended.
// - The end of a thread by other code ends the service.
// - No thread of Swift's pool is blocked.

import EventLoop
import EventLoopServiceLifecycle
import Logging
import ServiceLifecycle
import ServiceLifecycleTestKit
import TestSupport
import Testing

private struct Failure: Error, Equatable {}

/// A service whose threads write down what happens, and drain until their hold is released.
private final class Recorded: Sendable {
    let events = Box<[String]>([])
    let loops = Box<[RunLoop]>([])
    private let holds = Box<[RunLoopThread.Hold]>([])

    func service(count: Int = 1, holds: Bool = false, drainLimit: Duration = patience) -> RunLoopService {
        RunLoopService(
            count: count, name: "recorded", drainLimit: drainLimit,
            setup: { [self] loop in
                if holds { self.holds.change { $0.append(loop.holdThread()) } }
                loops.change { $0.append(loop) }
                add("setup")
                return loop
            },
            drain: { [self] _, loop in add(loop.isCurrent ? "drain" : "drain elsewhere") },
            teardown: { [self] _, loop in add(loop.isCurrent ? "teardown" : "teardown elsewhere") })
    }

    func add(_ event: String) { events.change { $0.append(event) } }
    func count(of event: String) -> Int { events.value.filter { $0 == event }.count }
    func releaseHolds() {
        let former = holds.change { holds in
            defer { holds = [] }
            return holds
        }
        for hold in former { hold.release() }
    }
    func untilEvents(_ event: String, _ count: Int = 1) async throws {
        try await suspendUntil("\(count) × \(event)") { self.count(of: event) >= count }
    }
}

@Suite(.bounded) struct RunLoopServiceTests {
    @Test(arguments: [1, 3])
    func `a graceful shutdown drains every thread, and run returns when all have ended`(count: Int) async throws {
        let recorded = Recorded()
        try await testGracefulShutdown { trigger in
            try await withThrowingTaskGroup(of: Void.self) { group in
                let service = recorded.service(count: count, holds: true)
                group.addTask {
                    try await service.run()
                    recorded.add("returned")
                }
                try await recorded.untilEvents("setup", count)
                #expect(try await recorded.loops.value[0].performAsync { 42 } == 42)
                trigger.triggerGracefulShutdown()
                try await recorded.untilEvents("drain", count)
                #expect(recorded.count(of: "teardown") == 0)
                // Work is accepted while it drains.
                #expect(try await recorded.loops.value[0].performAsync { 42 } == 42)
                recorded.releaseHolds()
                try await group.waitForAll()
            }
        }
        #expect(recorded.events.value.suffix(1) == ["returned"])
        #expect(recorded.count(of: "teardown") == count && recorded.events.value.count == 3 * count + 1)
        #expect(recorded.loops.value.allSatisfy { !$0.isValid })
    }

    @Test func `a cancellation ends the threads at once, and run returns quietly when they have ended`() async throws {
        let recorded = Recorded()
        let service = recorded.service(count: 2, holds: true)
        let task = Task { try await service.run() }
        try await recorded.untilEvents("setup", 2)
        task.cancel()
        try await task.value
        #expect(recorded.count(of: "teardown") == 2)
        #expect(recorded.loops.value.allSatisfy { !$0.isValid })
        recorded.releaseHolds()
    }

    @Test func `a service whose task is cancelled before it runs ends what it starts`() async throws {
        let recorded = Recorded()
        let service = recorded.service()
        let task = Task {
            withUnsafeCurrentTask { $0?.cancel() }
            try await service.run()
        }
        try await task.value
        #expect(recorded.count(of: "setup") == recorded.count(of: "teardown"))
    }

    @Test func `a cancellation while the threads drain ends the draining`() async throws {
        let recorded = Recorded()
        try await testGracefulShutdown { trigger in
            let service = recorded.service(count: 2, holds: true)
            // A child task: it has the trigger.
            try await withThrowingTaskGroup(of: Void.self) { group in
                group.addTask { try await service.run() }
                try await recorded.untilEvents("setup", 2)
                trigger.triggerGracefulShutdown()
                try await recorded.untilEvents("drain", 2)
                group.cancelAll()
                // The shutdown was graceful.
                try await group.waitForAll()
            }
        }
        #expect(recorded.count(of: "teardown") == 2)
        recorded.releaseHolds()
    }

    @Test func `an error of setup is thrown when the threads that were started have ended`() async throws {
        let recorded = Recorded()
        let service = RunLoopService(
            count: 3, name: "failing",
            setup: { _ in
                if recorded.count(of: "setup") == 2 { throw Failure() }
                recorded.add("setup")
            }, teardown: { _ in recorded.add("teardown") })
        await #expect(throws: Failure()) { try await service.run() }
        #expect(recorded.count(of: "setup") == 2 && recorded.count(of: "teardown") == 2)
    }

    @Test func `run returns when other code has ended the thread, and the other threads are ended`() async throws {
        let thread = try RunLoopThread(name: "single")
        let single = Task { try await RunLoopService(thread).run() }
        _ = try await thread.runLoop.performAsync {}
        thread.stop()
        try await single.value
        #expect(!thread.runLoop.isValid)

        let group = try RunLoopThreadGroup(count: 2)
        let several = Task { try await RunLoopService(group).run() }
        _ = await group.shutdown(timeout: .zero)
        try await several.value
        #expect(group.runLoops.allSatisfy { !$0.isValid })
    }

    @Test func `a group that runs already is ended by a graceful shutdown of its service group`() async throws {
        let threads = try RunLoopThreadGroup(count: 2, name: "given")
        var logger = Logger(label: "test")
        logger.logLevel = .critical
        let services = ServiceGroup(services: [RunLoopService(threads)], logger: logger)
        let task = Task { try await services.run() }
        try await suspendUntil("the service waits for the end of the loops") {
            threads.runLoops.allSatisfy { $0.debugDescription.contains("queued performs: 1") }
        }
        await services.triggerGracefulShutdown()
        try await task.value
        #expect(threads.runLoops.allSatisfy { !$0.isValid })
    }

    @Test func `a service on a task that prefers one of its own loops ends too`() async throws {
        let thread = try RunLoopThread(name: "preferred")
        try await testGracefulShutdown { trigger in
            try await withThrowingTaskGroup(of: Void.self) { group in
                group.addTask(executorPreference: thread.runLoop) { try await RunLoopService(thread).run() }
                try await suspendUntil("the service waits for the end of the loop") {
                    thread.runLoop.debugDescription.contains("queued performs: 1")
                }
                trigger.triggerGracefulShutdown()
                try await group.waitForAll()
            }
        }
        #expect(!thread.runLoop.isValid)
    }

    @Test func `many services that drain block no thread of the pool`() async throws {
        // Far more than the pool has threads.
        let all = (0..<32).map { _ in Recorded() }
        try await testGracefulShutdown { trigger in
            try await withThrowingTaskGroup(of: Void.self) { group in
                for recorded in all {
                    let service = recorded.service(holds: true)
                    group.addTask { try await service.run() }
                }
                for recorded in all { try await recorded.untilEvents("setup") }
                trigger.triggerGracefulShutdown()
                for recorded in all { try await recorded.untilEvents("drain") }
                // Tasks still run.
                for recorded in all { await Task.detached { recorded.releaseHolds() }.value }
                try await group.waitForAll()
            }
        }
        for recorded in all { #expect(recorded.count(of: "teardown") == 1) }
    }

    @Test func `a service that starts slowly blocks no thread of the pool`() async throws {
        let mayStart = Gate()
        let services = (0..<16).map { _ in RunLoopService(setup: { _ in mayStart.wait() }) }
        try await testGracefulShutdown { trigger in
            try await withThrowingTaskGroup(of: Void.self) { group in
                for service in services { group.addTask { try await service.run() } }
                for _ in 0..<16 { await Task.detached { await Task.yield() }.value }
                trigger.triggerGracefulShutdown()
                mayStart.open()
                try await group.waitForAll()
            }
        }
    }
}
