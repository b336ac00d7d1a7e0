// Rules proved here (NIOHost.swift, StepChannel.swift):
// - NIO's work, timers, jobs, tasks and sources of the run loop share the thread; an idle loop does not wake NIO.
// - start: EALREADY, ENOTSUP, ESHUTDOWN; all or none. end: twice, concurrently, on the loop itself, on NIO's executor, after the shutdown.
// - No descriptor is left, none is inherited by exec, and none of somebody else's is touched.

import EventLoop
import Glibc
import NIOCore
import NIOEmbedded
import NIOPosix
import Synchronization
import TestSupport
import Testing

@testable import EventLoopNIO

func withGroup<R>(_ threads: Int = 1, _ body: (MultiThreadedEventLoopGroup) async throws -> R) async throws -> R {
    let group = MultiThreadedEventLoopGroup(numberOfThreads: threads)
    do {
        let result = try await body(group)
        try await group.shutdownGracefully()
        return result
    } catch {
        try? await group.shutdownGracefully()
        throw error
    }
}

func code(of body: () async throws -> Void) async -> Int32? {
    do { try await body() } catch RunLoop.SourceError.system(_, let errno) { return errno } catch { return -1 }
    return nil
}

private actor OnLoop {
    private let loop: RunLoop
    nonisolated var unownedExecutor: UnownedSerialExecutor { loop.asUnownedSerialExecutor() }
    private(set) var count = 0
    init(_ loop: RunLoop) { self.loop = loop }
    func increment() -> Bool {
        count += 1
        return loop.isCurrent
    }
    func end(_ host: NIOHost, before: @Sendable () -> Void = {}, after: @Sendable () -> Void = {}) async -> Bool {
        before()
        await host.end()
        after()
        return host.eventLoop.inEventLoop
    }
}

/// On NIO's own executor.
private actor OnEventLoop {
    private let eventLoop: any NIOCore.EventLoop
    nonisolated var unownedExecutor: UnownedSerialExecutor { eventLoop.executor.asUnownedSerialExecutor() }
    init(_ eventLoop: any NIOCore.EventLoop) { self.eventLoop = eventLoop }
    func end<Value: Sendable>(_ host: NIOHost, before: @Sendable () -> Void, after: @Sendable () -> Value) async -> Value {
        before()
        await host.end()
        return after()
    }
}

/// Makes the loop step once, so that the run loop is idle afterwards.
private func settle(_ host: NIOHost) async throws {
    try await host.runLoop.performAsync {}
    try await host.eventLoop.submit {}.get()
}

@Suite(.bounded) struct NIOHostTests {
    @Test func `NIO, performs, timers, tasks and actors share the thread`() async throws {
        try await withGroup { group in
            let host = try await NIOHost.start(on: group.next())
            #expect(try await host.runLoop.performAsync { host.eventLoop.inEventLoop })
            #expect(try await host.eventLoop.submit { host.runLoop.isCurrent }.get())
            #expect(await Task(executorPreference: host.runLoop) { host.eventLoop.inEventLoop }.value)
            let actor = OnLoop(host.runLoop)
            for _ in 0..<100 { #expect(await actor.increment()) }
            await withCheckedContinuation { continuation in
                host.runLoop.perform(after: .milliseconds(5)) { continuation.resume() }
            }
            await host.end()
        }
    }

    @Test func `10,000 posts of four threads are all performed`() async throws {
        try await withGroup { group in
            let host = try await NIOHost.start(on: group.next())
            let count = Locked(0)
            await withTaskGroup(of: Void.self) { tasks in
                for _ in 0..<4 {
                    tasks.addTask {
                        for _ in 0..<2_500 { host.runLoop.perform { count.withLock { $0 += 1 } } }
                    }
                }
            }
            try await host.runLoop.performAsync {}
            #expect(count.withLock { $0 } == 10_000)
            await host.end()
        }
    }

    @Test func `an idle run loop does not wake NIO`() async throws {
        let ticks = Ticks()
        let group = MultiThreadedEventLoopGroup(numberOfThreads: 1, metricsDelegate: ticks)
        let host = try await NIOHost.start(on: group.next())
        try await settle(host)
        // Deadlines in the far future wake nobody.
        host.runLoop.perform(after: .seconds(3_600)) {}
        try await settle(host)
        let (before, passes) = (ticks.count.load(ordering: .relaxed), host.runLoop.statistics.passes)
        try await Task.sleep(for: .milliseconds(300))
        #expect(ticks.count.load(ordering: .relaxed) - before <= 2)
        #expect(host.runLoop.statistics.passes - passes <= 1)
        await host.end()
        try await group.shutdownGracefully()
    }

    @Test func `an event loop that has a host throws EALREADY`() async throws {
        try await withGroup { group in
            let host = try await NIOHost.start(on: group.next())
            #expect(await code { _ = try await NIOHost.start(on: group.next(), mode: "other") } == EALREADY)
            await host.end()
            let again = try await NIOHost.start(on: group.next())
            await again.end()
        }
    }

    @Test func `event loops that are not NIO's own throw ENOTSUP`() async throws {
        #expect(await code { _ = try await NIOHost.start(on: NIOAsyncTestingEventLoop()) } == ENOTSUP)
    }

    @Test func `an event loop that is shut down throws ESHUTDOWN, and end returns`() async throws {
        let group = MultiThreadedEventLoopGroup(numberOfThreads: 1)
        let eventLoop = group.next()
        let host = try await NIOHost.start(on: eventLoop)
        try await group.shutdownGracefully()
        await host.end()
        #expect(await code { _ = try await NIOHost.start(on: eventLoop) } == ESHUTDOWN)
    }

    @Test func `start while the group shuts down answers`() async throws {
        for _ in 0..<30 {
            let group = MultiThreadedEventLoopGroup(numberOfThreads: 1)
            let eventLoop = group.next()
            async let end: Void = group.shutdownGracefully()
            let errno = await code {
                let host = try await NIOHost.start(on: eventLoop)
                await host.end()
            }
            #expect(errno == nil || errno == ESHUTDOWN)
            try await end
        }
    }

    @Test func `start on all of a group is all or none`() async throws {
        try await withGroup(3) { group in
            let loops = Array(group.makeIterator())
            let last = try await NIOHost.start(on: loops[2])
            #expect(await code { _ = try await NIOHost.start(onAllOf: group) } == EALREADY)
            await last.end()
            let hosts = try await NIOHost.start(onAllOf: group)
            #expect(hosts.count == 3)
            for host in hosts { #expect(try await host.runLoop.performAsync { host.eventLoop.inEventLoop }) }
            for host in hosts { await host.end() }
        }
    }

    @Test func `end returns in a task, and in an actor, on the loop itself`() async throws {
        try await withGroup { group in
            let eventLoop = group.next()
            let host = try await NIOHost.start(on: eventLoop)
            let isThere = await Task(executorPreference: host.runLoop) {
                await host.end()
                return eventLoop.inEventLoop
            }.value
            #expect(isThere)
            await host.end()
            let second = try await NIOHost.start(on: eventLoop)
            let value = Locked<Bool?>(nil)
            let actor = OnLoop(second.runLoop)
            // The actor's answer is read from NIO's thread: nobody runs the loop when it has ended.
            try await confirmed {
                Task {
                    let there = await actor.end(second); value.withLock { $0 = there }
                }
                return { value.withLock { $0 } != nil }
            }
            #expect(value.withLock { $0 } == true)
        }
    }

    @Test func `end returns in a task, and in an actor, on the loop itself while every thread of Swift's pool is blocked`() async {
        await #expect(processExitsWith: .success) {
            let hosts = try await NIOHost.start(onAllOf: MultiThreadedEventLoopGroup(numberOfThreads: 2))
            let (blocked, mayGoOn, hasEnded) = (Box(0), Gate(), [Gate(), Gate()])
            // The test's own task blocks the last thread.
            let others = System.coreCount - 1
            let waitForOthers = { @Sendable in
                while blocked.value < others { sched_yield() }  // ends: below
            }
            Task(executorPreference: hosts[0].runLoop) {
                waitForOthers()
                await hosts[0].end()
                hasEnded[0].open()
            }
            let isInActor = Gate()
            Task {
                let before = { @Sendable in
                    isInActor.open()
                    waitForOthers()
                }
                _ = await OnLoop(hosts[1].runLoop).end(hosts[1], before: before, after: { hasEnded[1].open() })
            }
            try await isInActor.waitInTask()
            for _ in 0...others {
                Task.detached {
                    blocked.increment()
                    mayGoOn.wait()
                }
            }
            for gate in hasEnded { gate.wait() }
            mayGoOn.open()
        }
    }

    @Test func `end in a nested run ends the host at once, and the run goes on`() async throws {
        try await withGroup { group in
            let host = try await NIOHost.start(on: group.next())
            let loop = host.runLoop
            let depths = Locked<[Int]>([])
            try await loop.performAsync {
                Task(executorPreference: loop) {
                    await host.end()
                    depths.withLock { $0.append(loop.runDepth) }
                    loop.perform {
                        depths.withLock { $0.append(loop.runDepth) }
                        loop.stop()
                    }
                }
                let timer = RunLoop.Timer(after: .seconds(60)) { _ in }
                loop.add(timer)
                #expect(loop.run(for: .seconds(60)) == .stopped)
                timer.invalidate()
                depths.withLock { $0.append(loop.runDepth) }
            }
            #expect(depths.withLock { $0 } == [2, 2, 1])
            // The thread is NIO's, and may have another host.
            let second = try await NIOHost.start(on: host.eventLoop)
            try await second.runLoop.performAsync {}
            await second.end()
        }
    }

    @Test func `end on NIO's own executor returns before NIO goes on`() async throws {
        try await withGroup { group in
            let host = try await NIOHost.start(on: group.next())
            let hasGoneOn = Box(false)
            let before = { @Sendable in host.eventLoop.execute { hasGoneOn.value = true } }
            #expect(await OnEventLoop(host.eventLoop).end(host, before: before, after: { !hasGoneOn.value }))
        }
    }

    @Test func `end returns although the limit of descriptors is below the host's number by then`() async {
        await #expect(processExitsWith: .success) {
            let fillers = (1...200).map { _ in open("/dev/null", O_RDONLY | O_CLOEXEC) }
            let host = try await NIOHost.start(on: MultiThreadedEventLoopGroup(numberOfThreads: 1).next())
            for filler in fillers { close(filler) }
            var limit = rlimit(rlim_cur: 100, rlim_max: 1_000)
            try #require(setrlimit(__rlimit_resource_t(RLIMIT_NOFILE.rawValue), &limit) == 0)
            await host.end()
            limit.rlim_cur = limit.rlim_max
            try #require(setrlimit(__rlimit_resource_t(RLIMIT_NOFILE.rawValue), &limit) == 0)
            let next = try await NIOHost.start(on: host.eventLoop)
            try await next.runLoop.performAsync {}
            await next.end()
        }
    }

    @Test func `a thread of a run loop that is stopped ends its host`() async throws {
        let thread = try RunLoopThread(name: "NIO")
        let host = Box<NIOHost?>(nil)
        thread.runLoop.perform { try? NIOHost.run(mode: "nio") { host.value = $0 } }
        try await suspendUntil("it has a host") { host.value != nil }
        thread.stop()
        try await suspendUntil("it has none") { host.value?.channel.isOver == true }
        try await host.value?.eventLoop.shutdownGracefully()
        await thread.join()
    }

    @Test func `end from many tasks at once, with posts in between, returns in all`() async throws {
        try await withGroup { group in
            for _ in 0..<50 {
                let host = try await NIOHost.start(on: group.next())
                await withTaskGroup(of: Void.self) { tasks in
                    for _ in 0..<4 { tasks.addTask { await host.end() } }
                    tasks.addTask { host.runLoop.perform {} }
                }
            }
        }
    }

    @Test func `no descriptor is left, and each is closed on exec`() async throws {
        try await withGroup { group in
            let before = kernelObjects("[event").count
            for _ in 0..<200 {
                let host = try await NIOHost.start(on: group.next())
                await host.end()
            }
            let host = try await NIOHost.start(on: group.next())
            for number in kernelObjects("[eventfd]") {
                let flags = fcntl(number, F_GETFD)
                // Another test may have closed it.
                #expect(flags < 0 || flags & FD_CLOEXEC != 0)
            }
            await host.end()
            // Tests beside this one have some, too.
            #expect(kernelObjects("[event").count < before + 100)
        }
    }

    @Test func `groups that are shut down without an end leave no descriptor`() async throws {
        let before = kernelObjects("[event").count
        for _ in 0..<100 { try await withGroup { _ = try await NIOHost.start(on: $0.next()) } }
        #expect(kernelObjects("[event").count < before + 50)
    }

    @Test func `run serves until the event loop is shut down, and throws what the body throws`() async throws {
        struct Oops: Error {}
        try await Task.detached {
            try onFreshThread { loop in
                let calls = Locked(0)
                try NIOHost.run { host in
                    #expect(host.runLoop.isCurrent && host.runLoop === RunLoop.current)
                    host.runLoop.perform(after: .milliseconds(5)) {
                        calls.withLock { $0 += 1 }
                        host.eventLoop.shutdownGracefully { _ in }
                    }
                }
                #expect(calls.withLock { $0 } == 1)
                #expect(throws: Oops.self) { try NIOHost.run { _ in throw Oops() } }
                // The run loop is the thread's again.
                #expect(loop.run(mode: .default, for: .zero) != .stopped)
            }
        }.value
    }

    @Test func `a busy run loop and busy channels take turns`() async throws {
        try await withGroup { group in
            let host = try await NIOHost.start(on: group.next())
            let (stop, performed) = (Box(false), Box(0))
            let busy = Busy(host.runLoop) {
                performed.increment()
                return !stop.value
            }
            busy.post()
            for _ in 0..<200 { try await host.eventLoop.submit {}.get() }
            #expect(performed.value > 0)
            stop.value = true
            try await host.runLoop.performAsync {}
            await host.end()
        }
    }

    @Test func `a nested run in a handler delays NIO, and NIO goes on afterwards`() async throws {
        try await withGroup { group in
            let host = try await NIOHost.start(on: group.next())
            let order = Locked<[String]>([])
            try await host.runLoop.performAsync {
                host.eventLoop.execute { order.withLock { $0.append("NIO") } }
                host.runLoop.perform(after: .milliseconds(5), inModes: ["nested"]) { order.withLock { $0.append("nested") } }
                _ = RunLoop.current.run(mode: "nested", for: .milliseconds(50))
            }
            try await host.eventLoop.submit {}.get()
            #expect(order.withLock { $0 } == ["nested", "NIO"])
            await host.end()
        }
    }
}

private final class Busy: Sendable {
    let loop: RunLoop
    let again: @Sendable () -> Bool
    init(_ loop: RunLoop, _ again: @escaping @Sendable () -> Bool) { (self.loop, self.again) = (loop, again) }
    func post() { loop.perform { [self] in if again() { post() } } }
}

private final class Ticks: NIOEventLoopMetricsDelegate {
    let count = Atomic<Int>(0)
    func processedTick(info: NIOEventLoopTickInfo) { count.wrappingAdd(1, ordering: .relaxed) }
}

/// The descriptors of this process whose file is such an anonymous inode.
private func kernelObjects(_ name: String) -> [Int32] {
    (0..<4_096).filter { number in
        var target: [CChar] = Array(repeating: 0, count: 64)
        guard readlink("/proc/self/fd/\(number)", &target, 63) > 0 else { return false }
        return String(decoding: target.prefix { $0 != 0 }.map { UInt8(bitPattern: $0) }, as: UTF8.self).contains(name)
    }
}

private func confirmed(_ body: () -> () -> Bool) async throws {
    let holds = body()
    for _ in 0..<6_000 {
        if holds() { return }
        try await Task.sleep(for: .milliseconds(10))
    }
    Issue.record("it did not come")
}
