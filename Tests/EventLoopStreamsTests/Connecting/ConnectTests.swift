// Rules proved here (ByteStream+Connect.swift, ConnectionAttempts.swift):
// - The first address that answers wins. The next one is tried 250 ms later, or at once after a failure.
// - The limit covers the lookup and the attempts, in the loop's time. A connection that exists when it passes is a success.
// - Whatever ends it, the loop keeps no source and no timer of it, and descriptors are closed.
// - Everything happens in the mode.

import EventLoop
import EventLoopTestSupport
import Testing

@testable import EventLoopStreams

#if canImport(Glibc)
import Glibc
#else
import Darwin
#endif

@Suite(.bounded, .tags(.threads, .memory)) struct ConnectTests {
    @Test(arguments: [SocketAddress.ipv4(host: "127.0.0.1", port: 0), .unix(path: "unix")])
    func `a connection becomes a stream`(kind: SocketAddress) throws {
        let folder = makeTemporaryDirectory(in: "/tmp")
        defer { removeFlatDirectory(folder) }
        let peer = try SilentPeer(kind == .unix(path: "unix") ? .unix(path: folder + "/socket") : kind)
        try inManualTime { loop, clock, _ in
            try loop.runTask {
                let stream = try await ByteStream.connect(to: peer.address, on: loop, label: "ours")
                #expect(stream.peerAddress == peer.address && stream.loop === loop && stream.isOpen)
                try await stream.write("hello")
                stream.close()
            }
            #expect(clock.ms == 0)
        }
    }

    @Test func `a host is looked up with its port, and its addresses are tried`() throws {
        let peer = try SilentPeer()
        try inManualTime { loop, _, trace in
            try loop.runTask {
                let resolver = Resolver { host, port, answer in
                    trace.add("\(host) \(port)")
                    answer(.success([peer.address]))
                    return {}
                }
                try await ByteStream.connect(host: "example", port: 7, resolver: resolver, on: loop).close()
            }
            #expect(trace.description == "example 7")
        }
    }

    @Test func `the system's resolver finds the address to connect to`() async throws {
        let peer = try SilentPeer()
        guard case .ipv4(_, let port) = peer.address else { return }
        try await withTestLoop { loop in
            let stream = try await ByteStream.connect(host: "localhost", port: port, on: loop)
            #expect(stream.peerAddress == peer.address)
            stream.close()
        }
    }

    @Test func `the next address is tried after 250 ms, and the first connection wins`() throws {
        let (hanging, peer) = (try HangingPeer(), try SilentPeer())
        try inManualTime { loop, clock, _ in
            let stream = try loop.runTask {
                try await ByteStream.connect(
                    host: "example", port: 1, resolver: resolver([hanging.address, hanging.address, peer.address]), on: loop)
            }
            #expect(clock.ms == 500 && stream.peerAddress == peer.address)
            stream.close()
            _ = loop.run(for: .zero)
            #expect(loop.itemCount == 0, "\(loop.debugDescription)")
        }
    }

    @Test func `the next address is tried at once when an attempt fails`() throws {
        let (hanging, peer) = (try HangingPeer(), try SilentPeer())
        try inManualTime { loop, clock, _ in
            let stream = try loop.runTask {
                try await ByteStream.connect(
                    host: "example", port: 1,
                    resolver: resolver([refusingAddress, hanging.address, refusingAddress, refusingAddress, peer.address]), on: loop)
            }
            #expect(clock.ms == 250 && stream.peerAddress == peer.address)
            stream.close()
        }
    }

    @Test func `if every attempt fails, an attempt's error is thrown`() throws {
        let path = "/tmp/eventloop-nobody-listens-here"
        try inManualTime { loop, clock, _ in
            try loop.runTask {
                await #expect(throws: RunLoop.SourceError.system(operation: "connect 127.0.0.1:1", errno: ECONNREFUSED)) {
                    try await ByteStream.connect(host: "a", port: 1, resolver: resolver([refusingAddress, .unix(path: path)]), on: loop)
                }
                await #expect(throws: RunLoop.SourceError.system(operation: "connect \(path)", errno: ENOENT)) {
                    try await ByteStream.connect(to: .unix(path: path), on: loop)
                }
                await #expect(throws: RunLoop.SourceError.badAddress("example:1")) {
                    try await ByteStream.connect(to: .ipv4(host: "example", port: 1), on: loop)
                }
                await #expect(throws: StreamError.hostNotFound(host: "", reason: "the name is empty")) {
                    try await ByteStream.connect(host: "", port: 1, on: loop)
                }
            }
            _ = loop.run(for: .zero)
            #expect(clock.ms == 0 && loop.itemCount == 0, "\(loop.debugDescription)")
        }
    }

    @Test func `the limit ends attempts that hang`() throws {
        let hanging = try HangingPeer()
        for count in [1, 3] {
            try inManualTime { loop, clock, _ in
                try loop.runTask {
                    await #expect(throws: StreamError.timedOut) {
                        let addresses = Array(repeating: hanging.address, count: count)
                        return try await ByteStream.connect(
                            host: "a", port: 1, resolver: resolver(addresses), timeout: .milliseconds(1_300), on: loop)
                    }
                }
                _ = loop.run(for: .zero)
                #expect(clock.ms == 1_300 && loop.itemCount == 0, "\(loop.debugDescription)")
            }
        }
    }

    @Test func `the limit ends a lookup that hangs, and an answer that comes later is dropped`() throws {
        try inManualTime { loop, clock, trace in
            let answers = Locked<[Resolver.Answer]>([])
            try loop.runTask {
                let silent = Resolver { _, _, answer in
                    answers.withLock { $0.append(answer) }
                    return { trace.add("cancelled") }
                }
                await #expect(throws: StreamError.timedOut) {
                    try await ByteStream.connect(host: "a", port: 1, resolver: silent, timeout: .seconds(2), on: loop)
                }
            }
            #expect(clock.ms == 2_000 && trace.description == "cancelled")
            answers.withLock { $0[0] }(.success([refusingAddress]))
            _ = loop.run(for: .zero)
            #expect(loop.itemCount == 0, "\(loop.debugDescription)")
        }
    }

    @Test func `a connection that exists when the limit passes is a success`() throws {
        let peer = try SilentPeer()
        for timeout in [Duration.zero, .seconds(-1), .milliseconds(1)] {
            try inManualTime { loop, clock, _ in
                let task = Task(executorPreference: loop) {
                    try await ByteStream.connect(to: peer.address, timeout: timeout, on: loop)
                }
                let keepAlive = loop.keepAlive()
                // Until the attempt has begun, and no further: the loop has not asked the kernel.
                let observer = RunLoop.Observer(activities: .beforeWaiting, repeats: false) { _, _ in clock.advance(by: .seconds(1)) }
                loop.add(observer)
                let stream = try loop.runTask { try await task.value }
                #expect(stream.isOpen)
                stream.close()
                keepAlive.cancel()
            }
        }
    }

    @Test func `cancelling the task closes everything at once`() throws {
        let hanging = try HangingPeer()
        for addresses in [nil, [hanging.address], [hanging.address, hanging.address, hanging.address]] {
            try inManualTime { loop, clock, trace in
                let resolver = Resolver { _, _, answer in
                    if let addresses { answer(.success(addresses)) }
                    return { trace.add("cancelled") }
                }
                try loop.runTask {
                    let task = Task(executorPreference: loop) {
                        await #expect(throws: CancellationError.self) {
                            try await ByteStream.connect(host: "a", port: 1, resolver: resolver, on: loop)
                        }
                        // A task that is cancelled already begins nothing.
                        await #expect(throws: CancellationError.self) {
                            try await ByteStream.connect(host: "late", port: 1, resolver: resolver, on: loop)
                        }
                    }
                    try await loop.clock.sleep(until: .ms(400))
                    task.cancel()
                    await task.value
                }
                _ = loop.run(for: .zero)
                #expect(clock.ms == 400 && loop.itemCount == 0, "\(loop.debugDescription)")
                #expect(trace.description == (addresses == nil ? "cancelled" : ""))
            }
        }
    }

    @Test func `the loop's end ends a lookup and an attempt`() async throws {
        let hanging = try HangingPeer()
        for addresses in [nil, [hanging.address]] {
            let thread = try RunLoopThread(name: "ends")
            let (loop, begun) = (thread.runLoop, Gate())
            let trace = Trace()
            let task = Task {
                let resolver = Resolver { _, _, answer in
                    if let addresses { answer(.success(addresses)) }
                    begun.open()
                    return { trace.add("cancelled") }
                }
                return try await ByteStream.connect(host: "a", port: 1, resolver: resolver, on: loop)
            }
            try await begun.waitInTask()
            // The loop's thread has begun the attempt, if there is an address.
            try await loop.performAsync {}
            thread.stop()
            await #expect(throws: RunLoopEnded.self) { try await task.value }
            await thread.join()
            await #expect(throws: RunLoopEnded.self) { try await ByteStream.connect(to: refusingAddress, on: loop) }
            #expect(trace.description == (addresses == nil ? "cancelled" : ""))
        }
    }

    @Test func `an attempt waits while the loop runs in other modes, and keeps its own mode from being empty`() throws {
        let peer = try SilentPeer()
        let (mode, other) = (RunLoop.Mode("connecting"), RunLoop.Mode("other"))
        try inManualTime { loop, clock, trace in
            let keepAlives = [loop.keepAlive(forMode: other), loop.keepAlive()]
            _ = Task(executorPreference: loop) {
                let stream = try await ByteStream.connect(to: peer.address, on: loop, mode: mode)
                trace.add("connected")
                loop.stop()
                stream.close()
            }
            // The task begins in a common mode.
            #expect(loop.run(for: .seconds(1)) == .timedOut)
            #expect(loop.run(mode: other, for: .seconds(1)) == .timedOut)
            #expect(loop.run(mode: mode, for: .seconds(1)) == .timedOut)
            #expect(trace.description == "")
            // The stream was made in the mode; the task goes on in a common mode.
            #expect(loop.run(for: .seconds(1)) == .stopped)
            #expect(trace.description == "connected")
            for keepAlive in keepAlives { keepAlive.cancel() }
        }
    }

    @Test func `success and cancellation at the same time end in one of them, and no socket is left`() async {
        await #expect(processExitsWith: .success) {
            let peer = try SilentPeer()
            let before = openSockets()
            let thread = try RunLoopThread(name: "race")
            let counts = Box((connected: 0, cancelled: 0))
            for round in 0..<500 {
                let task = Task { try await ByteStream.connect(to: peer.address, on: thread.runLoop) }
                for _ in 0..<(round % 50) { await Task.yield() }
                task.cancel()
                switch await task.result {
                case .success(let stream):
                    counts.change { $0.connected += 1 }
                    stream.close()
                case .failure(let error):
                    #expect(error is CancellationError)
                    counts.change { $0.cancelled += 1 }
                }
            }
            #expect(counts.value.connected + counts.value.cancelled == 500)
            thread.stop()
            await thread.join()
            let after = openSockets()
            #expect(after == before, "\(after) sockets, \(before) before: \(counts.value)")
        }
    }

    @Test func `many connections at once are made`() async throws {
        let peer = try SilentPeer(backlog: 4096)
        try await withTestLoop { loop in
            try await withThrowingTaskGroup(of: Bool.self) { group in
                for _ in 0..<200 {
                    group.addTask {
                        let stream = try await ByteStream.connect(
                            host: "a", port: 1, resolver: resolver([refusingAddress, peer.address]), on: loop)
                        defer { stream.close() }
                        return stream.peerAddress == peer.address
                    }
                }
                for try await isRight in group { #expect(isRight) }
            }
            try await loop.performAsync { #expect(loop.itemCount == 0, "\(loop.debugDescription)") }
        }
    }

    #if os(Linux)
    @Test func `a process without descriptors gets a typed error, and can connect later`() async {
        await #expect(processExitsWith: .success) {
            let (peer, thread) = (try SilentPeer(), try RunLoopThread(name: "loop"))
            let address = peer.address
            try await ByteStream.connect(to: address, on: thread.runLoop).close()
            var limit = rlimit()
            getrlimit(__rlimit_resource_t(RLIMIT_NOFILE.rawValue), &limit)
            let old = limit.rlim_cur
            limit.rlim_cur = 3
            setrlimit(__rlimit_resource_t(RLIMIT_NOFILE.rawValue), &limit)
            await #expect(throws: RunLoop.SourceError.system(operation: "socket for \(address)", errno: EMFILE)) {
                try await ByteStream.connect(host: "a", port: 1, resolver: resolver([address, address]), on: thread.runLoop)
            }
            limit.rlim_cur = old
            setrlimit(__rlimit_resource_t(RLIMIT_NOFILE.rawValue), &limit)
            try await ByteStream.connect(to: address, on: thread.runLoop).close()
            thread.stop()
            await thread.join()
        }
    }
    #endif

    @Test func `a connection of which no stream can be made is a failed attempt`() throws {
        let peer = try SilentPeer()
        try inManualTime { loop, clock, _ in
            let counts = Box(0)
            let attempts = ConnectionAttempts(
                ConnectionAttempts.Target(loop: loop, mode: .common, timeout: .seconds(1), label: nil, file: #fileID, line: #line) {
                    descriptor throws(RunLoop.SourceError) in
                    if counts.increment() == 1 {
                        close(descriptor)
                        throw .system(operation: "getpeername", errno: ENOTCONN)
                    }
                    return try ByteStream(adopting: descriptor, on: loop)
                })
            let stream = try loop.runTask {
                try await attempts.connect { answer in
                    answer(.success([peer.address, peer.address]))
                    return {}
                }
            }
            #expect(counts.value == 2 && clock.ms == 0 && stream.isOpen)
            stream.close()
        }
    }
}
