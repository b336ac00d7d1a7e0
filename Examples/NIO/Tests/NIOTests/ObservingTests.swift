// Rules proved here (docs/from-nio.md, semantics 19.17): a recording has one span for each pass of NIO, and the watchdog reports a channel
// handler that takes long. A loop that nobody observes has no part in this.

import CPlatform
import EventLoop
import EventLoopObserving
import Glibc
import NIOCore
import NIOPosix
import TestSupport
import Testing

@testable import EventLoopNIO

/// What the kernel lists for a set: each number, with the events and the word that the owner of the set has for it.
private func entries(of set: Int32) throws -> [Substring] {
    let list = open("/proc/self/fdinfo/\(set)", O_RDONLY)
    try #require(list >= 0)
    defer { close(list) }
    return drain(list).split(separator: "\n").filter { $0.hasPrefix("tfd:") }
}

/// Whether an object of this process calls epoll_wait where it can be seen. A sanitizer replaces the call.
private let canSeePasses = !isUnderThreadSanitizer

@Suite(.bounded, .enabled(if: canSeePasses, "ThreadSanitizer replaces NIO's calls")) struct ObservingTests {
    @Test func `a recording has one span for each pass of NIO, with the steps inside`() async throws {
        try await withGroup { group in
            let host = try await NIOHost.start(on: group.next())
            host.runLoop.startRecording()
            // The loop learns of the recording in a step; passes are recorded from the next one on.
            try await host.runLoop.performAsync {}
            // After a wait.
            try await host.eventLoop.scheduleTask(in: .milliseconds(20)) {}.futureResult.get()
            for _ in 1...11 {
                try await host.eventLoop.submit { _ = usleep(1_000) }.get()
                try await host.runLoop.performAsync {}
            }
            let events = try #require(host.runLoop.stopRecording()).events
            let passes = events.filter { $0.kind == .hostedLibrary }
            #expect(!passes.isEmpty)
            #expect(passes.allSatisfy { $0.label == "NIO" && $0.depth == 0 })
            // What was submitted in the first ten calls, of which one pass may serve several.
            #expect(passes.reduce(.zero) { $0 + $1.duration } >= .milliseconds(10))
            // Passes follow one another.
            for (one, next) in zip(passes, passes.dropFirst()) { #expect(one.start.advanced(by: one.duration) <= next.start) }
            // A step is inside a pass. That of the last one may not be over.
            let performs = events.filter { $0.kind == .perform }.dropFirst().dropLast()
            #expect(performs.count >= 9)
            for perform in performs {
                #expect(passes.contains { $0.start <= perform.start && perform.start <= $0.start.advanced(by: $0.duration) })
            }
            await host.end()
        }
    }

    private static func isInHandler(_ stall: RunLoop.Watchdog.Stall) -> Bool {
        stall.label == "NIO" && stall.backtrace.contains { $0.contains("SlowHandler") }
    }

    @Test func `the watchdog reports a channel handler that takes long, with its function`() async throws {
        let stalls = Locked<[RunLoop.Watchdog.Stall]>([])
        let watchdog = RunLoop.Watchdog(threshold: .milliseconds(20)) { stall in stalls.withLock { $0.append(stall) } }
        try await withGroup { group in
            let host = try await NIOHost.start(on: group.next())
            watchdog.watch(host.runLoop)
            try await host.runLoop.performAsync {}
            try await host.eventLoop.submit {}.get()
            var ends: [Int32] = [-1, -1]
            try #require(socketpair(AF_UNIX, Int32(SOCK_STREAM.rawValue), 0, &ends) == 0)
            let (end, far) = (ends[0], ends[1])
            let slow = SlowHandler { stalls.withLock { $0.count { $0.label == "NIO" } } }
            let channel = try await ClientBootstrap(group: host.eventLoop).channelInitializer { channel in
                channel.eventLoop.makeCompletedFuture { try channel.pipeline.syncOperations.addHandler(slow) }
            }.withConnectedSocket(end).get()
            // On a busy machine, a pass may be reported before it is in the handler, or the thread may get no processor in time to answer.
            try await suspendUntil("a report has the handler's function") {
                let calls = slow.calls.value
                try #require(write(far, "x", 1) == 1)
                try await suspendUntil("the handler returns") { slow.calls.value > calls }
                return stalls.withLock { $0.contains(where: Self.isInHandler) }
            }
            let stall = try #require(stalls.withLock { $0.first(where: Self.isInHandler) })
            #expect(stall.kind == .hostedLibrary && stall.loop === host.runLoop && stall.duration >= .milliseconds(20))
            // An idle event loop is not watched at work.
            try await channel.close()
            close(far)
            await host.end()
        }
        watchdog.invalidate()
    }

    /// While the loop of the host is observed, passes are looked for in NIO's set. In a process of its own: other tests count descriptors.
    @Test func `the set that has a descriptor is found while other threads make and close sets`() async {
        await #expect(processExitsWith: .success) {
            // The other threads have lower numbers, which are looked at first.
            let first = (1...8).map { _ in cplatform_make_outer_set() }
            let (set, number) = (cplatform_make_outer_set(), cplatform_make_outer_set())
            for descriptor in first { close(descriptor) }
            try #require(cplatform_add_inner_set(set, number) == 0)
            let isOver = Box(false)
            let others = (1...8).map { _ in
                plainThread {
                    while !isOver.value { close(cplatform_make_outer_set()) }  // ends: below
                }
            }
            for _ in 1...3_000 { #expect(epollSet(of: number) == .found(set)) }
            isOver.value = true
            for other in others { try other.join() }
        }
    }

    /// NIO does not close its set on exec, so a program may have a set that lists the numbers of the program before.
    @Test func `an inherited set that lists the number of a host for another file is not the host's, and looking changes no set`() async {
        await #expect(processExitsWith: .success) {
            let (inherited, set, file) = (cplatform_make_outer_set(), cplatform_make_outer_set(), cplatform_make_outer_set())
            let number = fcntl(file, F_DUPFD_CLOEXEC, 3)
            try #require(cplatform_add_inner_set(inherited, number) == 0)
            // The set goes on listing the number, because the file is open.
            try #require(cplatform_redirect(number, cplatform_make_endless()) == 0)
            #expect(epollSet(of: number) == .none)
            try #require(cplatform_add_inner_set(set, number) == 0)
            let before = try [inherited, set].map(entries)
            #expect(before.allSatisfy { $0.count == 1 })
            #expect(epollSet(of: number) == .found(set))
            #expect(try [inherited, set].map(entries) == before)
        }
    }

    enum WayToEnd: CaseIterable {
        case task
        /// The callout is in no run of the loop.
        case cancelOfSource
        /// NIO has the end, the start and a step among the tasks of one turn.
        case beforeTheNextHost
    }

    @Test(arguments: WayToEnd.allCases)
    func `a pass in which the run loop ends its host is recorded, and so are those of the next host`(way: WayToEnd) async throws {
        try await withGroup { group in
            let host = try await NIOHost.start(on: group.next())
            let (loop, eventLoop) = (host.runLoop, host.eventLoop)
            let ended = Box(RunLoop.Instant.now)
            let end = { @Sendable in
                await host.end()
                ended.value = .now
            }
            let source = RunLoop.CustomSource(cancel: { _, _ in Task.immediate { await end() } }, perform: {})
            if way == .cancelOfSource { loop.add(source) }
            loop.startRecording()
            try await loop.performAsync {}
            try await eventLoop.scheduleTask(in: .milliseconds(1)) {}.futureResult.get()
            let hosts = Locked<[NIOHost]>([])
            let startNext = { @Sendable in
                let next = try await NIOHost.start(on: eventLoop)
                hosts.withLock { $0.append(next) }
            }
            switch way {
            case .task:
                await Task(executorPreference: loop) { await end() }.value
                try await startNext()
            case .cancelOfSource:
                try await eventLoop.submit { source.invalidate() }.get()
                try await startNext()
            case .beforeTheNextHost:
                try await eventLoop.submit {
                    Task(executorPreference: loop) { await end() }
                    let start = Task.immediate { try await startNext() }
                    eventLoop.execute { Task(executorPreference: loop) {} }
                    return start
                }.get().value
            }
            let started = RunLoop.Instant.now
            try await loop.performAsync {}
            // The first wait ends with a pass, which is over when the second one has ended.
            for _ in 1...2 { try await eventLoop.scheduleTask(in: .milliseconds(1)) {}.futureResult.get() }
            let passes = try #require(loop.stopRecording()).events.filter { $0.kind == .hostedLibrary }
            #expect(passes.allSatisfy { $0.label == "NIO" && $0.depth == 0 })
            #expect(passes.contains { $0.start < ended.value && ended.value < $0.start.advanced(by: $0.duration) })
            #expect(passes.contains { started < $0.start })
            for (one, other) in zip(passes, passes.dropFirst()) { #expect(one.start.advanced(by: one.duration) <= other.start) }
            for next in hosts.withLock({ $0 }) { await next.end() }
        }
    }

    @Test func `a recording may begin and end many times, also after another host of the same loop has ended`() async throws {
        try await withGroup(2) { group in
            for _ in 1...5 {
                let hosts = try await NIOHost.start(onAllOf: group)
                for host in hosts {
                    // The event loop may serve all of it in the pass in which the recording begins, which it had begun before.
                    try await suspendUntil("a pass is recorded") {
                        host.runLoop.startRecording()
                        try await host.runLoop.performAsync {}
                        for _ in 1...2 { try await host.eventLoop.submit {}.get() }
                        return try #require(host.runLoop.stopRecording()).events.contains { $0.kind == .hostedLibrary }
                    }
                    // One host ends while its loop is recorded.
                    if host === hosts[0] { host.runLoop.startRecording() }
                    await host.end()
                    _ = host.runLoop.stopRecording()
                }
            }
        }
    }
}

private final class SlowHandler: ChannelInboundHandler, Sendable {
    typealias InboundIn = ByteBuffer
    private let reports: @Sendable () -> Int
    let calls = Box(0)
    init(_ reports: @escaping @Sendable () -> Int) { self.reports = reports }

    /// Computes until there is a report. A pass that has been reported already has no other one, so a call ends after a while.
    func channelRead(context: ChannelHandlerContext, data: NIOAny) {
        let (before, end) = (reports(), ContinuousClock.now + .seconds(1))
        while reports() == before && ContinuousClock.now < end {}  // ends: with the report, or at the end of the time
        calls.increment()
    }
}
