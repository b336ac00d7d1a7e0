// Rules: a call that leaves the simulation is named with its caller, and hangs nothing. A step that does not end is reported.

import CStreams
import EventLoop
import EventLoopSimulation
import EventLoopTestSupport
import Synchronization
import Testing

#if canImport(Glibc)
import Dispatch
import Glibc
#endif

#if os(Linux)
/// A call, and what makes it. The two descriptors are a pair of sockets and a pipe, without bytes.
private struct Call: Sendable, CustomTestStringConvertible {
    var testDescription: String
    /// A function of the program that makes the call.
    var caller: String
    var make: @Sendable (_ socket: Int32, _ pipe: Int32) -> Void

    init(_ name: String, from caller: String = "Call.all", _ make: @escaping @Sendable (Int32, Int32) -> Void) {
        (testDescription, self.caller, self.make) = (name, caller, make)
    }

    static let all = [
        Call("dispatch_async") { _, _ in DispatchQueue.global().async {} },
        Call("dispatch_after") { _, _ in DispatchQueue.global().asyncAfter(deadline: .now() + 1) {} },
        Call("dispatch_semaphore_wait") { _, _ in DispatchSemaphore(value: 0).wait() },
        Call("dispatch_sync") { _, _ in DispatchQueue(label: "one").sync {} },
        Call("pthread_create", from: "startThread") { _, _ in startThread() },
        Call("sleep") { _, _ in _ = sleep(1_000) },
        Call("usleep") { _, _ in usleep(1_000_000) },
        Call("nanosleep") { _, _ in
            var time = timespec(tv_sec: 1_000, tv_nsec: 0)
            nanosleep(&time, nil)
        },
        Call("poll") { socket, _ in
            var one = pollfd(fd: socket, events: Int16(POLLIN), revents: 0)
            poll(&one, 1, -1)
        },
        // The module Glibc lacks them.
        Call("epoll_wait") { _, _ in
            typealias Wait = @convention(c) (Int32, UnsafeMutableRawPointer?, Int32, Int32) -> Int32
            _ = unsafeBitCast(dlsym(nil, "epoll_wait"), to: Wait.self)(-1, nil, 1, -1)
        },
        Call("epoll_pwait2") { _, _ in
            typealias Wait = @convention(c) (Int32, UnsafeMutableRawPointer?, Int32, UnsafeRawPointer?, UnsafeRawPointer?) -> Int32
            _ = unsafeBitCast(dlsym(nil, "epoll_pwait2"), to: Wait.self)(-1, nil, 1, nil, nil)
        },
        Call("socket") { _, _ in close(socket(AF_UNIX, Int32(SOCK_STREAM.rawValue), 0)) },
        Call("recv") { socket, _ in
            var byte: UInt8 = 0
            recv(socket, &byte, 1, 0)
        },
        // By the number of the kernel's call.
        Call("recvfrom", from: "receive") { socket, _ in
            var byte: UInt8 = 0
            _ = cstreams_read(socket, Int32(CSTREAMS_SOCKET.rawValue), &byte, 1)
        },
        Call("sendto", from: "send_bytes") { socket, _ in _ = cstreams_write(socket, Int32(CSTREAMS_SOCKET.rawValue), "a", 1) },
        Call("read") { socket, _ in
            var byte: UInt8 = 0
            read(socket, &byte, 1)
        },
        Call("read") { _, pipe in
            var byte: UInt8 = 0
            read(pipe, &byte, 1)
        },
        Call("accept") { socket, _ in accept(socket, nil, nil) },
        Call("connect") { socket, _ in
            var address = sockaddr()
            connect(socket, &address, 0)
        },
        Call("getaddrinfo") { _, _ in
            var result: UnsafeMutablePointer<addrinfo>?
            getaddrinfo("localhost", nil, nil, &result)
        },
        Call("waitpid") { _, _ in waitpid(-1, nil, 0) },
        Call("pause") { _, _ in pause() },
    ]
}

@Suite(.whereSimulated, .bounded)
struct EscapeTests {
    @Test(arguments: Call.all) fileprivate func `a call that leaves the simulation is named, and hangs nothing`(call: Call) async throws {
        var sockets: [Int32] = [-1, -1]
        var pipe: [Int32] = [-1, -1]
        try #require(socketpair(AF_UNIX, Int32(SOCK_STREAM.rawValue), 0, &sockets) == 0 && Glibc.pipe(&pipe) == 0)
        defer { for descriptor in sockets + pipe { close(descriptor) } }
        let (socket, reading) = (sockets[0], pipe[0])
        let failure = try await #require(throws: SimulationFailure.self) {
            try await simulate(seeds: 1...1) { _ in call.make(socket, reading) }
        }
        #expect(failure.kind == .escape, "\(failure)")
        #expect(failure.message.hasPrefix("\(call.testDescription) called from"), "\(failure.message)")
        // An optimized closure jumps to its last call, and is in no stack then.
        if isDebugBuild { #expect(failure.message.contains(call.caller), "\(failure.message)") }
    }

    @Test func `files, and bytes that a pipe has, may be read`() async throws {
        var pipe: [Int32] = [-1, -1]
        try #require(Glibc.pipe(&pipe) == 0)
        defer { for descriptor in pipe { close(descriptor) } }
        let (reading, writing) = (pipe[0], pipe[1])
        try await simulate(seeds: 1...3) { _ in
            var byte: UInt8 = 7
            try #require(write(writing, &byte, 1) == 1)
            try #require(read(reading, &byte, 1) == 1)
            let file = open("/proc/self/cmdline", O_RDONLY)
            try #require(read(file, &byte, 1) == 1)
            close(file)
        }
    }

    // Foundation's UUID() does so, and was another one in each run.
    @Test func `what is read from dev-urandom is the seed's`() async throws {
        let drawn = Mutex<[[UInt8]]>([])
        for seed in [3, 3, 4] as [UInt64] {
            try await simulate(seeds: seed...seed) { _ in
                let device = open("/dev/urandom", O_RDONLY)
                defer { close(device) }
                var bytes = [UInt8](repeating: 0, count: 16)
                try #require(read(device, &bytes, 16) == 16)
                drawn.withLock { $0.append(bytes) }
            }
        }
        let all = drawn.withLock { $0 }
        #expect(all[0] == all[1])
        #expect(all[0] != all[2])
    }

    @Test func `a task that another thread resumes comes back, and is an escape`() async throws {
        let body: @Sendable (SimulatedWorld) async throws -> Void = { _ in
            await withUnsafeContinuation { continuation in DispatchQueue.global().async { continuation.resume() } }
        }
        let summary = try await simulate(seeds: 1...5, allowsEscapes: true, body)
        #expect(summary.escapes["dispatch_async"] == 5)
        let failure = try await #require(throws: SimulationFailure.self) { try await simulate(seeds: 1...1, body) }
        #expect(failure.kind == .escape)
    }

    // It ended the process: a job of a simulated main actor came from its own thread only.
    @Test func `a task of the main actor that another thread resumes goes on on the main actor`() async throws {
        let body: @Sendable (SimulatedWorld) async throws -> Void = { @MainActor _ in
            await withUnsafeContinuation { (continuation: UnsafeContinuation<Void, Never>) in
                DispatchQueue.global().async { continuation.resume() }
            }
            MainActor.assertIsolated()
        }
        let summary = try await simulate(seeds: 1...5, allowsEscapes: true, body)
        #expect(summary.escapes["dispatch_async"] == 5)
        let failure = try await #require(throws: SimulationFailure.self) { try await simulate(seeds: 1...1, body) }
        #expect(failure.kind == .escape)
    }

    // The run makes no call that is counted, so it was a deadlock as soon as nothing was ready.
    @Test func `a task that goes to a loop of another thread comes back, also if nothing else escapes`() async throws {
        let thread = try RunLoopThread(name: "outside")
        defer { thread.stop() }
        let loop = thread.runLoop
        let summary = try await simulate(seeds: 1...5, allowsEscapes: true) { _ in
            let isOutside = await Task(executorPreference: loop) { loop.isCurrent }.value
            try #require(isOutside)
        }
        #expect(summary.runs == 5)
    }

    @Test func `what another thread queues on the world's loop is performed, also while nothing is ready`() async throws {
        let summary = try await simulate(seeds: 1...5, allowsEscapes: true) { world in
            let loop = world.loop
            await withUnsafeContinuation { (continuation: UnsafeContinuation<Void, Never>) in
                DispatchQueue.global().async { loop.perform { continuation.resume() } }
            }
        }
        #expect(summary.escapes["dispatch_async"] == 5)
    }

    // The runs of a call have one address after another, so a program that spends its time in one step of each looked as if it hung.
    @Test func `steps of one number in runs of one address are different steps`() {
        final class Run {}
        var step = HangWatch.Step()
        let start = ContinuousClock.now
        for second in 0..<10 {
            let isTooLong = step.isTooLong(Run(), beat: 1, at: start + .seconds(second), limit: .seconds(2))
            #expect(!isTooLong)
        }
        let run = Run()
        let reports = (0..<10).count { step.isTooLong(run, beat: 3, at: start + .seconds($0), limit: .seconds(2)) }
        #expect(reports == 1)
        let isTooLong = step.isTooLong(run, beat: 5, at: start + .seconds(10), limit: .seconds(2))
        #expect(!isTooLong)
    }

    @Test func `a step that does not end is reported, with the functions that it is in`() async throws {
        let usual = HangWatch.settings.withLock { settings in
            let usual = settings
            settings.limit = .milliseconds(100)
            settings.report = { text in
                if text.contains("spinUntilReported") { isReported.store(true, ordering: .sequentiallyConsistent) }
                reportCount.add(1, ordering: .sequentiallyConsistent)
            }
            return usual
        }
        defer { HangWatch.settings.withLock { $0 = usual } }
        try await simulate(seeds: 1...1) { _ in
            // A step is reported once. On a busy machine, its thread may get no processor in time to answer: then there is another step.
            while !isReported.load(ordering: .sequentiallyConsistent) {  // ends: with a report that has the function
                spinUntilReported()
                await Task.yield()
            }
        }
        let wasReported = isReported.load(ordering: .sequentiallyConsistent)
        #expect(wasReported)
    }
}

private let isReported = Atomic(false)
private let reportCount = Atomic(0)
@inline(never) private func spinUntilReported() {
    let count = reportCount.load(ordering: .sequentiallyConsistent)
    // Ends: with the report.
    while reportCount.load(ordering: .sequentiallyConsistent) == count {}
}

private func startThread() {
    var thread = pthread_t()
    pthread_create(&thread, nil, { _ in nil }, nil)
    pthread_detach(thread)
}
#endif
